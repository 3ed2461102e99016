package moves

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pilotlight-dev/pilotlight/warmup/coldstart"
)

// Trigger marks the entries of a Book in a coldstart.Store. Those of triggers
// are named by hexadecimal digits, so that nothing else has this name. Where a
// Store has no room, they leave before what was learned of starts.
const Trigger = coldstart.Spare

// Bounds of what is kept, in bytes: of a version's name, of namespace/pod, of
// a reference, and of a digest.
const (
	maxVersion = 256
	maxBy      = 320
	maxRef     = 2048
	maxDigest  = 64
)

// memory is the State of an entry.
type memory struct {
	Moves []Move `json:"moves"` // newest first
}

var _ coldstart.Memory = (*Book)(nil)

// Owns implements coldstart.Memory.
func (*Book) Owns(k coldstart.Key) bool { return k.Trigger == Trigger }

// Restore implements coldstart.Memory. If the Book has no room for all, it takes
// those that have changed last.
func (b *Book) Restore(entries map[coldstart.Key]coldstart.Entry) (damaged []error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	latest := slices.SortedFunc(maps.Keys(entries), func(x, y coldstart.Key) int {
		return cmp.Or(entries[y].Updated.Compare(entries[x].Updated), strings.Compare(x.String(), y.String()))
	})
	for _, k := range latest {
		stored := entries[k]
		moves, err := decode(k, stored)
		if err != nil {
			damaged = append(damaged, err)
			continue
		}
		e := b.entry(Key{k.Namespace, k.Name})
		if e == nil || e.restored {
			continue
		}
		newer := e.line
		slices.Reverse(moves)
		e.line, e.restored = moves, true
		for _, m := range newer {
			e.line = insert(e.line, m)
		}
		e.line = slices.Clone(e.line[max(0, len(e.line)-Kept):])
		if e.updated.IsZero() {
			e.updated = stored.Updated
		}
	}
	return damaged
}

// Changed implements coldstart.Memory.
func (b *Book) Changed() map[coldstart.Key]coldstart.Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := map[coldstart.Key]coldstart.Entry{}
	for k, e := range b.entries {
		if !e.dirty {
			continue
		}
		newest := slices.Clone(e.line)
		slices.Reverse(newest)
		if state, err := json.Marshal(memory{newest}); err == nil { // it has plain fields only
			out[coldstart.Key{Namespace: k.Namespace, Name: k.Ref, Trigger: Trigger}] = coldstart.Entry{State: state, Updated: e.updated}
		}
		e.dirty = false
	}
	return out
}

// Failed implements coldstart.Memory.
func (b *Book) Failed(entries map[coldstart.Key]coldstart.Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k := range entries {
		if e := b.entries[Key{k.Namespace, k.Name}]; b.Owns(k) && e != nil {
			e.dirty = true
		}
	}
}

// A List is what the pods of one namespace have seen of a reference.
type List struct {
	Namespace string
	Moves     []Move // newest first, at least one
}

// Read returns what a Store holds about a reference, a list for each namespace
// that has pods of it, by name; of one namespace only, if it is not "". Lists
// that make no sense are left out and reported.
func Read(entries map[coldstart.Key]coldstart.Entry, ref, namespace string) (lists []List, damaged []error) {
	for k, e := range entries {
		if k.Trigger != Trigger || k.Name != ref || namespace != "" && k.Namespace != namespace {
			continue
		}
		moves, err := decode(k, e)
		if err != nil {
			damaged = append(damaged, err)
			continue
		}
		lists = append(lists, List{k.Namespace, moves})
	}
	slices.SortFunc(lists, func(a, b List) int { return strings.Compare(a.Namespace, b.Namespace) })
	return lists, damaged
}

// decode returns what an entry holds, newest first, at least one.
func decode(k coldstart.Key, e coldstart.Entry) ([]Move, error) {
	wrong := func(format string, args ...any) ([]Move, error) {
		return nil, fmt.Errorf("moves of %s in namespace %s: %w: %w", k.Name, k.Namespace, coldstart.ErrEntry, fmt.Errorf(format, args...))
	}
	var m memory
	if err := json.Unmarshal(e.State, &m); err != nil {
		return wrong("%w", err)
	}
	if len(m.Moves) == 0 || len(m.Moves) > Kept {
		return wrong("%d moves, 1 to %d are kept", len(m.Moves), Kept)
	}
	for i, one := range m.Moves {
		if !one.sane() {
			return wrong("move %d is none", i+1)
		}
		if !strings.HasPrefix(one.By, k.Namespace+"/") {
			return wrong("move %d was noticed in another namespace", i+1)
		}
		if i > 0 && one.At.After(m.Moves[i-1].At) {
			return wrong("move %d is later than the one after it", i+1)
		}
	}
	return m.Moves, nil
}

// sane reports whether a move can have been seen.
func (m Move) sane() bool {
	return printable(m.To, 1, maxVersion) && printable(m.From, 0, maxVersion) && printable(m.By, 1, maxBy) && printable(m.Digest, 0, maxDigest) &&
		!m.At.IsZero() && m.At.After(time.Unix(0, 0)) && m.At.Year() <= 9999
}

func printable(s string, least, most int) bool {
	return len(s) >= least && len(s) <= most && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}
