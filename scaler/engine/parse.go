package engine

import (
	"bytes"
	"fmt"
)

const (
	// DefaultMaxBody is the largest page that is read: 4 MiB, over ten times
	// the page of an eight-engine vLLM (321 KB).
	DefaultMaxBody = 4 << 20

	// stackSamples is how many series of interest fit the stack (3 KiB): nine
	// engines, at 13 series each on a vLLM page. More move to the heap.
	stackSamples = 128
	// maxSamples bounds that heap (96 KiB): over 300 engines.
	maxSamples = 4096
)

// Parse reads the page body of an engine of that kind. model selects series by
// their label model_name; "" takes the only model exported. A body over
// DefaultMaxBody bytes is ErrTooLarge and not looked at. Other errors: ErrEmpty,
// ErrMalformed, ErrNoSeries, ErrModel, ErrNotFinite; all match ErrUnknown.
//
// Parse does not retain body and may be called concurrently.
func Parse(kind Kind, body []byte, model string) (Reading, error) {
	if len(body) > DefaultMaxBody {
		return unknownReading(), fmt.Errorf("%d bytes, at most %d are read: %w", len(body), DefaultMaxBody, ErrTooLarge)
	}
	s := scan{kind: kind, want: model, body: body}
	return s.parse()
}

// scan is one pass over one page.
type scan struct {
	kind Kind
	want string // model asked for, "" for the only one
	body []byte

	// What was found, of the chosen model only: first[:count], or all of it in
	// more once it outgrew first. An array, so that a scan stays on the stack.
	first [stackSamples]sample
	count int
	more  []sample

	ours       bool      // a series with the engine's prefix was seen
	adopted    []byte    // raw name of the first model seen, when want is ""
	matched    bool      // a series of the chosen model was seen
	several    bool      // more than one model seen, when want is ""
	otherModel bool      // a series of another model was seen, when want is set
	names      *modelSet // when set, collects the models seen
}

func (s *scan) parse() (Reading, error) {
	switch s.kind {
	case "":
		s.kind = VLLM
	case VLLM, SGLang, TGI:
	default:
		return unknownReading(), fmt.Errorf("engine %q is not known: %w", string(s.kind), errOther)
	}
	if len(skipSpace(s.body)) == 0 {
		return unknownReading(), ErrEmpty
	}
	if err := s.lines(); err != nil {
		return unknownReading(), err
	}
	return s.reading()
}

// lines walks over the page, line by line, up to its end or to # EOF.
func (s *scan) lines() error {
	for pos := 0; pos < len(s.body); {
		line, next, whole := s.body[pos:], len(s.body), false
		if n := bytes.IndexByte(line, '\n'); n >= 0 {
			line, next, whole = line[:n], pos+n+1, true
		}
		end, why := s.line(line, whole)
		if end && len(skipSpace(s.body[next:])) > 0 {
			pos, why = next, "text after # EOF"
		}
		if why != "" {
			return fmt.Errorf("line %d: %s: %w", 1+bytes.Count(s.body[:pos], []byte{'\n'}), why, ErrMalformed)
		}
		if end {
			return nil
		}
		pos = next
	}
	return nil
}

// line looks at one line. whole says that a newline ended it: only then may a
// line that is none of our business be skipped unread. end reports # EOF; why
// says what is wrong with the line.
func (s *scan) line(line []byte, whole bool) (end bool, why string) {
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	line = skipBlank(line)
	if len(line) == 0 {
		return false, ""
	}
	switch c := line[0]; {
	case c == '#':
		if string(line) == "# EOF" {
			return true, ""
		}
		if !whole {
			return false, "the page ends inside a comment"
		}
		return false, ""
	case c == '{':
		return false, s.nameless(line, whole)
	case !isNameByte(c) || isDigit(c):
		return false, "neither a series nor a comment"
	}
	n := 1
	for n < len(line) && isNameByte(line[n]) {
		n++
	}
	f := s.lookUp(line[:n])
	if f == unwanted && whole {
		return false, ""
	}
	return false, s.series(f, line[n:])
}

// lookUp finds the field of a name and notes whether it is the engine's own.
func (s *scan) lookUp(name []byte) field {
	f := s.kind.field(name)
	if !s.ours {
		s.ours = s.kind.owns(name)
	}
	return f
}

// series reads what follows a bare name: labels, value, and the rest.
func (s *scan) series(f field, rest []byte) (why string) {
	var l labels
	rest = skipBlank(rest)
	if len(rest) > 0 && rest[0] == '{' {
		if rest, why = l.read(rest, false); why != "" {
			return why
		}
	}
	return s.add(f, &l, rest)
}

// nameless reads a line that starts with its labels. The UTF-8 form puts the
// name among them, in quotes: {"vllm:num_requests_running",engine="0"} 1. A
// line without any name is malformed.
func (s *scan) nameless(line []byte, whole bool) (why string) {
	var l labels
	rest, why := l.read(line, true)
	if why != "" {
		return why
	}
	if len(l.name) == 0 {
		return "a series without a name"
	}
	f := s.lookUp(l.name)
	if f == unwanted && whole {
		return ""
	}
	return s.add(f, &l, rest)
}

// add reads the value behind the labels and keeps it if the series counts.
func (s *scan) add(f field, l *labels, rest []byte) (why string) {
	value, why := readValue(rest)
	if why != "" || f == unwanted {
		return why
	}
	if f != startTime {
		if s.kind == SGLang && l.otherRank {
			return ""
		}
		if s.kind != TGI && !s.choose(l.model) {
			return ""
		}
	}
	return s.keep(sample{key: l.key, value: value, field: f})
}

func (s *scan) keep(x sample) (why string) {
	switch {
	case s.count < len(s.first):
		s.first[s.count] = x
		s.count++
		return ""
	case s.more == nil:
		s.more = append(make([]sample, 0, 4*stackSamples), s.first[:]...)
	case len(s.more) == maxSamples:
		return "too many series"
	}
	s.more = append(s.more, x)
	return ""
}

// samples returns what was kept.
func (s *scan) samples() []sample {
	if s.more != nil {
		return s.more
	}
	return s.first[:s.count]
}

// choose says whether series of that model (raw, with its escapes) count.
func (s *scan) choose(model []byte) bool {
	if s.names != nil {
		s.names.add(unescape(model))
	}
	if s.want != "" {
		same := equalUnescaped(model, s.want)
		s.matched = s.matched || same
		s.otherModel = s.otherModel || !same
		return same
	}
	if !s.matched {
		s.matched, s.adopted = true, model
		return true
	}
	same := bytes.Equal(model, s.adopted)
	s.several = s.several || !same
	return same
}
