package activator

import (
	"errors"
	"math"
	"sync"
	"time"

	"github.com/pilotlight-dev/pilotlight/internal/demandpb"
	"github.com/pilotlight-dev/pilotlight/internal/trigger"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
	"github.com/pilotlight-dev/pilotlight/warmup/activator/affinity"
	"github.com/pilotlight-dev/pilotlight/warmup/activator/line"
)

// believeFor is how long the scaler's word about a start counts after it was
// last heard: it repeats itself every second.
const believeFor = 15 * time.Second

// A pool is the line in front of one target and the places behind it.
type pool struct {
	ref      workload.Ref
	act      *Activator
	metadata map[string]string // as last configured; guarded by the activator's lock
	stale    bool              // the present metadata cannot be read; guarded likewise
	absent   time.Time         // since when the Source has not listed it; the same

	mu      sync.Mutex
	trigger trigger.Trigger
	limit   int // requests on one pod at a time
	ready   []*backend
	turn    int // where the search for the least busy pod begins
	line    line.Line[*waiter]
	bytes   int64                 // of the waiting requests
	start   *demandpb.TargetState // what the scaler last said
	heard   time.Time             // when
	closed  error                 // why nobody may wait any more

	inFlight            uint64
	arrivals, completed uint64 // without tunnels (count)
	service             time.Duration
}

// A waiter is a request in line.
type waiter struct {
	place   chan *backend // receives exactly one backend, or is closed with err set
	err     error
	since   time.Time
	bytes   int64
	session uint64
	hasKey  bool
}

func newPool(ref workload.Ref, a *Activator) *pool { return &pool{ref: ref, act: a} }

func (p *pool) configure(t trigger.Trigger) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trigger, p.limit = t, max(int(math.Ceil(t.TargetRequests)), 1)
}

func (p *pool) settings() trigger.Trigger {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.trigger
}

// update replaces the set of Ready pods and returns those that left. Requests
// on a pod that left go on.
func (p *pool) update(pods []workload.Pod) (left []*backend) {
	p.absent = time.Time{}
	p.mu.Lock()
	defer p.mu.Unlock()
	known := make(map[string]*backend, len(p.ready))
	for _, b := range p.ready {
		known[b.id] = b
	}
	ready := make([]*backend, 0, len(pods))
	for _, pod := range pods {
		if !pod.Ready() {
			continue
		}
		id, _ := identity(p.trigger, pod)
		b := known[id]
		if b == nil {
			b = p.act.newBackend(p.trigger, pod)
		}
		delete(known, id)
		ready = append(ready, b)
	}
	for _, b := range known {
		b.gone.Store(true)
		left = append(left, b)
	}
	p.ready = ready
	p.serve()
	return left
}

// missing says how long the Source has not listed the target, from now on.
func (p *pool) missing(now time.Time) time.Duration {
	if p.absent.IsZero() {
		p.absent = now
	}
	return now.Sub(p.absent)
}

// join gives a place at once, or a place in line. A request that has been in
// line before, and was refused by a pod, gets its old place back.
func (p *pool) join(way *passage) (*backend, *waiter, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	again := way.counted
	now := time.Now()
	w := &waiter{since: now, bytes: way.payload.size, session: way.session, hasKey: way.hasKey}
	if p.line.Len() == 0 && !errors.Is(p.closed, errGone) {
		if b := p.pick(now, w); b != nil {
			p.count(way)
			p.take(b)
			return b, nil, nil
		}
	}
	if err := p.mayWait(way, now, again); err != nil {
		return nil, nil, err
	}
	p.count(way)
	w.place = make(chan *backend, 1)
	if way.item == nil {
		way.item = p.line.Push(w, way.began, way.priority)
	} else {
		w.since = way.item.Value.since
		way.item.Value = w
		p.line.Return(way.item)
	}
	p.bytes += w.bytes
	p.serve()
	if p.line.Len() == 1 {
		p.act.signal()
	}
	return nil, w, nil
}

// count counts a request as an arrival, once, unless it wants a tunnel. The
// scaler takes arrivals times the mean time from dispatch to done for the
// requests that run at once, and a tunnel is open for as long as its client
// likes: one session of an hour among fifty requests would make that mean a
// minute and more, and order replicas for all of them. What tunnels need shows
// in what is held, in flight, and runs in the engines.
func (p *pool) count(way *passage) {
	if way.counted {
		return
	}
	way.counted = true
	if !way.upgrades {
		p.arrivals++
	}
}

// mayWait says why a request may not get in line, and counts it if it may.
func (p *pool) mayWait(way *passage, now time.Time, again bool) error {
	size := way.payload.size
	switch {
	case p.closed != nil:
		return p.closed
	case !way.wakes:
		return errAsleep
	case p.isFailed(now):
		return p.failure(errFailed)
	case !again && (p.line.Len() >= p.act.opts.MaxHeld || p.bytes+size > p.act.opts.MaxBytes):
		return errFull
	case !p.act.held.enter(size, again):
		return errFullTotal
	}
	return nil
}

// room says why a request of that many bytes would not be served if it were
// here already; nil when it would, or could wait.
func (p *pool) room(size int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	switch {
	case p.line.Len() == 0 && p.pick(now, &waiter{}) != nil:
		return nil
	case p.isFailed(now):
		return p.failure(errFailed)
	case p.line.Len() >= p.act.opts.MaxHeld || p.bytes+size > p.act.opts.MaxBytes:
		return errFull
	}
	return p.closed
}

// leave takes a waiter out of line; a place that it was given meanwhile goes
// to the next.
func (p *pool) leave(w *waiter, way *passage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.line.Remove(way.item) {
		p.left(w)
		return
	}
	if b, ok := <-w.place; ok {
		p.free(b)
	}
}

// left counts one out of line.
func (p *pool) left(w *waiter) {
	p.bytes -= w.bytes
	p.act.held.leave(w.bytes)
}

// serve gives places to the head of the line while there are any.
func (p *pool) serve() {
	now := time.Now()
	for head := p.line.Peek(); head != nil; head = p.line.Peek() {
		w := head.Value
		b := p.pick(now, w)
		if b == nil {
			return
		}
		p.line.Pop()
		p.left(w)
		p.take(b)
		w.place <- b
	}
}

func (p *pool) take(b *backend) {
	b.inFlight++
	p.inFlight++
}

// pick returns the pod for a request, or nil: the home of its conversation, or
// the least busy one with a free place.
func (p *pool) pick(now time.Time, w *waiter) *backend {
	if len(p.ready) == 0 {
		return nil
	}
	if w.hasKey {
		pods := make([]candidate, len(p.ready))
		for i, b := range p.ready {
			pods[i] = candidate{b, p.mayTake(b, now)}
		}
		if i := affinity.Pick(w.session, pods, p.act.opts.Affinity.Factor); i >= 0 {
			return p.ready[i]
		}
	}
	p.turn++
	var best *backend
	for i := range p.ready {
		b := p.ready[(i+p.turn)%len(p.ready)]
		if p.mayTake(b, now) && (best == nil || b.inFlight < best.inFlight) {
			best = b
		}
	}
	return best
}

func (p *pool) mayTake(b *backend, now time.Time) bool {
	return b.inFlight < p.limit && !now.Before(b.shunned)
}

// A candidate is a pod as package affinity sees it.
type candidate struct {
	*backend
	free bool
}

// ID implements affinity.Pod.
func (c candidate) ID() uint64 { return c.hash }

// Load implements affinity.Pod.
func (c candidate) Load() int { return c.inFlight }

// Free implements affinity.Pod.
func (c candidate) Free() bool { return c.free }

func (p *pool) free(b *backend) {
	b.inFlight--
	p.inFlight--
	p.serve()
}

// release gives a place back after a request that took d from dispatch to done.
// What was no arrival (count) is no completion either.
func (p *pool) release(way *passage, b *backend, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !way.upgrades {
		p.completed++
		p.service += d
	}
	b.refusals = 0
	p.free(b)
}

// giveUp gives a place back that was not used.
func (p *pool) giveUp(b *backend) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free(b)
}

// refused gives a place back whose pod could not be dialled, and lets the pod
// rest for a moment.
func (p *pool) refused(b *backend) {
	p.mu.Lock()
	rest := min(shunFor<<min(b.refusals, 10), shunMost)
	b.refusals++
	p.mu.Unlock()
	p.rest(b, rest)
}

// rest gives a place back whose pod gets nothing for a while.
func (p *pool) rest(b *backend, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b.shunned = time.Now().Add(d)
	time.AfterFunc(d, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.serve()
	})
	p.free(b)
}
