package trigger

import (
	"fmt"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of metadata, which tenants write: what is beyond is a fault, so that no
// log line, series or message grows with what somebody has typed. KEDA's own keys
// (certificates among them) are left to the bound of the whole message.
const (
	MaxKeys  = 64   // keys of one trigger, KEDA's included
	MaxKey   = 64   // bytes of a key
	MaxValue = 256  // bytes of a value, where the key does not say otherwise
	MaxName  = 512  // bytes of a model name or a path
	MaxText  = 4096 // bytes of a list, a selector or a query
)

// sizes are the bounds that differ from MaxValue.
var sizes = map[string]int{
	"modelName": MaxName, "pathPrefix": MaxName, "metricsPath": MaxName,
	"modelAliases": MaxText, "podSelector": MaxText, "demandQuery": MaxText,
}

// text says what makes a value unfit to be stored, logged or sent, "" if nothing
// does. A query may have several lines.
func text(key, v string) string {
	most := MaxValue
	if n := sizes[key]; n > 0 {
		most = n
	}
	if len(v) > most {
		return fmt.Sprintf("has %d bytes: at most %d are taken", len(v), most)
	}
	if !utf8.ValidString(v) {
		return "is not UTF-8"
	}
	for i, r := range v {
		if !unicode.IsGraphic(r) && (key != "demandQuery" || r != '\n' && r != '\t') {
			return fmt.Sprintf("holds the control character %q at byte %d", r, i)
		}
	}
	return ""
}

// short cuts a key that nobody knows to what a message can hold.
func short(key string) string {
	if len(key) > MaxKey {
		key = strings.ToValidUTF8(key[:MaxKey], "") + "..."
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(key, "?"))
}

func path(v string, emptyOK bool) error {
	if v == "" && emptyOK {
		return nil
	}
	if !strings.HasPrefix(v, "/") || strings.ContainsAny(v, " ?#\\") {
		return fmt.Errorf("%q must be a path that begins with / and has no query", v)
	}
	for segment := range strings.SplitSeq(v, "/") {
		plain, err := url.PathUnescape(segment)
		if err != nil || plain == "." || plain == ".." || strings.ContainsAny(plain, "/\\") || strings.Contains(v, "//") {
			return fmt.Errorf("%q must be a path without . and .. and empty segments", v)
		}
	}
	return nil
}
