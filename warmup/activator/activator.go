package activator

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pilotlight-dev/pilotlight/internal/demandpb"
	"github.com/pilotlight-dev/pilotlight/internal/trigger"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

// quickRefresh is the time between looks at the Source while something is
// held: it adds to every wait. A Source that takes long is looked at less
// often, a tenth of the time at most.
const quickRefresh = 25 * time.Millisecond

// Activator is an http.Handler for the OpenAI API.
type Activator struct {
	opts    Options
	proxy   *httputil.ReverseProxy
	metrics *metrics
	edge    chan struct{} // a target went from nothing held to something: for the reporter
	hurry   chan struct{} // the same for Run
	listed  chan struct{} // closed when the Source has answered for the first time
	active  atomic.Int64  // requests being served
	memory  budget        // of all bodies
	held    heldTotals    // of all pools

	leaving  atomic.Bool // each answer is its connection's last
	draining atomic.Bool
	routes   atomic.Pointer[routes]
	reported atomic.Int64 // when the scaler last answered, in nanoseconds since 1970; 0 = never

	mu     sync.Mutex
	cut    []context.CancelCauseFunc // of the servers
	pools  map[workload.Ref]*pool
	faults string // of the targets that are not routed to, as last logged
}

// New returns an Activator that knows no target until Run looks for some. It
// fails when the Registerer refuses its metrics.
func New(opts Options) (*Activator, error) {
	a := &Activator{
		opts: opts.withDefaults(), edge: make(chan struct{}, 1), hurry: make(chan struct{}, 1), listed: make(chan struct{}),
		pools: map[workload.Ref]*pool{},
	}
	a.memory = budget{total: a.opts.MaxTotal}
	a.held = heldTotals{maxCount: int64(a.opts.MaxHeldTotal), maxBytes: a.opts.MaxTotal / 2}
	a.routes.Store(&routes{})
	a.proxy = a.newProxy()
	var err error
	a.metrics, err = newMetrics(a, opts.Registerer)
	return a, err
}

// Run keeps the targets up to date until ctx ends. A Source that fails leaves
// the last targets standing.
func (a *Activator) Run(ctx context.Context) {
	failing := false
	for {
		began := time.Now()
		err := a.refresh(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			a.opts.Logger.Warn("keeping the last known targets", "error", err)
		}
		failing = err != nil
		if !a.rest(ctx, began, time.Since(began)) {
			return
		}
	}
}

// rest waits for the next look at the Source after one that began at a moment
// and took that long; false when ctx has ended. The first request to be held
// cuts the rest short.
func (a *Activator) rest(ctx context.Context, began time.Time, took time.Duration) bool {
	quick := min(a.opts.Refresh, max(quickRefresh, 10*took))
	for {
		every := a.opts.Refresh
		if a.held.count.Load() > 0 {
			every = quick
		}
		timer := time.NewTimer(time.Until(began.Add(every)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
			return true
		case <-a.hurry:
			timer.Stop()
		}
	}
}

// refresh looks at the Source once.
func (a *Activator) refresh(ctx context.Context) error {
	all, err := a.opts.Source.All(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	a.mu.Lock()
	var left []*backend
	seen := map[workload.Ref]bool{}
	var faults []string
	changed := false
	for _, w := range all {
		p, isNew, err := a.poolFor(w)
		switch {
		case err != nil && p == nil:
			faults = append(faults, fmt.Sprintf("%s: not routed to: %v", w.Ref, err))
			continue
		case err != nil:
			faults = append(faults, fmt.Sprintf("%s: served on by its former trigger: %v", w.Ref, err))
		}
		changed = changed || isNew
		seen[w.Ref] = true
		left = append(left, p.update(w.Pods)...)
	}
	for ref, p := range a.pools {
		if !seen[ref] && p.missing(now) > a.opts.Linger {
			left = append(left, p.close()...)
			delete(a.pools, ref)
			a.metrics.forget(ref)
			changed = true
		}
	}
	if changed {
		a.routes.Store(newRoutes(slices.Collect(maps.Values(a.pools))))
	}
	text := strings.Join(append(faults, a.routes.Load().faults...), "; ")
	fresh := text != a.faults
	a.faults = text
	a.mu.Unlock()

	for _, b := range left {
		b.transport.CloseIdleConnections()
	}
	if fresh && text != "" {
		a.opts.Logger.Warn("faults in what is routed to", "targets", text)
	}
	select {
	case <-a.listed:
	default:
		close(a.listed) // only refresh does, and never twice at a time
	}
	return nil
}

// poolFor returns the pool of a workload with its trigger up to date, and
// whether what it is routed by has changed. With a trigger that cannot be read the
// former one stands, if there was one: an edit with a slip in it does not take away
// a model that is being served. Its names are anybody's who claims them with a
// trigger that can be read (newRoutes). a.mu is held.
func (a *Activator) poolFor(w workload.Workload) (p *pool, changed bool, err error) {
	p = a.pools[w.Ref]
	if p != nil && maps.Equal(p.metadata, w.Metadata) {
		changed, p.stale = p.stale, false
		return p, changed, nil
	}
	t, err := trigger.Parse(w.Metadata)
	switch {
	case err != nil && (p == nil || len(w.Metadata) == 0):
		return nil, false, err
	case err != nil:
		changed, p.stale = !p.stale, true
		return p, changed, err
	}
	if p == nil {
		p = newPool(w.Ref, a)
		a.pools[w.Ref] = p
	}
	p.metadata, p.stale = maps.Clone(w.Metadata), false
	p.configure(t)
	return p, true, nil
}

// Leave makes each answer from now on ask its client to connect anew, so that
// connections move elsewhere while requests are still accepted. No connection
// is closed under a client that is about to use it.
func (a *Activator) Leave() { a.leaving.Store(true) }

// Drain makes the requests with a place go on and the others wait for at most
// as long as given; then they are answered that the client should come again.
// From then on nobody is held.
func (a *Activator) Drain(ctx context.Context, wait time.Duration) {
	a.draining.Store(true)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for waiting := a.held.count.Load() > 0; waiting; waiting = waiting && a.held.count.Load() > 0 {
		select {
		case <-tick.C:
		case <-timer.C:
			waiting = false
		case <-ctx.Done():
			waiting = false
		}
	}
	for _, p := range a.sorted() {
		p.drain()
	}
}

// Cut ends every request that is being served by a Server: one whose client
// has seen nothing yet is answered that it should come again, any other answer
// breaks off. It does not wait for that; Idle does.
func (a *Activator) Cut() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, cut := range a.cut {
		cut(errCut)
	}
}

// Idle returns when no request is being served any more, or when ctx ends. A
// server's Shutdown does not wait for connections that were upgraded.
func (a *Activator) Idle(ctx context.Context) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for a.active.Load() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Listed reports whether the targets are known: before that no request can be
// told from one for a model that does not exist.
func (a *Activator) Listed() bool {
	select {
	case <-a.listed:
		return true
	default:
		return false
	}
}

// signal wakes the reporter, and Run.
func (a *Activator) signal() {
	for _, c := range []chan struct{}{a.edge, a.hurry} {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// all returns the pools, sorted by name.
func (a *Activator) sorted() []*pool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.SortedFunc(maps.Values(a.pools), func(x, y *pool) int {
		return cmp.Or(cmp.Compare(x.ref.Namespace, y.ref.Namespace), cmp.Compare(x.ref.Name, y.ref.Name))
	})
}

// Snapshot counts every target's requests.
func (a *Activator) Snapshot() []*demandpb.TargetDemand {
	all := a.sorted()
	out := make([]*demandpb.TargetDemand, 0, len(all))
	for _, p := range all {
		out = append(out, p.demand())
	}
	return out
}

// Learn takes in what the scaler says of the targets: a start that failed for
// a reason that waiting cannot mend ends the wait.
func (a *Activator) Learn(states []*demandpb.TargetState) {
	a.reported.Store(time.Now().UnixNano())
	for _, st := range states {
		a.mu.Lock()
		p := a.pools[workload.Ref{Namespace: st.GetNamespace(), Name: st.GetScaledObject()}]
		a.mu.Unlock()
		if p != nil {
			p.learn(st)
		}
	}
}
