// Package demand gathers what waits outside of the pods: the requests that
// activators hold while nothing runs, and those they have sent on.
//
// Every activator replica reports its whole view once a second over one gRPC
// stream (package demandpb). A Tracker adds the replicas up per ScaledObject.
// A replica that falls silent is not forgotten at once, and when all of them
// are silent the demand is unknown, which is not zero.
package demand

import (
	"context"
	"sync"
	"time"

	"github.com/pilotlight-dev/pilotlight/internal/demandpb"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
	"github.com/pilotlight-dev/pilotlight/scaler/policy"
)

const (
	// silentAfter is how old an activator's last snapshot may be: three
	// missed reports.
	silentAfter = 3 * time.Second

	// keepHeld is how long a silent replica's held requests still count: long
	// enough for a broken connection to be redialled.
	keepHeld = 10 * time.Second

	// keepInFlight is how long a silent replica's streams still count: the
	// replica may be cut off from us while its streams go on.
	keepInFlight = time.Minute
)

// Tracker adds up the reports of all activators. It is safe for concurrent
// use; the zero value is not usable, see NewTracker.
type Tracker struct {
	mu       sync.Mutex
	replicas map[string]*replica
	totals   map[workload.Ref]policy.Traffic
	wakers   map[workload.Ref]map[chan<- struct{}]struct{}
}

type replica struct {
	boot    string
	seq     uint64
	seen    time.Time
	targets map[workload.Ref]*demandpb.TargetDemand
}

// NewTracker returns a Tracker that has heard from nobody.
func NewTracker() *Tracker {
	return &Tracker{replicas: map[string]*replica{}, totals: map[workload.Ref]policy.Traffic{}, wakers: map[workload.Ref]map[chan<- struct{}]struct{}{}}
}

// Report records a snapshot. Targets that go from no request to some are woken
// (see Wake). A snapshot that is older than one already seen of the same boot
// is ignored.
func (t *Tracker) Report(s *demandpb.Snapshot, now time.Time) {
	next := &replica{boot: s.GetBootId(), seq: s.GetSeq(), seen: now, targets: make(map[workload.Ref]*demandpb.TargetDemand, len(s.GetTargets()))}
	for _, d := range s.GetTargets() {
		next.targets[workload.Ref{Namespace: d.GetNamespace(), Name: d.GetScaledObject()}] = d
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	last := t.replicas[s.GetActivatorId()]
	if last != nil && last.boot == next.boot && last.seq >= next.seq {
		return
	}
	t.replicas[s.GetActivatorId()] = next
	t.count(last, next)
	for ref, d := range next.targets {
		if d.GetHeld() > 0 && (last == nil || last.targets[ref].GetHeld() == 0) {
			t.wake(ref)
		}
	}
	for id, r := range t.replicas {
		if now.Sub(r.seen) > keepInFlight {
			delete(t.replicas, id)
		}
	}
}

// Demand returns what all activators together see of ref. It is unknown when
// every activator is silent, or none has ever reported.
func (t *Tracker) Demand(ref workload.Ref, now time.Time) policy.Demand {
	t.mu.Lock()
	defer t.mu.Unlock()
	var d policy.Demand
	for _, r := range t.replicas {
		age := now.Sub(r.seen)
		d.Known = d.Known || age <= silentAfter
		if age <= keepHeld {
			d.Held += float64(r.targets[ref].GetHeld())
		}
		if age <= keepInFlight {
			d.InFlight += float64(r.targets[ref].GetInFlight())
		}
	}
	return d
}

// freshWithin bounds the wait for a newer snapshot: activators report changes
// within a tenth of a second, and one that has not changed need not.
const freshWithin = 150 * time.Millisecond

// Since returns what all activators together see of ref, as they saw it after
// the given moment if their counts have changed. Whoever adds it to a reading
// made at that moment counts no request twice: one that is still held was held
// then, and was not on an engine.
func (t *Tracker) Since(ctx context.Context, ref workload.Ref, moment time.Time) policy.Demand {
	d := t.Demand(ref, time.Now())
	for end := time.Now().Add(freshWithin); d.Held > 0 && !t.newer(ref, moment) && time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return d
		case <-time.After(10 * time.Millisecond):
		}
		d = t.Demand(ref, time.Now())
	}
	return d
}

// newer reports whether every activator that holds requests for ref has been
// heard since moment.
func (t *Tracker) newer(ref workload.Ref, moment time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.replicas {
		if r.targets[ref].GetHeld() > 0 && r.seen.Before(moment) {
			return false
		}
	}
	return true
}

// count adds what has happened since a replica's last snapshot. A replica that
// is new to us may have counted long before, so only what follows is added; one
// that has started anew counts from zero.
func (t *Tracker) count(last, next *replica) {
	for ref, d := range next.targets {
		total := t.totals[ref]
		total.Known = true
		if last != nil {
			var before *demandpb.TargetDemand
			if last.boot == next.boot {
				before = last.targets[ref]
			}
			total.Arrivals += max(float64(d.GetArrivalsTotal())-float64(before.GetArrivalsTotal()), 0)
			total.Completions += max(float64(d.GetCompletedTotal())-float64(before.GetCompletedTotal()), 0)
			total.ServiceSeconds += max(d.GetServiceSecondsTotal()-before.GetServiceSecondsTotal(), 0)
		}
		t.totals[ref] = total
	}
}

// Traffic counts the requests to ref that all activators have seen.
func (t *Tracker) Traffic(ref workload.Ref) policy.Traffic {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.totals[ref]
}

// Wake asks for a signal on c whenever an activator starts to hold requests
// for ref. The signal is dropped while c is full. The returned function ends
// the subscription.
func (t *Tracker) Wake(ref workload.Ref, c chan<- struct{}) (stop func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.wakers[ref] == nil {
		t.wakers[ref] = map[chan<- struct{}]struct{}{}
	}
	t.wakers[ref][c] = struct{}{}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.wakers[ref], c)
		if len(t.wakers[ref]) == 0 {
			delete(t.wakers, ref)
		}
	}
}

func (t *Tracker) wake(ref workload.Ref) {
	for c := range t.wakers[ref] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
