package engine

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrUnknown is the umbrella: every error of Parse and of Scraper.Scrape
// matches it, because whatever went wrong, the load of the pod is unknown.
var ErrUnknown = errors.New("engine load unknown")

// The kinds of failure, for errors.Is. Reason gives each a short word.
var (
	// ErrEmpty: the page holds nothing but white space.
	ErrEmpty error = &failure{"empty", "metrics page is empty"}
	// ErrMalformed: a line breaks the format; the text names the line.
	ErrMalformed error = &failure{"malformed", "metrics page is malformed"}
	// ErrTooLarge: the page is over the cap and was not read.
	ErrTooLarge error = &failure{"too_large", "metrics page is too large"}
	// ErrNoSeries: the load gauges of the engine are not on the page.
	ErrNoSeries error = &failure{"no_series", "metrics page lacks the engine's load series"}
	// ErrModel: the page is about another model, or about several; see ModelError.
	ErrModel error = &failure{"model", "model not identified on the metrics page"}
	// ErrNotFinite: a load gauge is NaN, infinite or negative.
	ErrNotFinite error = &failure{"not_finite", "load gauge is not a finite, non-negative number"}
	// ErrAbsurd: a load gauge is finite and yet more than an engine can hold; see MaxLoad.
	ErrAbsurd error = &failure{"absurd", "load gauge is more than an engine can hold"}
	// ErrStatus: the answer was not HTTP 200; see StatusError.
	ErrStatus error = &failure{"status", "unexpected HTTP status"}
	// ErrRefused: nothing listens on the port, which is how vLLM looks while it starts.
	ErrRefused error = &failure{"refused", "connection refused (the engine is still starting, or gone)"}
	// ErrTimeout: no complete page in time.
	ErrTimeout error = &failure{"timeout", "no complete answer in time"}
	// ErrHTML: the answer is a web page, so something else listens there.
	ErrHTML error = &failure{"html", "answer is HTML, not metrics"}
	// ErrRedirect: sent to another host, port or scheme, or round and round.
	ErrRedirect error = &failure{"redirect", "redirected elsewhere"}
	// ErrCut: the connection ended before the page did, or the page is corrupt.
	ErrCut error = &failure{"cut", "answer was cut short"}

	// errOther is what remains: TLS, DNS, a cancelled context, a bad URL.
	errOther error = &failure{"other", "metrics page not read"}
)

// failure is the type of the sentinels above.
type failure struct {
	word string // what Reason returns
	text string
}

func (f *failure) Error() string { return f.text }

// Is makes every sentinel match ErrUnknown besides itself.
func (f *failure) Is(target error) bool { return target == ErrUnknown }

// Reason gives a short, stable word for a metric label or a log field: refused,
// timeout, status_<code>, html, empty, malformed, model, no_series, not_finite,
// absurd, too_large, redirect, cut or other; "" for nil.
func Reason(err error) string {
	if err == nil {
		return ""
	}
	var status *StatusError
	if errors.As(err, &status) {
		return "status_" + strconv.Itoa(status.Code)
	}
	var f *failure
	if errors.As(err, &f) {
		return f.word
	}
	return "other"
}

// StatusError says with which HTTP status the engine answered. It matches
// ErrStatus.
type StatusError struct {
	Code int // the status as sent, never 200
}

func (e *StatusError) Error() string { return "engine answered HTTP " + strconv.Itoa(e.Code) }

// Unwrap makes errors.Is(err, ErrStatus) true.
func (e *StatusError) Unwrap() error { return ErrStatus }

// ModelError says which model was looked for and which were found. It matches
// ErrModel.
type ModelError struct {
	Want string   // "" when any single model would have done
	Seen []string // sorted, distinct, at most 16 names of at most 128 bytes
}

func (e *ModelError) Error() string {
	names := make([]string, len(e.Seen))
	for i, n := range e.Seen {
		names[i] = strconv.Quote(n)
	}
	list := strings.Join(names, ", ")
	if e.Want == "" {
		return "several models exported (" + list + "): say which with modelName"
	}
	return fmt.Sprintf("model %q not exported; the page has %s", e.Want, list)
}

// Unwrap makes errors.Is(err, ErrModel) true.
func (e *ModelError) Unwrap() error { return ErrModel }
