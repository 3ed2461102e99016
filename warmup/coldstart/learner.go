package coldstart

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// templatesKept is how many templates of a target are remembered: the present
// one and two to go back to.
const templatesKept = 3

// A Learner learns from pods. It is safe for concurrent use. The zero value is
// ready; Restore adds what a Store had.
type Learner struct {
	// OnStart, if set, is told of every new start. Another trigger of the same
	// ScaledObject that sees the same pod is not a new start.
	OnStart func(Key, Start)

	mu      sync.RWMutex // most looks find nothing new, and only read
	entries map[Key]*known
	objects map[object][]Key // the entries' keys by ScaledObject, one for each trigger
}

// object is a ScaledObject.
type object struct{ namespace, name string }

func (k Key) object() object { return object{k.Namespace, k.Name} }

type known struct {
	Entry
	pods     map[string]bool // those of the last look, by id: true once counted, false while a start is awaited; Entry.Counted is made of it
	said     atomic.Int64    // what the user says of a start, ns; 0 until Quantiles was told
	looked   atomic.Int64    // when Observe was last called, Unix seconds
	learned  time.Time       // when a start was last counted, by this process
	since    []counted       // starts counted so far, the last few, until restored
	restored bool            // what the Store had of this key is in here
	dirty    bool
}

// counted is a start with the pod whose it was.
type counted struct {
	pod, template string
	start         Start
}

// Observe counts the pods that have become Ready since the last look. Pods that
// were Ready when they were seen for the first time count too, if another trigger
// has not counted them and their way there is no longer than is plausible: of one
// that has lost and regained readiness the cluster knows only the last time (see
// meet). A pod that does so under our eyes keeps its first start.
func (l *Learner) Observe(k Key, pods []Pod, now time.Time) {
	for _, s := range l.observe(k, pods, now) {
		if l.OnStart != nil {
			l.OnStart(k, s)
		}
	}
}

// observe returns the starts that nobody has counted yet.
func (l *Learner) observe(k Key, pods []Pod, now time.Time) []Start {
	if l.nothingNew(k, pods, now) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.known(k)
	e.looked.Store(now.Unix())
	present := make(map[string]bool, len(pods))
	var ready []Pod
	for _, p := range pods {
		id := p.id()
		present[id] = true
		if _, met := e.pods[id]; !met {
			l.meet(k, p, now)
		}
		if done, met := e.pods[id]; met && !done && p.ready() {
			ready = append(ready, p)
		}
	}
	slices.SortStableFunc(ready, func(a, b Pod) int { return a.Ready.Compare(b.Ready) })
	var fresh []Start
	for _, p := range ready {
		c := counted{p.id(), p.Template, p.start()}
		e.pods[c.pod] = true
		switch other := l.countedBy(k, c.pod); {
		case other != nil:
			e.takeOver(other)
		case c.start.Total() > Longest:
			continue
		default:
			e.add(c)
			e.learned = now
			fresh = append(fresh, c.start)
		}
		e.Updated, e.dirty = now, true
	}
	maps.DeleteFunc(e.pods, func(id string, _ bool) bool { return !present[id] })
	return fresh
}

// nothingNew reports whether pods are those of the look before, and none of them
// has become Ready since.
func (l *Learner) nothingNew(k Key, pods []Pod, now time.Time) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	e := l.entries[k]
	if e == nil {
		return false
	}
	e.looked.Store(now.Unix())
	for _, p := range pods {
		if done, met := e.pods[p.id()]; !met || !done && p.ready() {
			return false
		}
	}
	return len(pods) == len(e.pods)
}

// add puts a start at the end of its template's, and that at the end of the
// templates.
func (e *known) add(c counted) {
	t := Template{Hash: c.template}
	if i := e.index(c.template); i >= 0 {
		t = e.Templates[i]
	}
	t.Starts = append(t.Starts, c.start)
	t.Starts = t.Starts[max(len(t.Starts)-Kept, 0):]
	e.put(t)
	if !e.restored {
		e.since = append(e.since, c)
		e.since = e.since[max(len(e.since)-templatesKept*Kept, 0):]
	}
}

// Quantiles answers for the next start of a template: from its own starts once
// there are Enough, else from those of the latest template that has, else from
// those of the ScaledObject's other triggers, else from what the user said. An
// empty template means the latest.
func (l *Learner) Quantiles(k Key, template string, said time.Duration) Quantiles {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if e := l.entries[k]; e != nil {
		e.said.Store(int64(bounded(said)))
	}
	if q, ok := l.believed(k, template); ok {
		return q
	}
	return seeded(said)
}

// Learned is what Quantiles answers for the latest template, false as long as
// that is only what the user said.
func (l *Learner) Learned(k Key) (Quantiles, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.believed(k, "")
}

// believed answers from what was learned.
func (l *Learner) believed(k Key, template string) (Quantiles, bool) {
	if e := l.entries[k]; e != nil {
		if t := e.believed(template); t != nil {
			return t.quantiles(), true
		}
	}
	return l.learnedByAnother(k, template)
}

// learnedByAnother answers from the trigger of the same ScaledObject that was
// updated last.
func (l *Learner) learnedByAnother(k Key, template string) (Quantiles, bool) {
	var found *Template
	var from Key
	for _, other := range l.objects[k.object()] {
		if other == k {
			continue
		}
		e := l.entries[other]
		t := e.believed(template)
		if t == nil {
			continue
		}
		if found == nil || cmp.Or(e.Updated.Compare(l.entries[from].Updated), strings.Compare(other.Trigger, from.Trigger)) > 0 {
			found, from = t, other
		}
	}
	if found == nil {
		return Quantiles{}, false
	}
	return found.quantiles(), true
}

// believed returns the template if it has Enough starts, else the latest that
// has, else nil.
func (e *known) believed(hash string) *Template {
	var latest *Template
	for i := range e.Templates {
		t := &e.Templates[i]
		if len(t.Starts) < Enough {
			continue
		}
		if latest = t; t.Hash == hash && hash != "" {
			return t
		}
	}
	return latest
}

func (t Template) quantiles() Quantiles {
	totals := make([]time.Duration, len(t.Starts))
	for i, s := range t.Starts {
		totals[i] = s.Total()
	}
	return quantiles(totals)
}

// Keep remembers the caller's own state of a key, as JSON, which must not be
// changed afterwards.
func (l *Learner) Keep(k Key, state json.RawMessage, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.known(k); !bytes.Equal(e.State, state) {
		e.State, e.Updated, e.dirty = state, now, true
	}
}

// Kept returns the caller's state, nil if there is none.
func (l *Learner) Kept(k Key) json.RawMessage {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if e := l.entries[k]; e != nil {
		return e.State
	}
	return nil
}

// Restore takes in what a Store had, once for each key. What has been learned
// in the meantime is newer and stays: its state, and its starts, of which those
// that the Store had already do not count again.
func (l *Learner) Restore(entries map[Key]Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	oldestFirst := slices.SortedFunc(maps.Keys(entries), func(a, b Key) int { return entries[a].Updated.Compare(entries[b].Updated) })
	for _, k := range oldestFirst { // so that the others remain if these are too many
		if e := l.known(k); !e.restored {
			e.restore(entries[k])
		}
	}
}

func (e *known) restore(stored Entry) {
	newer, since := e.Entry, e.since
	e.Entry, e.since, e.restored = stored.clone(), nil, true
	if newer.State != nil {
		e.State = newer.State
	}
	if newer.Updated.After(e.Updated) {
		e.Updated = newer.Updated
	}
	for _, c := range since {
		if !slices.Contains(stored.Counted, c.pod) {
			e.add(c)
		}
	}
	for _, id := range stored.Counted {
		e.pods[id] = true
	}
}

func (e Entry) clone() Entry {
	e.Templates = slices.Clone(e.Templates)
	for i := range e.Templates {
		e.Templates[i].Starts = slices.Clone(e.Templates[i].Starts)
	}
	return e
}

// changed returns what has changed since the last call, and forgets that it
// has; failed takes that back. It is called when all of the Store has been read:
// what is returned replaces what the Store has of the same keys.
func (l *Learner) changed() map[Key]Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[Key]Entry{}
	for k, e := range l.entries {
		if e.dirty {
			e.Counted = e.countedPods()
			out[k], e.dirty = e.clone(), false
			e.since, e.restored = nil, true
		}
	}
	return out
}

// countedPods are the ids of the pods that were counted, in order.
func (e *known) countedPods() []string {
	var out []string
	for id, done := range e.pods {
		if done {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

func (l *Learner) failed(keys map[Key]Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range keys {
		if e := l.entries[k]; e != nil {
			e.dirty = true
		}
	}
}
