package registry

import (
	"slices"
	"time"
)

// skew is how far two machines' clocks may be apart before one move, recorded
// by one and seen by another, is taken for two.
const skew = time.Minute

// Settle decides about entries that were written before a move and never
// completed, by where the pointer stood afterwards: at current, or where the
// next later move that did happen says that it came from. A pending entry whose
// To is that place (and whose From is not) did happen and is returned as
// StateDone; any other one stays StatePending, for a move that never happened,
// is being made this very moment, or was overtaken. The input is not changed.
//
//	history (newest first)         current  returned
//	7->6 pending                   6        7->6 done      the crash came after the move
//	7->6 pending                   7        7->6 pending   it came before it
//	7->6 pending                   9        7->6 pending   somebody moved to 9 by hand
//	6->5 done, 7->6 pending        5        both done      6 was left, so it was reached
//	7->5 done, 7->6 pending        5        6 pending      7 was left, so 6 never was
//	7->5 pending, 7->6 pending     6        6 done         two at once: only 6 came
func Settle(history []Entry, current string) []Entry {
	out := slices.Clone(history)
	after := current
	for i := range out {
		if e := &out[i]; e.State == StatePending && e.To == after && e.From != e.To {
			e.State = StateDone
		}
		if out[i].State == StateDone {
			after = out[i].From // empty when its writer did not know: no evidence
		}
	}
	return out
}

// Merge joins the recorded history (newest first, as Position.History) with
// moves that agents and the scaler have seen happen, and returns all of them,
// newest first. An observation reports a place (To) and when it was noticed,
// which is up to a poll later than the move and by another clock. Rules:
//
//   - Recorded entries all stay, in their order, which is the order in which they
//     were written: clocks of laptops do not count.
//   - An observation of the place that the latest recorded move before it led
//     to, or of one that was recorded within a minute of it, is that move. If the
//     entry was pending, it is done: it was seen.
//   - An observation of the place where the pointer already stood is no move:
//     of many that saw the same, the earliest stays.
//   - What remains is a move by hand. It enters the timeline at its time, as
//     ActionSeen and StateDone.
//
// Example, with a record of 5->6 at 10:00 and of 6->7 at 11:00: seen "6" at
// 10:00:30 is the record; seen "7" at 10:59:40 is too (a clock is late); seen
// "4" at 12:00 and at 12:05 is one move by hand, 7->4 at 12:00.
func Merge(recorded []Entry, seen ...[]Entry) []Entry {
	line := slices.Clone(recorded)
	slices.Reverse(line) // oldest first
	observed := slices.Concat(seen...)
	slices.SortStableFunc(observed, func(a, b Entry) int { return a.At.Compare(b.At) })
	for _, s := range observed {
		if s.To == "" || s.At.IsZero() {
			continue
		}
		at := insertion(line, s.At)
		if confirms(line, at, s) {
			continue
		}
		if from := standing(line[:at]); s.From == "" {
			s.From = from
		}
		s.Action, s.State = ActionSeen, StateDone
		line = slices.Insert(line, at, s)
	}
	slices.Reverse(line)
	return line
}

// insertion is where an observation belongs in a line, oldest first: behind
// everything that came before it, in an order that never goes back in time.
func insertion(line []Entry, at time.Time) int {
	var latest time.Time
	for i, e := range line {
		if e.At.After(latest) {
			latest = e.At
		}
		if latest.After(at) {
			return i
		}
	}
	return len(line)
}

// confirms reports whether an observation tells nothing new, and completes the
// pending entry that it proves. at is its insertion.
func confirms(line []Entry, at int, s Entry) bool {
	for i := len(line) - 1; i >= 0; i-- {
		apart := line[i].At.Sub(s.At).Abs()
		if line[i].To == s.To && (i == at-1 || apart <= skew) {
			line[i].State = StateDone
			return true
		}
	}
	return standing(line[:at]) == s.To
}

// standing is where the pointer stood at the end of a line, oldest first; empty
// when nothing is known.
func standing(line []Entry) string {
	for _, e := range slices.Backward(line) {
		if e.State == StateDone {
			return e.To
		}
	}
	return ""
}

// Previous says which version served before current, for a rollback without a
// target. history is newest first, recorded or merged. Only moves that happened
// count: pending entries are settled by current first, and those that remain
// pending are passed over, because nobody knows that their version ever served.
//
//	history (newest first)            current  answer
//	6->7 done, 5->6 done              7        6   what the last move left
//	7->6 done, 6->7 done              6        7   a rollback can be rolled back
//	7->6 pending, 6->7 done           7        6   the pending move never happened
//	7->6 pending, 6->7 done           6        7   it did, unconfirmed
//	6->7 done                         9        7   by hand to 9: the last known place
//	"" -> 7 init                      7        none
//	6->6 done, 5->6 done              6        5   no version precedes itself
//	(nothing)                         7        none
func Previous(history []Entry, current string) (version string, ok bool) {
	for _, e := range Settle(history, current) {
		if e.State != StateDone {
			continue
		}
		if e.To != current && e.To != "" {
			return e.To, true
		}
		if e.From != current && e.From != "" {
			return e.From, true
		}
	}
	return "", false
}
