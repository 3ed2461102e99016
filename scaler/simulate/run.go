package simulate

import (
	"context"
	"math"
	"math/rand/v2"
	"time"
)

// What has become of a request.
type state uint8

const (
	unborn    state = iota
	held            // at the activator
	queued          // in a pod, without a slot
	slotted         // in a pod, with a slot, without a first token
	streaming       // has had its first token
	done
	lost // its client has left before the first token
)

type request struct {
	pod        *pod // it was sent to
	dispatched time.Duration
	began      time.Duration // when its prefill began; 0 = not yet
	state      state
}

// A run is one simulation under way.
type run struct {
	s   Scenario
	now time.Duration
	end time.Duration

	requests []request
	arrived  int // requests that have come
	patient  int // requests whose patience has been looked at
	left     int // of Scenario.Leaves, those that have come
	hold     fifo
	held     int // of hold, less those that have left
	inFlight int
	service  time.Duration
	freed    bool // a place for a held request may have become free

	pods     []*pod  // oldest first
	replicas int     // asked for
	started  int     // pods ever created
	past     float64 // tokens made by pods that are gone

	loop    loop
	sampled int // requests that had come at the last sample
	result  *Result
	waits   []float32 // seconds, by request that began or left
	ttfts   []float32
}

// looks is how many events pass between two looks at the context.
const looks = 1 << 14

// Run simulates what c does in s until s.Tail after the last arrival. Its
// errors are that of ctx, or wrap ErrScenario.
func Run(ctx context.Context, s Scenario, c Controller) (*Result, error) {
	s, err := s.complete()
	if err != nil {
		return nil, err
	}
	r := &run{
		s: s, requests: make([]request, len(s.Requests)), end: s.end(),
		waits: make([]float32, 0, len(s.Requests)), ttfts: make([]float32, 0, len(s.Requests)),
		result: &Result{Scenario: s.Name, Controller: c.Name, Requests: len(s.Requests)},
	}
	if s.KeepEnds {
		r.result.Ends = make([]time.Duration, len(s.Requests))
	}
	r.loop = newLoop(s, c)
	r.begin(c)
	for n := 1; ; n++ {
		if n%looks == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		p, at := r.nextPod()
		at = min(at, r.nextArrival(), r.nextLeaving(), r.nextLeave(), r.loop.next())
		if at > r.end {
			break
		}
		r.now = at
		r.step(p)
	}
	r.now = r.end
	r.finalize()
	return r.result, nil
}

// step does one event at r.now: pods first, then clients, then those who look.
func (r *run) step(p *pod) {
	switch {
	case p != nil && p.next == r.now:
		r.podEvent(p)
	case r.nextArrival() == r.now:
		r.arrive()
	case r.nextLeaving() == r.now:
		r.giveUp()
	case r.nextLeave() == r.now:
		r.hangUp()
	default:
		r.loop.step(r)
	}
}

func (r *run) nextPod() (*pod, time.Duration) {
	var first *pod
	at := never
	for _, p := range r.pods {
		if p.next < at {
			first, at = p, p.next
		}
	}
	return first, at
}

func (r *run) podEvent(p *pod) {
	became := !p.ready
	r.event(p)
	if p.terminating && p.inFlight() == 0 {
		r.remove(p)
	}
	if r.freed || became {
		r.release()
	}
}

func (r *run) nextArrival() time.Duration {
	if r.arrived == len(r.s.Requests) {
		return never
	}
	return r.s.Requests[r.arrived].At
}

func (r *run) arrive() {
	id := int32(r.arrived) //nolint:gosec // a trace has at most trace.DefaultLimit requests
	r.arrived++
	r.requests[id].state = held
	r.hold.push(id)
	r.held++
	waited := r.held > 1
	r.release()
	if !waited && r.held > 0 {
		r.loop.wake(r.now)
	}
}

// release sends held requests on, oldest first, each to the Ready pod with the
// fewest in flight that is below the bound.
func (r *run) release() {
	r.freed = false
	for r.held > 0 {
		id := r.hold.peek()
		if r.requests[id].state == lost {
			r.hold.pop()
			continue
		}
		p := r.leastBusy()
		if p == nil {
			return
		}
		r.hold.pop()
		r.held--
		r.inFlight++
		q := &r.requests[id]
		q.state, q.pod, q.dispatched = queued, p, r.now
		r.enter(p, id)
	}
}

func (r *run) leastBusy() *pod {
	var best *pod
	fewest := math.MaxInt
	if !r.s.Unbounded {
		fewest = int(math.Ceil(r.s.TargetRequests))
	}
	for _, p := range r.pods {
		if p.ready && !p.terminating && p.inFlight() < fewest {
			best, fewest = p, p.inFlight()
		}
	}
	return best
}

// nextLeaving is when the patience of the next client ends.
func (r *run) nextLeaving() time.Duration {
	if r.s.Patience == 0 || r.patient == r.arrived {
		return never
	}
	return r.s.Requests[r.patient].At + r.s.Patience
}

// giveUp lets a client without a first token leave.
func (r *run) giveUp() {
	id := r.patient
	r.patient++
	r.lose(id)
}

// lose lets the client of a request that has no first token yet leave.
func (r *run) lose(id int) {
	q := &r.requests[id]
	switch q.state {
	case held:
		r.held--
	case queued:
		q.pod.waiting--
		r.inFlight--
		r.freed = true
	case slotted: // its slot is freed when its turn comes
	default:
		return
	}
	if q.began == 0 {
		r.waited(r.now - r.s.Requests[id].At)
	}
	q.state = lost
	r.result.Lost++
	r.ended(id)
	if r.freed {
		r.release()
	}
}

// ended notes when a request had its end.
func (r *run) ended(id int) {
	if r.result.Ends != nil {
		r.result.Ends[id] = max(r.now, 1) // 0 means not yet
	}
}

// nextLeave is when the next client closes its connection.
func (r *run) nextLeave() time.Duration {
	if r.left == len(r.s.Leaves) {
		return never
	}
	return r.s.Leaves[r.left].At
}

// hangUp closes a client's connection: the engine drops what it makes for it.
func (r *run) hangUp() {
	id := r.s.Leaves[r.left].Request
	r.left++
	if q := &r.requests[id]; q.state == streaming {
		r.drop(q.pod, int32(id)) //nolint:gosec // as in arrive
		return
	}
	r.lose(id)
}

// began notes that a request's prefill begins: its wait is over.
func (r *run) began(id int32) {
	q := &r.requests[id]
	q.began = max(r.now, 1) // 0 means not yet
	r.waited(r.now - r.s.Requests[id].At)
}

func (r *run) waited(d time.Duration) {
	r.waits = append(r.waits, float32(d.Seconds()))
	r.result.WaitSeconds += d.Seconds()
}

func (r *run) firstToken(id int32) {
	r.requests[id].state = streaming
	ttft := r.now - r.s.Requests[id].At
	r.ttfts = append(r.ttfts, float32(ttft.Seconds()))
	if ttft > r.s.SLO {
		r.result.OverSLO++
	}
}

// startTime is how long the n-th pod takes to get Ready: what was recorded, or
//
//	exp(mu + sigma z), mu = ln P50, sigma = ln(P95/P50)/1.645
func (s Scenario) startTime(n int) time.Duration {
	if n <= len(s.Starts.Recorded) {
		return s.Starts.Recorded[n-1]
	}
	const z95 = 1.6448536269514722
	rng := rand.New(rand.NewPCG(s.Seed, 0xd1b54a32d192ed03*uint64(n))) //nolint:gosec // has to be repeatable; n is small and positive
	z, node := rng.NormFloat64(), rng.Float64()
	sigma := math.Log(float64(s.Starts.P95)/float64(s.Starts.P50)) / z95
	took := time.Duration(float64(s.Starts.P50) * math.Exp(sigma*z))
	if node < s.Starts.NodeChance {
		took += s.Starts.NodeDelay
	}
	return took
}
