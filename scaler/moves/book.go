package moves

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

const (
	// Kept is how many moves of a reference are remembered, in a namespace.
	Kept = 10

	// maxKeys bounds a Book: references times namespaces. It is more than the
	// targets that a scaler serves (10,000), and with ten moves for each of them
	// the Book takes about 25 MiB.
	maxKeys = 12_000

	// unheard is how long nobody has to have listened before the history of a
	// root is consulted.
	unheard = 5 * time.Minute

	// doubt is how far the moments of two agents may be off: the Date of an
	// answer has whole seconds.
	doubt = 3 * time.Second
)

// Key names a pointer as the pods of one namespace see it. Ref is the long
// form: models:/llama@champion.
type Key struct{ Namespace, Ref string }

// A Move is one that was seen. From is empty where it is not known: then To is
// where the pointer stood.
type Move struct {
	At     time.Time `json:"at"` // when it was noticed first, by the scaler's clock
	From   string    `json:"from,omitempty"`
	To     string    `json:"to"`
	Digest string    `json:"digest,omitempty"` // of To, where it is known
	By     string    `json:"by"`               // namespace/pod whose agent noticed
}

// Seen is what one agent tells, by the scaler's clock.
type Seen struct {
	Named     *Move  // where the pointer stood when it last answered; nil: not told
	Published *Move  // what is published in its root, and since when; nil: nothing
	History   []Move // what was published in its root, in any order
}

// Book remembers moves. The zero value is ready; it is safe for concurrent use.
type Book struct {
	mu      sync.Mutex
	entries map[Key]*entry
}

type entry struct {
	line     []Move    // oldest first
	heard    time.Time // when the pointer was last known to stand at the end of line
	updated  time.Time // of line
	dirty    bool      // not written yet
	restored bool      // what was stored is in line
}

// Moves returns what is remembered of a pointer, newest first.
func (b *Book) Moves(k Key) []Move {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[k]
	if e == nil {
		return nil
	}
	out := slices.Clone(e.line)
	slices.Reverse(out)
	return out
}

// Quiet reports whether nobody has listened to a pointer for so long that the
// histories of its agents are worth hearing. They are not where there is no room.
func (b *Book) Quiet(k Key, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[k]
	return e == nil && !b.full(k) || e != nil && e.quiet(now)
}

func (e *entry) quiet(now time.Time) bool { return now.Sub(e.heard) > unheard }

// Learn takes in what agents of a pointer have told, and returns where it
// stands now, if that is news: nothing is when it is heard of for the first time,
// or when the Book is full.
func (b *Book) Learn(k Key, told []Seen, now time.Time) (last Move, moved bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entry(k)
	if e == nil {
		return Move{}, false
	}
	before := slices.Clone(e.line)
	e.learn(told, now)
	if slices.Equal(e.line, before) {
		return Move{}, false
	}
	e.updated, e.dirty = now, true
	last = e.line[len(e.line)-1]
	return last, len(before) > 0 && before[len(before)-1].To != last.To
}

func (e *entry) learn(told []Seen, now time.Time) {
	var since time.Time
	if n := len(e.line); n > 0 {
		since = e.line[n-1].At
	}
	var named []Move
	quiet := e.quiet(now)
	for _, s := range told {
		if s.Named != nil {
			named = append(named, *s.Named)
		}
		for _, m := range s.History {
			if quiet && m.At.After(since) && !m.At.After(now) {
				e.line = insert(e.line, m)
			}
		}
	}
	slices.SortFunc(named, func(a, b Move) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.By, b.By)) })
	for _, m := range named {
		if m.At.After(now) {
			m.At = now
		}
		e.hear(m)
	}
	e.line = slices.Clone(e.line[max(0, len(e.line)-Kept):])
}

// hear takes in where the pointer stood at a moment:
//
//	line ends with          heard                        then
//	nothing                 at 7                         it stood at 7
//	6->7 at 10:00           at 7 at 10:05                nothing new
//	6->7 at 10:00           at 7 at 09:59:50             it was there at 09:59:50
//	6->7 at 10:00           at 8 at 10:05                7->8 at 10:05
//	6->7 at 10:00           at 6 at 09:58                heard late
//	6->7 at 10:00           at 6 at 10:00:02             a clock that is late
//	6->7 at 10:00           at 6 at 10:05                7->6 at 10:05
func (e *entry) hear(m Move) {
	n := len(e.line)
	if n == 0 {
		e.line, e.heard = []Move{m}, m.At
		return
	}
	last := &e.line[n-1]
	if m.To == last.To {
		if sooner := m.At.Before(last.At.Add(-doubt)); sooner && (n == 1 || m.At.After(e.line[n-2].At)) {
			last.At, last.By = m.At, m.By
		}
		if m.At.After(e.heard) {
			e.heard = m.At
		}
		return
	}
	late := m.At.Before(last.At) || m.At.Before(e.heard.Add(-doubt))
	if back := n > 1 && e.line[n-2].To == m.To || last.From == m.To; late || back && m.At.Before(last.At.Add(doubt)) {
		return
	}
	m.From = last.To
	e.line, e.heard = append(e.line, m), m.At
}

// insert puts a move into a line, oldest first, at its time. One that leads
// where the pointer stood already, or that others have noticed later, is the
// same move: the earliest moment stays.
func insert(line []Move, m Move) []Move {
	at, _ := slices.BinarySearchFunc(line, m.At, func(l Move, t time.Time) int { return l.At.Compare(t) })
	switch {
	case at > 0 && line[at-1].To == m.To:
		return line
	case at < len(line) && line[at].To == m.To:
		line[at].At, line[at].By = m.At, m.By
		line[at].From, line[at].Digest = cmp.Or(line[at].From, m.From), cmp.Or(line[at].Digest, m.Digest)
		return line
	}
	return slices.Insert(line, at, m)
}

// entry returns that of a key, nil if there is no room for it. None is let go for
// another: what is stored of it would be written over when it comes back.
func (b *Book) entry(k Key) *entry {
	if b.entries == nil {
		b.entries = map[Key]*entry{}
	}
	if b.full(k) {
		return nil
	}
	if b.entries[k] == nil {
		b.entries[k] = &entry{}
	}
	return b.entries[k]
}

// Full reports whether there is no room for a pointer.
func (b *Book) Full(k Key) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.full(k)
}

func (b *Book) full(k Key) bool { return b.entries[k] == nil && len(b.entries) >= maxKeys }
