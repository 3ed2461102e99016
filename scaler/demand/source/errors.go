package source

import (
	"errors"
	"fmt"
	"strconv"
)

// ErrUnknown is matched by every error of a poll: whatever went wrong, what
// waits there is not known.
var ErrUnknown = errors.New("demand unknown")

// failure is an error with a short, stable word for a metric label.
type failure struct {
	word string
	text string
}

func (f *failure) Error() string        { return f.text }
func (f *failure) Is(target error) bool { return target == ErrUnknown }

func fail(word, format string, args ...any) error {
	return &failure{word, fmt.Sprintf(format, args...)}
}

func statusError(code int) error {
	return fail("status_"+strconv.Itoa(code), "answered HTTP %d", code)
}

// reason is the word of an error: refused, timeout, dns, tls, status_<code>,
// redirect, too_large, malformed, no_series, not_finite, several, empty, query,
// token, first, or other.
func reason(err error) string {
	var f *failure
	if errors.As(err, &f) {
		return f.word
	}
	return "other"
}
