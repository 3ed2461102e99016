package engine

import (
	"bytes"
	"math"
	"strconv"
	"strings"
)

// labels is what matters of one label set. Values are raw: escapes as sent.
// The text format has exactly one raw form per value (backslash, quote and
// newline must be escaped, nothing else can be), so raw bytes compare as well.
type labels struct {
	key       uint64 // order-free hash of all labels but pid
	name      []byte // the quoted metric name, if it stands among the labels
	model     []byte // value of model_name
	hasModel  bool
	otherRank bool // tp_rank or pp_rank is not 0
}

// read takes the label set at the start of b, which is at '{', and returns what
// follows '}'. nameless allows one entry without value: the metric's name.
func (l *labels) read(b []byte, nameless bool) (rest []byte, why string) {
	const open = "label set is not closed"
	b = skipBlank(b[1:])
	for len(b) > 0 && b[0] != '}' {
		name, rest, why := readLabelName(b)
		if why != "" {
			return nil, why
		}
		b = skipBlank(rest)
		switch {
		case len(b) == 0:
			return nil, open
		case nameless && b[0] != '=':
			if l.name != nil {
				return nil, "a series with two names"
			}
			l.name = name
		case b[0] != '=':
			return nil, "label without a value"
		default:
			value, rest, why := readQuoted(skipBlank(b[1:]))
			if why != "" {
				return nil, why
			}
			if !l.add(name, value) {
				return nil, "model_name given twice"
			}
			b = skipBlank(rest)
		}
		if len(b) == 0 {
			return nil, open
		}
		if b[0] == ',' {
			b = skipBlank(b[1:])
		} else if b[0] != '}' {
			return nil, "labels are not separated by a comma"
		}
	}
	if len(b) == 0 {
		return nil, open
	}
	return b[1:], ""
}

// add notes one label; false means that it contradicts an earlier one.
func (l *labels) add(name, value []byte) bool {
	switch string(name) {
	case "pid":
		return true
	case "model_name":
		if l.hasModel {
			return false
		}
		l.hasModel, l.model = true, value
	case "tp_rank", "pp_rank":
		l.otherRank = l.otherRank || string(value) != "0"
	}
	l.key += hashLabel(name, value)
	return true
}

// hashLabel is FNV-1a (64 bit, offset basis and prime as published) over name,
// a separator and value, then one multiply-and-shift round, so that sums of
// hashes stay well spread.
func hashLabel(name, value []byte) uint64 {
	const prime = 1099511628211
	h := uint64(14695981039346656037)
	for _, c := range name {
		h = (h ^ uint64(c)) * prime
	}
	h = (h ^ 0xff) * prime // 0xff occurs in no UTF-8 text
	for _, c := range value {
		h = (h ^ uint64(c)) * prime
	}
	h = (h ^ h>>32) * 0x9e3779b97f4a7c15
	return h ^ h>>29
}

// readLabelName takes a bare or quoted name.
func readLabelName(b []byte) (name, rest []byte, why string) {
	if b[0] == '"' {
		name, rest, why = readQuoted(b)
	} else {
		n := 0
		for n < len(b) && isNameByte(b[n]) && b[n] != ':' {
			n++
		}
		if n > 0 && isDigit(b[0]) {
			n = 0
		}
		name, rest = b[:n], b[n:]
	}
	if why == "" && len(name) == 0 {
		why = "label without a name"
	}
	return name, rest, why
}

// readQuoted takes a quoted text and returns what stands between the quotes,
// raw.
func readQuoted(b []byte) (raw, rest []byte, why string) {
	if len(b) == 0 || b[0] != '"' {
		return nil, nil, "label value is not quoted"
	}
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '"':
			return b[1:i], b[i+1:], ""
		case '\\':
			i++
			if i < len(b) && b[i] != '\\' && b[i] != '"' && b[i] != 'n' {
				return nil, nil, "unknown escape"
			}
		}
	}
	return nil, nil, "quote is not closed"
}

// readValue takes what follows the labels: the value, then perhaps a timestamp
// and, in OpenMetrics, an exemplar. NaN stands for a value that is no finite
// number of at least 0.
func readValue(b []byte) (value float64, why string) {
	value, rest, ok := readFloat(skipBlank(b))
	if !ok {
		return 0, "value is not a number"
	}
	if len(rest) > 0 && rest[0] != '#' {
		if _, rest, ok = readFloat(rest); !ok {
			return 0, "timestamp is not a number"
		}
	}
	if len(rest) > 0 && !isExemplar(rest) {
		return 0, "text after the value"
	}
	if value < 0 || math.IsInf(value, 0) {
		value = math.NaN()
	}
	return value, ""
}

// isExemplar says whether b is `# {labels} value [timestamp]`.
func isExemplar(b []byte) bool {
	if b[0] != '#' {
		return false
	}
	b = skipBlank(b[1:])
	if len(b) == 0 || b[0] != '{' {
		return false
	}
	var l labels
	b, why := l.read(b, false)
	if why != "" {
		return false
	}
	_, b, ok := readFloat(skipBlank(b))
	if ok && len(b) > 0 {
		_, b, ok = readFloat(b)
	}
	return ok && len(b) == 0
}

// readFloat takes one number and the blanks behind it. Hexadecimal and
// underscores, which Go would accept, are not in the format.
func readFloat(b []byte) (v float64, rest []byte, ok bool) {
	n := 0
	for n < len(b) && b[n] != ' ' && b[n] != '\t' {
		if b[n] == '_' || b[n]|0x20 == 'p' {
			return 0, nil, false
		}
		n++
	}
	v, err := strconv.ParseFloat(string(b[:n]), 64)
	return v, skipBlank(b[n:]), err == nil
}

// equalUnescaped compares a raw value with a text, without allocating.
func equalUnescaped(raw []byte, want string) bool {
	for len(raw) > 0 {
		c, n := raw[0], 1
		if c == '\\' && len(raw) > 1 {
			if c, n = raw[1], 2; c == 'n' {
				c = '\n'
			}
		}
		if len(want) == 0 || want[0] != c {
			return false
		}
		raw, want = raw[n:], want[1:]
	}
	return len(want) == 0
}

// unescape makes a raw value readable.
func unescape(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw)
	}
	return strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n").Replace(string(raw))
}

func skipBlank(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	return b
}

func skipSpace(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t' || b[0] == '\n' || b[0] == '\r') {
		b = b[1:]
	}
	return b
}

func isDigit(c byte) bool { return c-'0' < 10 }

// isNameByte: a byte of a bare metric name; the first must not be a digit.
func isNameByte(c byte) bool {
	return (c|0x20)-'a' < 26 || isDigit(c) || c == '_' || c == ':'
}
