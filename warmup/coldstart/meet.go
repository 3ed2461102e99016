package coldstart

import (
	"slices"
	"time"
)

const (
	// implausible is how many times the usual a pod's way to Ready may have
	// taken for it to be believed when only its end was seen. A new node and a
	// slow store may make a start ten times as long; readiness that was lost for
	// a moment comes back hours after the pod's birth, which is a hundred times.
	implausible = 10

	// leastUsual is what a start may always take: what the triggers say unless
	// they say something else. A small model waits for its node as long as a
	// large one.
	leastUsual = 2 * time.Minute
)

// meet takes note of a pod that k has not seen before: its start is awaited,
// unless it may have been Ready before. All that a cluster says of a pod is when
// it became Ready last.
//
// What is too long is judged at the next look if Quantiles has not told yet what
// the user says of k: the first look comes before that.
func (l *Learner) meet(k Key, p Pod, now time.Time) {
	e, id := l.entries[k], p.id()
	switch {
	case p.Lost, !p.Ready.IsZero() && !p.ready():
		e.pods[id] = true // its start is over, or its times make no sense
	case l.metByAnother(k, id), p.took(now) <= l.plausible(k, p.Template):
		e.pods[id] = false
	case e.said.Load() != 0:
		e.pods[id] = true
	}
}

// plausible bounds the starts that are believed although only their end was seen.
//
//	coldStart 90 s, nothing learned -> 20 min; P95 learned 150 s -> 25 min
func (l *Learner) plausible(k Key, template string) time.Duration {
	usual := max(leastUsual, time.Duration(l.entries[k].said.Load()))
	if q, ok := l.believed(k, template); ok {
		usual = max(usual, q.P95)
	}
	return implausible * usual
}

// metByAnother reports whether another trigger of the same ScaledObject has seen
// a pod before k.
func (l *Learner) metByAnother(k Key, pod string) bool {
	for _, other := range l.objects[k.object()] {
		if _, met := l.entries[other].pods[pod]; met && other != k {
			return true
		}
	}
	return false
}

// countedBy returns what another trigger of the same ScaledObject that has
// counted a pod knows, of several the one that was updated last; nil if none has.
func (l *Learner) countedBy(k Key, pod string) *known {
	var found *known
	for _, other := range l.objects[k.object()] {
		e := l.entries[other]
		if other != k && e.pods[pod] && (found == nil || e.Updated.After(found.Updated)) {
			found = e
		}
	}
	return found
}

// takeOver makes the starts that another trigger of the same ScaledObject has
// learned e's as well, if that is no older: the same pods have started. A template
// of which e knows more stays as it is.
func (e *known) takeOver(other *known) {
	if other.learned.Before(e.learned) {
		return
	}
	e.learned = other.learned
	for _, t := range other.clone().Templates {
		if i := e.index(t.Hash); i < 0 || len(e.Templates[i].Starts) <= len(t.Starts) {
			e.put(t)
		}
	}
}

// index is where the template with that hash is, -1 if nowhere.
func (e *known) index(hash string) int {
	return slices.IndexFunc(e.Templates, func(t Template) bool { return t.Hash == hash })
}

// put makes t the last template, in place of the one with its hash.
func (e *known) put(t Template) {
	if i := e.index(t.Hash); i >= 0 {
		e.Templates = slices.Delete(e.Templates, i, i+1)
	}
	e.Templates = append(e.Templates, t)
	e.Templates = e.Templates[max(len(e.Templates)-templatesKept, 0):]
}
