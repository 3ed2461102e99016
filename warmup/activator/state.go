package activator

import (
	"time"

	"github.com/pilotlight-dev/pilotlight/internal/demandpb"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

// learn takes in what the scaler says. A start that failed hopelessly ends
// every wait; anything else lifts that again.
func (p *pool) learn(st *demandpb.TargetState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if st.GetReason() == "" && st.GetState() == demandpb.State_STATE_FAILED && p.start.GetState() == demandpb.State_STATE_FAILED {
		// Its pods are gone by now, and why they failed is known from before.
		st = &demandpb.TargetState{Namespace: st.GetNamespace(), ScaledObject: st.GetScaledObject(), State: st.GetState(), Reason: p.start.GetReason(), RetryAfterSeconds: st.GetRetryAfterSeconds()}
	}
	p.start, p.heard = st, now
	if p.isFailed(now) {
		p.dismiss(p.failure(errFailed))
	}
}

// isFailed reports whether waiting is useless. A Ready pod is a better witness
// than the scaler's last word.
func (p *pool) isFailed(now time.Time) bool {
	return len(p.ready) == 0 && now.Sub(p.heard) < believeFor &&
		p.start.GetState() == demandpb.State_STATE_FAILED && workload.Failure(p.start.GetReason()).Hopeless()
}

// failure adds what the scaler said about the start to an error.
func (p *pool) failure(err error) error {
	return &startError{err, p.start.GetReason(), time.Duration(p.start.GetRetryAfterSeconds()) * time.Second}
}

// late says why a wait has ended without a place.
func (p *pool) late() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failure(errHold)
}

// close ends every wait: the target is gone. It returns the pods.
func (p *pool) close() []*backend {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = errGone
	p.dismiss(errGone)
	for _, b := range p.ready {
		b.gone.Store(true)
	}
	return p.ready
}

// drain ends every wait; who finds a place at once is still served.
func (p *pool) drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed == nil {
		p.closed = errDraining
	}
	p.dismiss(p.closed)
}

func (p *pool) dismiss(err error) {
	for it := p.line.Pop(); it != nil; it = p.line.Pop() {
		w := it.Value
		p.left(w)
		w.err = err
		close(w.place)
	}
}

func (p *pool) demand() *demandpb.TargetDemand {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := &demandpb.TargetDemand{
		Namespace: p.ref.Namespace, ScaledObject: p.ref.Name,
		Held: uint64(p.line.Len()), InFlight: p.inFlight, //nolint:gosec // a length is not negative
		ArrivalsTotal: p.arrivals, CompletedTotal: p.completed, ServiceSecondsTotal: p.service.Seconds(),
	}
	if p.line.Len() > 0 {
		d.OldestHoldSeconds = time.Since(p.oldest()).Seconds()
	}
	return d
}

// oldest is when the first of those in line came.
func (p *pool) oldest() (first time.Time) {
	p.line.Each(func(w *waiter) {
		if first.IsZero() || w.since.Before(first) {
			first = w.since
		}
	})
	return first
}
