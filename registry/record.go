package registry

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds of what an Entry records, in bytes of UTF-8. Longer text is cut at a
// rune with "..." at its end.
const (
	MaxMessage = 400
	MaxBy      = 120
)

// NewEntry is the record of a change that is about to be made from the given
// version at the given time (kept in whole seconds UTC), in the given state.
func NewEntry(change Change, from string, at time.Time, state string) Entry {
	e := Entry{
		ID: newID(), At: at.UTC().Truncate(time.Second), By: line(change.By, MaxBy), Action: change.Action,
		From: from, To: change.To, Message: line(change.Message, MaxMessage),
		Location: change.Location.String(), Digest: change.Digest, State: state,
	}
	if e.Action == "" {
		e.Action = ActionPromote
	}
	return e
}

func newID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// line makes text fit for one line of a terminal and for the bound.
func line(s string, limit int) string {
	s = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?")))
	if len(s) <= limit {
		return s
	}
	cut := limit - len("...")
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}

// errEntry is what is wrong with one entry of a record.
var errEntry = errors.New("not an entry")

// DecodeEntries reads a JSON array of entries, newest first, and keeps at most
// limit of them. Entries that make no sense are left out, and err then says how
// many there were and what the first one lacks: the good ones are returned all
// the same. Text is cleaned of control characters, so that it can be printed.
func DecodeEntries(data []byte, limit int) (entries []Entry, err error) {
	var raw []json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, fmt.Errorf("it is not a JSON array: %w", err)
	}
	var first error
	bad := 0
	for i, r := range raw {
		if len(entries) == limit {
			break
		}
		e, err := decodeEntry(r)
		if err != nil {
			if bad++; first == nil {
				first = fmt.Errorf("entry %d: %w", i+1, err)
			}
			continue
		}
		entries = append(entries, e)
	}
	if first != nil {
		return entries, fmt.Errorf("%d of %d entries cannot be read: %w", bad, len(raw), first)
	}
	return entries, nil
}

func decodeEntry(raw json.RawMessage) (Entry, error) {
	var e Entry
	if err := json.Unmarshal(raw, &e); err != nil {
		return Entry{}, fmt.Errorf("%w: %w", errEntry, err)
	}
	const short = 256 // ids, versions, actions
	if e.Message != "" {
		e.Message = line(e.Message, MaxMessage)
	}
	e.ID, e.By, e.Action = line(e.ID, short), line(e.By, MaxBy), line(e.Action, short)
	e.From, e.To = line(e.From, short), line(e.To, short)
	e.Location, e.Digest = line(e.Location, maxRefLength), line(e.Digest, short)
	switch {
	case e.To == "":
		return Entry{}, fmt.Errorf(`%w: it has no "to"`, errEntry)
	case e.Action == "":
		return Entry{}, fmt.Errorf(`%w: it has no "action"`, errEntry)
	case e.State != StatePending && e.State != StateDone:
		return Entry{}, fmt.Errorf(`%w: its "state" is %q, want %q or %q`, errEntry, line(e.State, 40), StatePending, StateDone)
	case e.At.IsZero() || e.At.Year() < 1970 || e.At.Year() > 9999:
		return Entry{}, fmt.Errorf(`%w: its "at" is no time`, errEntry)
	}
	e.At = e.At.UTC()
	return e, nil
}

// EncodeEntries writes entries as DecodeEntries reads them, in at most maxBytes:
// the oldest are left out as need be. It is "[]" for none.
func EncodeEntries(entries []Entry, maxBytes int) []byte {
	out := []byte{'['}
	for i, e := range entries {
		one, err := json.Marshal(e)
		if err != nil { // a time outside of JSON's years: DecodeEntries lets none in
			continue
		}
		if len(out)+len(one)+len(",]") > maxBytes {
			break
		}
		if i > 0 && len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, one...)
	}
	return append(out, ']')
}
