package openai

import "bytes"

// deepest bounds how deep arrays and objects may be nested. Python's parser,
// which an engine uses, gives up at about a thousand.
const deepest = 1000

// fields calls visit with each key (a raw string, quotes and escapes included)
// and raw value of the object that body must be, as a whole. It stops at the
// first error of visit.
func fields(body []byte, visit func(key, value []byte) error) error {
	i := space(body, 0)
	if i >= len(body) || body[i] != '{' {
		return ErrNotJSON
	}
	i = space(body, i+1)
	for first := true; ; first = false {
		if i < len(body) && body[i] == '}' && first {
			break
		}
		start := i
		end := stringEnd(body, i)
		if end < 0 {
			return ErrNotJSON
		}
		i = space(body, end)
		if i >= len(body) || body[i] != ':' {
			return ErrNotJSON
		}
		value := space(body, i+1)
		valueEnd := valueEnd(body, value)
		if valueEnd < 0 {
			return ErrNotJSON
		}
		if err := visit(body[start:end], body[value:valueEnd]); err != nil {
			return err
		}
		i = space(body, valueEnd)
		if i >= len(body) || (body[i] != ',' && body[i] != '}') {
			return ErrNotJSON
		}
		if body[i] == '}' {
			break
		}
		i = space(body, i+1)
	}
	if space(body, i+1) != len(body) {
		return ErrNotJSON
	}
	return nil
}

// elements calls visit with each raw element of a raw array until it returns
// false.
func elements(raw []byte, visit func(value []byte) bool) {
	if len(raw) == 0 || raw[0] != '[' {
		return
	}
	for i := space(raw, 1); i < len(raw) && raw[i] != ']'; {
		end := valueEnd(raw, i)
		if end < 0 || !visit(raw[i:end]) {
			return
		}
		if i = space(raw, end); i < len(raw) && raw[i] == ',' {
			i = space(raw, i+1)
		}
	}
}

// space returns the index of the first byte from i on that is not white space.
func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// stringEnd returns the index behind the string that begins at i, or -1.
func stringEnd(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	for j := i + 1; ; {
		k := bytes.IndexByte(b[j:], '"')
		if k < 0 {
			return -1
		}
		quote := j + k
		slashes := 0
		for quote-slashes > i+1 && b[quote-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return quote + 1
		}
		j = quote + 1
	}
}

// valueEnd returns the index behind the value that begins at i, or -1.
func valueEnd(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"':
		return stringEnd(b, i)
	case '{', '[':
		return nestEnd(b, i)
	}
	j := i
	for j < len(b) && scalar(b[j]) {
		j++
	}
	if j == i {
		return -1
	}
	return j
}

// scalar holds for the bytes of numbers, true, false, null, and of NaN and
// Infinity, which Python takes.
func scalar(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-' || c == '+' || c == '.'
}

// nestEnd returns the index behind the array or object that begins at i, or -1
// where its brackets do not match.
func nestEnd(b []byte, i int) int {
	var room [64]byte
	open := room[:0]
	for ; i < len(b); i++ {
		switch c := b[i]; c {
		case '"':
			end := stringEnd(b, i)
			if end < 0 {
				return -1
			}
			i = end - 1
		case '{', '[':
			if len(open) == deepest {
				return -1
			}
			open = append(open, c+2) // in ASCII the closing one is two on
		case '}', ']':
			if open[len(open)-1] != c {
				return -1
			}
			if open = open[:len(open)-1]; len(open) == 0 {
				return i + 1
			}
		}
	}
	return -1
}
