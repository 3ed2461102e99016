package simulate

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/scaler/simulate/trace"
)

const (
	ms  = time.Millisecond
	sec = time.Second
)

// A script says at which time how many replicas are wanted, and keeps what it
// was shown.
type script struct {
	steps map[time.Duration]int
	n     int
	seen  []View
}

func (s *script) Name() string { return "script" }

func (s *script) Observe(v View) Proposal {
	v.Pods = append([]PodView(nil), v.Pods...)
	s.seen = append(s.seen, v)
	if n, there := s.steps[v.Now.Sub(Epoch)]; there {
		s.n = n
	}
	return Proposal{Known: true, Replicas: s.n, Value: float64(v.Held + v.InFlight), Active: v.Held+v.InFlight > 0, Reason: "script"}
}

// direct follows steps at once.
func direct(steps map[time.Duration]int) Controller {
	return Controller{Name: "script", New: func() Policy { return &script{steps: steps} }}
}

func fixed(n int) Controller {
	c := direct(map[time.Duration]int{0: n})
	c.Warm = n
	return c
}

// small is an engine for sums in one's head: two slots, 1,000 prompt tokens a
// second, 10 ms a token alone and 20 ms each for two. Starts take 20 s.
func small(requests ...trace.Request) Scenario {
	return Scenario{
		Requests: requests, Tail: 10 * sec,
		Engine: Engine{Slots: 2, Prefill: 1000, DecodeAlone: 10 * ms, DecodeFull: 20 * ms},
		Starts: Starts{P50: 20 * sec, P95: 20 * sec},
	}
}

func run1(t *testing.T, s Scenario, c Controller) *Result {
	t.Helper()
	r, err := Run(t.Context(), s, c)
	require.NoError(t, err)
	require.Equal(t, r.Requests, r.Completed+r.Streaming+r.Waiting+r.Lost, "every request is somewhere")
	return r
}

// One pod with two slots, on paper:
//
//	A comes at 0:    prefill 0-1, 50 tokens alone until 1.5, 50 beside B until 2.5
//	B comes at 0.5:  waits for A's prefill, prefill 1-1.5, 50 beside A until 2.5, 50 alone until 3
//	C comes at 1:    waits for A's slot until 2.5, prefill until 3.5, wants no more
func TestOnePodOnPaper(t *testing.T) {
	s := small(trace.Request{Input: 1000, Output: 101}, trace.Request{At: 500 * ms, Input: 500, Output: 101}, trace.Request{At: sec, Input: 1000, Output: 1})
	r := run1(t, s, fixed(1))
	require.Equal(t, 3, r.Completed)
	require.InDelta(t, 0+0.5+1.5, r.WaitSeconds, 1e-6)
	require.InDelta(t, (1+1+2.5)/3, r.FirstToken.Mean, 1e-6)
	require.InDelta(t, 2.5, r.FirstToken.Max, 1e-6)
	require.InDelta(t, 2.5+2.5+1, r.ServiceSeconds, 1e-6, "C was dispatched when it got its slot")
	require.InDelta(t, 11, r.GPUSeconds, 1e-9, "one pod until 10 s after C came")
	require.InDelta(t, 11*2.0/3600+2*0.001, r.Cost(Prices{GPUHour: 2, WaitSeconds: 0.001}), 1e-9)
	require.Zero(t, r.Starts)

	s.Unbounded = true
	r = run1(t, s, fixed(1))
	require.InDelta(t, 2, r.WaitSeconds, 1e-6, "waiting in the pod is waiting too")
	require.InDelta(t, 2.5+2.5+2.5, r.ServiceSeconds, 1e-6, "C was dispatched when it came")
}

func TestKVLimitQueues(t *testing.T) {
	s := small(trace.Request{Input: 1000, Output: 101}, trace.Request{Input: 1000, Output: 101})
	s.Engine.KVTokens = 1500
	r := run1(t, s, fixed(1))
	require.InDelta(t, 2, r.WaitSeconds, 1e-6, "the second waits for the first to end: 1 s prefill, 100 tokens alone")
	s.Engine.KVTokens = 100
	require.Equal(t, 2, run1(t, s, fixed(1)).Completed, "a request that is alone always fits")
}

// The exact processor sharing agrees with a slow one that moves in steps.
func TestProcessorSharingAgainstSteps(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		var requests []trace.Request
		at := time.Duration(0)
		for range 25 {
			at += time.Duration(rng.IntN(800)) * ms
			requests = append(requests, trace.Request{At: at, Input: 1 + rng.IntN(600), Output: 1 + rng.IntN(120)})
		}
		s := small(requests...)
		s.Engine.Slots, s.Unbounded, s.Tail = 4, true, time.Hour
		wait, service := stepped(s)
		r := run1(t, s, fixed(1))
		require.InDelta(t, wait, r.WaitSeconds, 0.05)
		require.InDelta(t, service, r.ServiceSeconds, 0.05)
	}
}

// stepped runs one pod in steps of 0.1 ms and returns the waited and the served
// seconds.
func stepped(s Scenario) (wait, service float64) {
	const dt = 1e-4
	type job struct{ prefill, tokens float64 }
	e := s.Engine
	jobs := make([]job, len(s.Requests))
	for i, q := range s.Requests {
		jobs[i] = job{float64(q.Input) / e.Prefill, float64(q.Output - 1)}
	}
	began, next, ended := map[int]bool{}, 0, 0
	var slots []int
	for now := 0.0; ended < len(jobs); now += dt {
		for len(slots) < e.Slots && next < len(jobs) && s.Requests[next].At.Seconds() <= now {
			slots = append(slots, next)
			next++
		}
		batch := 0
		for _, i := range slots {
			if jobs[i].prefill <= 0 {
				batch++
			}
		}
		step := e.step(batch) / 1e9
		prefilling := false
		kept := slots[:0]
		for _, i := range slots {
			switch {
			case jobs[i].prefill > 0 && !prefilling:
				if !began[i] {
					began[i] = true
					wait += now - s.Requests[i].At.Seconds()
				}
				prefilling = true
				jobs[i].prefill -= dt
			case jobs[i].prefill <= 0:
				jobs[i].tokens -= dt / step
			}
			if jobs[i].prefill <= 0 && jobs[i].tokens <= 0 {
				ended++
				service += now - s.Requests[i].At.Seconds()
				continue
			}
			kept = append(kept, i)
		}
		slots = kept
	}
	return wait, service
}

// A request at 5 s wakes a target at zero; KEDA lets it sleep 30 s after the
// last poll that saw it busy.
func TestWakeAndSleepThroughKEDA(t *testing.T) {
	s := small(trace.Request{At: 5 * sec, Input: 1000, Output: 1})
	s.Tail, s.SampleEvery = 60*sec, 5*sec
	c := direct(nil)
	c.Through = &Through{KEDA: KEDA{PollingInterval: 10 * sec, CooldownPeriod: 30 * sec}, Push: true}
	r := run1(t, s, c)
	require.Empty(t, cmp.Diff([]Move{{5 * sec, 0, 1, ByPush, "script"}, {50 * sec, 1, 0, ByPoll, "script"}}, r.Moves))
	require.InDelta(t, 20, r.WaitSeconds, 1e-6, "the start")
	require.InDelta(t, 21, r.FirstToken.Max, 1e-6)
	require.InDelta(t, 45, r.GPUSeconds, 1e-9, "from 5 s to 50 s, starting included")
	require.Equal(t, 1, r.OverSLO)
	require.Len(t, r.Timeline, 14)
	require.Empty(t, cmp.Diff(Moment{At: 10 * sec, Arrivals: 0, Held: 1, Replicas: 1, Starting: 1, Active: true, Reason: "script"}, r.Timeline[2]))
	require.Empty(t, cmp.Diff(Moment{At: 25 * sec, Running: 1, Replicas: 1, Ready: 1, Active: true, Reason: "script"}, r.Timeline[5]))

	c.Through.Push = false
	require.Equal(t, 10*sec, run1(t, s, c).Moves[0].At, "without push KEDA sees it at its next poll")
}

func TestHPAGrowsWhatKEDAWoke(t *testing.T) {
	var requests []trace.Request
	for range 20 {
		requests = append(requests, trace.Request{Input: 1000, Output: 101})
	}
	s := small(requests...)
	c := direct(nil)
	c.Through = &Through{KEDA: KEDA{PollingInterval: 10 * sec, CooldownPeriod: 30 * sec}, Push: true}
	r := run1(t, s, c)
	require.Empty(t, cmp.Diff([]Move{{0, 0, 1, ByPush, "script"}, {0, 1, 5, ByHPA, "script"}}, r.Moves[:2]),
		"20 requests want 10 pods of 2; four are the most in 15 s")
	require.Equal(t, 5, r.PeakReplicas)
}

// The first start never gets Ready. Scaling in takes it away although it is
// the older one.
func TestStuckStart(t *testing.T) {
	s := small(trace.Request{Input: 1000, Output: 1})
	s.Tail, s.Starts.Stuck = 60*sec, []int{1}
	c := direct(map[time.Duration]int{0: 1, 10 * sec: 2, 40 * sec: 1})
	r := run1(t, s, c)
	require.InDelta(t, 30, r.WaitSeconds, 1e-6, "until the second start, ordered at 10 s")
	require.Equal(t, 1, r.Completed)
	require.InDelta(t, 40+50, r.GPUSeconds, 1e-9)
	require.Equal(t, 2, r.Starts)

	s.Starts.Stuck, s.Starts.Failing = nil, []int{1}
	p := &script{steps: map[time.Duration]int{0: 1}}
	r = run1(t, s, Controller{New: func() Policy { return p }})
	require.Equal(t, 1, r.Waiting, "nobody answered")
	require.InDelta(t, 60, r.WaitSeconds, 1e-6, "and it counts as waiting until the end")
	require.False(t, p.seen[19].Pods[0].Failing)
	require.True(t, p.seen[20].Pods[0].Failing, "seen to fail after 20 s")
	require.True(t, p.seen[20].Pods[0].Starting())
}

func TestTerminatingPodsFinishTheirStreams(t *testing.T) {
	s := small(trace.Request{Input: 1000, Output: 501}, trace.Request{At: 3 * sec, Input: 1000, Output: 1})
	c := direct(map[time.Duration]int{0: 1, 2 * sec: 0, 4 * sec: 1})
	c.Warm = 1
	p := &script{steps: map[time.Duration]int{0: 1, 2 * sec: 0, 4 * sec: 1}}
	c.New = func() Policy { return p }
	s.Tail = 40 * sec
	r := run1(t, s, c)
	require.Equal(t, 2, r.Completed)
	require.InDelta(t, 6+39, r.GPUSeconds, 1e-6, "the first pod costs until its stream ends at 6 s, the second from 4 s to 43 s")
	require.InDelta(t, 21, r.WaitSeconds, 1e-6, "the second request does not get into the terminating pod")
	require.True(t, p.seen[3].Pods[0].Terminating)
	require.Equal(t, 1, p.seen[3].Pods[0].Running)
}

func TestMinReplicasHoldForEveryController(t *testing.T) {
	s := small(trace.Request{Input: 1000, Output: 1})
	s.MinReplicas = 2
	r := run1(t, s, direct(nil))
	require.Empty(t, r.Moves, "two were up, and stay")
	require.InDelta(t, 20, r.GPUSeconds, 1e-9)
}

func TestImpatientClients(t *testing.T) {
	s := small(trace.Request{Input: 1000, Output: 1}, trace.Request{At: sec, Input: 1000, Output: 1})
	s.Patience = 5 * sec
	r := run1(t, s, direct(nil))
	require.Equal(t, 2, r.Lost)
	require.InDelta(t, 10, r.WaitSeconds, 1e-6, "what they waited before they left")
	require.Equal(t, 2, r.OverSLO)

	// Inside a pod: one slot, busy for 9.9 s.
	s = small(trace.Request{Input: 1000, Output: 891}, trace.Request{At: sec, Input: 1000, Output: 1}, trace.Request{At: 7 * sec, Input: 1000, Output: 1})
	s.Engine.Slots, s.Patience, s.Unbounded, s.Tail = 1, 5*sec, true, 30*sec
	r = run1(t, s, fixed(1))
	require.Equal(t, 1, r.Lost)
	require.Equal(t, 2, r.Completed, "the one that left freed its place in the queue")
	require.InDelta(t, 5+2.9, r.WaitSeconds, 1e-6)

	// In the middle of the prefill: it goes on, and is dropped.
	s = small(trace.Request{Input: 8000, Output: 100}, trace.Request{At: 6 * sec, Input: 1000, Output: 1})
	s.Patience = 5 * sec
	r = run1(t, s, fixed(1))
	require.Equal(t, 1, r.Lost)
	require.InDelta(t, 2, r.WaitSeconds, 1e-6, "the second waits for the prefill of the first to end")
}

// A pod that becomes Ready later helps only with what is still at the
// activator.
func TestBoundedReleaseBeatsQueuesInPods(t *testing.T) {
	var requests []trace.Request
	for i := range 40 {
		requests = append(requests, trace.Request{At: time.Duration(i) * 100 * ms, Input: 100, Output: 201})
	}
	s := small(requests...)
	s.Tail = 5 * time.Minute
	grow := direct(map[time.Duration]int{0: 4})
	grow.Warm = 1
	bounded := run1(t, s, grow)
	s.Unbounded = true
	require.Greater(t, run1(t, s, grow).WaitSeconds, 1.3*bounded.WaitSeconds)
}

func TestLateGauges(t *testing.T) {
	s := small(trace.Request{Input: 1000, Output: 1001})
	s.Tail, s.Gauges = 20*sec, Gauges{Cold: 3 * sec, Every: 5 * sec}
	p := &script{steps: map[time.Duration]int{0: 1}}
	run1(t, s, Controller{Warm: 1, New: func() Policy { return p }})
	reads := ""
	for _, v := range p.seen[:14] {
		reads += string(rune('0' + v.Pods[0].Running))
	}
	require.Equal(t, "00011111111110", reads, "0 for 3 s; done at 11 s, which shows at 13 s")
}

func TestStartTimesHaveTheQuantiles(t *testing.T) {
	s := Scenario{Seed: 1, Starts: Starts{P50: 90 * sec, P95: 150 * sec}}
	const n = 20_000
	below50, below95 := 0, 0
	for i := 1; i <= n; i++ {
		took := s.startTime(i)
		if took <= 90*sec {
			below50++
		}
		if took <= 150*sec {
			below95++
		}
	}
	require.InDelta(t, 0.50, float64(below50)/n, 0.01)
	require.InDelta(t, 0.95, float64(below95)/n, 0.01)
	require.Equal(t, s.startTime(7), s.startTime(7), "the n-th start is the same for every policy")

	s.Starts.NodeChance, s.Starts.NodeDelay = 0.25, time.Hour
	nodes := 0
	for i := 1; i <= n; i++ {
		if s.startTime(i) > time.Hour {
			nodes++
		}
	}
	require.InDelta(t, 0.25, float64(nodes)/n, 0.015)
}

func TestFlaps(t *testing.T) {
	moves := []Move{
		{0, 0, 2, "", ""}, {30 * sec, 2, 1, "", ""}, // a start for nothing
		{50 * sec, 1, 2, "", ""},                             // a start that could have been saved
		{141 * sec, 2, 1, "", ""},                            // 91 s later: its time was over
		{300 * sec, 1, 2, "", ""}, {310 * sec, 2, 3, "", ""}, // growing twice is no change of mind
		{390 * sec, 3, 0, "", ""}, // another start for nothing
	}
	flapped, regretted := flaps(moves, 90*sec)
	require.Equal(t, 2, flapped)
	require.Equal(t, 1, regretted)
}

func TestQuantiles(t *testing.T) {
	x := make([]float32, 100)
	for i := range x {
		x[i] = float32(100 - i)
	}
	require.Equal(t, Quantiles{Mean: 50.5, P50: 50, P95: 95, P99: 99, Max: 100}, quantiles(x))
	require.Equal(t, Quantiles{Mean: 3, P50: 3, P95: 3, P99: 3, Max: 3}, quantiles([]float32{3}))
	require.Zero(t, quantiles(nil))
}

func TestRunRefuses(t *testing.T) {
	_, err := Run(t.Context(), Scenario{}, fixed(1))
	require.ErrorIs(t, err, ErrScenario)
	require.ErrorContains(t, err, "no requests")
	s := small(trace.Request{At: sec}, trace.Request{})
	s.MinReplicas, s.MaxReplicas, s.Starts.P95 = 3, 2, sec
	_, err = Run(t.Context(), s, fixed(1))
	for _, says := range []string{"request 2 comes before request 1", "replicas between 3 and 2", "start-up P50 20s and P95 1s"} {
		require.ErrorContains(t, err, says)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	long := Scenario{Requests: []trace.Request{{}, {At: 1000 * time.Hour}}}
	_, err = Run(ctx, long, fixed(1))
	require.ErrorIs(t, err, context.Canceled)
}

// crowded is a scenario with everything switched on.
func crowded(tb testing.TB, seed uint64) Scenario {
	tb.Helper()
	requests, err := trace.Square(6, 0.5, 10*time.Minute, 40*time.Minute).Requests(trace.Options{Seed: seed})
	require.NoError(tb, err)
	return Scenario{
		Requests: requests, Seed: seed, Tail: time.Minute, SampleEvery: 10 * sec, Patience: 45 * sec,
		Unbounded: seed%2 == 0, Engine: Engine{KVTokens: 20_000},
		Starts: Starts{Stuck: []int{2}, Failing: []int{4}, NodeChance: 0.2, NodeDelay: time.Minute},
		Gauges: Gauges{Cold: 18 * sec, Every: 5 * sec},
	}
}

// Nothing is lost without being counted, whatever the policy does, and the
// same seed gives the same result.
func TestConservedAndRepeatable(t *testing.T) {
	wild := func() Controller {
		return Controller{Name: "wild", New: func() Policy { return &wildPolicy{rand.New(rand.NewPCG(3, 4))} }}
	}
	for seed := range uint64(6) {
		s := crowded(t, seed+1)
		r := run1(t, s, wild())
		require.Positive(t, r.Lost)
		require.Positive(t, r.Completed)
		busy := 0.0
		for _, m := range r.Timeline {
			busy += float64(m.Starting+m.Ready+m.Terminating) * s.SampleEvery.Seconds()
			require.Equal(t, m.Replicas, m.Starting+m.Ready)
		}
		require.InEpsilon(t, busy, r.GPUSeconds, 0.05, "the timeline shows the pods that were paid for")
		require.Empty(t, cmp.Diff(r, run1(t, s, wild())))
		s.Seed += 100
		require.NotEqual(t, r.WaitSeconds, run1(t, s, wild()).WaitSeconds)
	}
}

type wildPolicy struct{ rng *rand.Rand }

func (w *wildPolicy) Name() string { return "wild" }

func (w *wildPolicy) Observe(v View) Proposal {
	n := v.Replicas
	if w.rng.IntN(20) == 0 {
		n = w.rng.IntN(10)
	}
	return Proposal{Known: w.rng.IntN(10) > 0, Replicas: n}
}

// A day of 10 requests a second has to take less than 5 s on one core.
func BenchmarkDay(b *testing.B) {
	requests, err := trace.Constant(10, 24*time.Hour).Requests(trace.Options{})
	require.NoError(b, err)
	b.Logf("%d requests", len(requests))
	for b.Loop() {
		r, err := Run(b.Context(), Scenario{Requests: requests, Seed: 1}, fixed(8))
		require.NoError(b, err)
		require.False(b, math.IsNaN(r.WaitSeconds))
	}
}
