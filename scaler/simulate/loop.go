package simulate

import (
	"math/rand/v2"
	"time"
)

// Who moved the replicas.
const (
	ByPush   = "push"   // KEDA, told by the scaler
	ByPoll   = "poll"   // KEDA's scale loop
	ByHPA    = "hpa"    // the autoscaler
	ByPolicy = "policy" // a controller of its own
)

// A loop is everything that looks at regular times: the policy, KEDA, the HPA
// and the timeline.
type loop struct {
	policy  Policy
	through *Through // complete, or nil
	hpa     HPA

	look, poll, sync, sample ticker

	reports ticker        // Controller.Reports
	told    View          // what the last report has counted
	toldAt  time.Duration // when that was
	waitsTo time.Duration // until when a look waits for a report, or never
	wakes   time.Duration // Controller.Wakes
	wakesAt time.Duration // when it looks out of turn, or never

	latest Proposal
	keda   KEDAState
	state  HPAState
	pods   []PodView // buffer of the views
}

// A ticker is due at the moments given and then every so often, or never.
type ticker struct {
	at, every time.Duration
	given     []time.Duration
}

func (t *ticker) again() {
	if len(t.given) > 0 {
		t.at, t.given = max(t.at, t.given[0]), t.given[1:]
		return
	}
	t.at += t.every
}

// follow makes a ticker due at the moments given, if there are any.
func (t *ticker) follow(moments []time.Duration) {
	if len(moments) > 0 {
		t.at, t.given = max(moments[0], 0), moments[1:]
	}
}

func newLoop(s Scenario, c Controller) loop {
	rng := rand.New(rand.NewPCG(s.Seed, 0xa0761d6478bd642f)) //nolint:gosec // has to be repeatable
	every := func(d time.Duration) ticker {
		phase := time.Duration(rng.Float64() * float64(d))
		if s.Seed == 0 {
			phase = 0
		}
		return ticker{at: phase, every: d}
	}
	off := ticker{at: never}
	l := loop{policy: c.New(), poll: off, sync: off, sample: off, keda: KEDAState{Created: s.at(0)}}
	interval := c.Interval
	orDefault(&interval, time.Second)
	l.look = every(interval)
	if c.FirstLook > 0 {
		l.look.at = c.FirstLook
	}
	l.wakes, l.wakesAt, l.waitsTo = c.Wakes, never, never
	if c.Reports > 0 {
		l.reports.every = c.Reports
	} else {
		l.reports.at = never
	}
	if c.Through != nil {
		t := c.Through.complete(s)
		l.through, l.hpa = &t, t.hpa()
		l.poll, l.sync = every(t.KEDA.PollingInterval), every(t.Sync)
		l.poll.follow(t.Polls)
		l.sync.follow(t.Syncs)
	}
	if s.SampleEvery > 0 {
		l.sample = ticker{every: s.SampleEvery}
	}
	return l
}

func (l *loop) next() time.Duration {
	return min(l.look.at, l.poll.at, l.sync.at, l.sample.at, l.wakesAt, l.waitsTo, l.reports.at)
}

// wake notes that requests begin to wait.
func (l *loop) wake(now time.Duration) {
	if l.wakes > 0 {
		l.wakesAt = min(l.wakesAt, now+l.wakes)
	}
}

// step does one thing that is due at r.now: the policy looks before anybody
// asks for its answer.
func (l *loop) step(r *run) {
	switch r.now {
	case l.reports.at:
		l.reports.again()
		l.report(r)
	case l.look.at:
		l.look.again()
		if l.told.Held > 0 && r.anyReady() {
			l.waitsTo = min(l.waitsTo, r.now+freshWithin)
			return
		}
		l.observe(r)
	case l.waitsTo:
		l.observe(r)
	case l.wakesAt:
		l.wakesAt = never
		l.told, l.toldAt = r.counted(), r.now
		l.observe(r)
	case l.poll.at:
		l.poll.again()
		l.scale(r, Answer{Active: l.latest.Known && l.latest.Active, Failed: !l.latest.Known}, ByPoll)
	case l.sync.at:
		l.sync.again()
		n, state := l.hpa.Sync(l.state, r.replicas, r.replicas, l.latest.Value, l.latest.Known, r.s.at(r.now))
		l.state = state
		r.scale(n, ByHPA, l.latest.Reason)
	default:
		l.sample.again()
		r.sample(l.latest)
	}
}

// What the scaler and the activator have agreed on: the activator reports changes
// with its next report and repeats itself once a second; and the scaler, while
// requests wait that its engines may have by now, waits so long for a report that
// is newer than its reading (package demand).
const (
	reportEvery = time.Second
	freshWithin = 150 * time.Millisecond
)

// report tells what the activator has counted, if there is something to tell.
func (l *loop) report(r *run) {
	now := r.counted()
	same := now.Held == l.told.Held && now.InFlight == l.told.InFlight && now.Arrivals == l.told.Arrivals && now.Completions == l.told.Completions
	if same && r.now-l.toldAt < reportEvery {
		return
	}
	l.told, l.toldAt = now, r.now
	if l.waitsTo != never {
		l.observe(r)
	}
}

func (l *loop) observe(r *run) {
	l.waitsTo = never
	v := l.told
	if l.reports.every == 0 {
		v = r.counted()
	}
	v = r.view(v, l.pods)
	l.pods = v.Pods
	l.latest = l.policy.Observe(v)
	switch {
	case !l.latest.Known:
	case l.through == nil:
		r.scale(max(l.latest.Replicas, r.s.MinReplicas), ByPolicy, l.latest.Reason)
	case l.through.Push && l.latest.Active && r.replicas == 0:
		l.scale(r, Answer{Active: true}, ByPush)
	}
}

// scale lets KEDA have its say.
func (l *loop) scale(r *run, a Answer, by string) {
	n, state := l.through.KEDA.Scale(l.keda, r.replicas, a, r.s.at(r.now))
	l.keda = state
	r.scale(n, by, l.latest.Reason)
}
