package simulate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/scaler/simulate/trace"
)

// What a recording gives: how long each start took, and that there was nothing at
// the beginning.
func TestRecordedStarts(t *testing.T) {
	s := small(trace.Request{Input: 1000, Output: 1})
	s.End, s.MinReplicas = 40*sec, 1
	s.Starts.Recorded = []time.Duration{3 * sec, 5 * sec}
	s.Cold, s.Starting = true, 1
	p := &script{}
	r := run1(t, s, Controller{New: func() Policy { p.n = 3; return p }})
	ready := []int{}
	for _, v := range p.seen {
		n, _, _, _ := v.Count()
		ready = append(ready, n)
	}
	require.Equal(t, []int{0, 0, 0, 1, 1, 2}, ready[:6], "the first was there at the beginning, with 3 s to go")
	require.Equal(t, []int{2, 3}, ready[19:21], "the third was not recorded and takes P50")
	require.Equal(t, 3, r.Starts)
	require.Equal(t, 40*sec, r.Duration)
	require.Equal(t, []Move{{0, 1, 3, ByPolicy, "script"}}, r.Moves)

	// The minimum does not put one up of itself.
	s.Starting = 0
	c := direct(nil)
	c.Through = &Through{KEDA: KEDA{MinReplicas: 1, MaxReplicas: 4, PollingInterval: 10 * sec}, Polls: []time.Duration{4 * sec}}
	require.Equal(t, []Move{{4 * sec, 0, 1, ByPoll, "script"}}, run1(t, s, c).Moves, "KEDA does, when it polls")
}

// Of several pods that one goes which went.
func TestRecordedVictims(t *testing.T) {
	s := small()
	s.End, s.Warm = 40*sec, 3
	s.Starts.Victims = []int{2, 1}
	p := &script{steps: map[time.Duration]int{0: 3, 10 * sec: 2, 20 * sec: 1, 30 * sec: 0}}
	run1(t, s, Controller{New: func() Policy { return p }})
	ids := func(at int) (out []int) {
		for _, v := range p.seen[at].Pods {
			out = append(out, v.ID)
		}
		return out
	}
	require.Equal(t, [][]int{{1, 2, 3}, {1, 3}, {3}, nil}, [][]int{ids(5), ids(15), ids(25), ids(35)}, "the youngest would have gone first")
}

func TestARunWithoutRequests(t *testing.T) {
	s := small()
	s.End, s.Warm = 30*sec, 2
	r := run1(t, s, direct(map[time.Duration]int{0: 2, 10 * sec: 0}))
	require.InDelta(t, 2*10, r.GPUSeconds, 1e-9)
}

// A client that closes its connection frees its place, whatever it has got.
func TestClientsLeave(t *testing.T) {
	// One slot: A runs until it leaves at 5 s, B, queued until then, is served,
	// C leaves while it is queued, D while it is prefilled.
	s := small(
		trace.Request{Input: 1000, Output: 10_000}, trace.Request{At: sec, Input: 1000, Output: 101},
		trace.Request{At: 2 * sec, Input: 1000, Output: 1}, trace.Request{At: 3 * sec, Input: 1000, Output: 1},
	)
	s.Engine.Slots, s.Unbounded = 1, true
	s.Leaves = []Leave{{2, 4 * sec}, {0, 5 * sec}, {3, 7500 * ms}}
	s.KeepEnds = true
	r := run1(t, s, fixed(1))
	require.Equal(t, []time.Duration{5 * sec, 7 * sec, 4 * sec, 7500 * ms}, r.Ends)
	require.Equal(t, 2, r.Completed, "A had begun to answer, and B got all")
	require.Equal(t, 2, r.Lost)
	require.InDelta(t, 0+4+2+4, r.WaitSeconds, 1e-6, "A not, B 1-5, C 2-4, D 3-7")
	require.InDelta(t, 5+6, r.ServiceSeconds, 1e-6, "A 0-5, B 1-7")

	// At the activator: it never gets to a pod.
	s = small(trace.Request{Input: 1000, Output: 1})
	s.Leaves = []Leave{{0, 3 * sec}}
	r = run1(t, s, direct(map[time.Duration]int{0: 1}))
	require.Equal(t, 1, r.Lost)
	require.Zero(t, r.ServiceSeconds)

	// From the middle of a batch: the others are faster from then on, and a pod
	// that was to end ends with its last request.
	s = small(trace.Request{Output: 401}, trace.Request{Output: 401})
	s.Leaves = []Leave{{0, 4 * sec}}
	c := direct(map[time.Duration]int{0: 1, sec: 0})
	c.Warm = 1
	r = run1(t, s, c)
	require.Equal(t, 2, r.Completed)
	require.InDelta(t, 6, r.GPUSeconds, 1e-6, "200 tokens beside the other by 4 s, 200 alone by 6 s")
	s.Leaves = []Leave{{0, 4 * sec}, {1, 5 * sec}}
	require.InDelta(t, 5, run1(t, s, c).GPUSeconds, 1e-6)
}

// With the moments of its looks given a run depends on no seed.
func TestLoopsLookWhenTheyAreTold(t *testing.T) {
	s := small(trace.Request{At: 2300 * ms, Input: 1000, Output: 301})
	s.Seed, s.Cold, s.Tail = 7, true, 40*sec
	s.Began, s.Stamps = Epoch.Add(300*ms), true
	p := &script{}
	r := run1(t, s, Controller{
		Interval: 2 * sec, FirstLook: 1500 * ms, Wakes: 50 * ms, New: func() Policy { return p },
		Through: &Through{KEDA: KEDA{PollingInterval: 10 * sec}, Push: true, Polls: []time.Duration{8 * sec, 19 * sec}, Syncs: []time.Duration{4 * sec}, Sync: 10 * sec},
	})
	var looks []time.Duration
	for _, v := range p.seen[:4] {
		looks = append(looks, v.Now.Sub(s.Began))
	}
	require.Equal(t, []time.Duration{1500 * ms, 2350 * ms, 3500 * ms, 5500 * ms}, looks, "and 50 ms after a request began to wait")
	require.Equal(t, Move{2350 * ms, 0, 1, ByPush, "script"}, r.Moves[0])
	require.Equal(t, 29*sec, r.Moves[len(r.Moves)-1].At, "it is done at 26.35 s, and KEDA polls at 8, 19 and 29 s")
	require.Equal(t, Epoch.Add(2*sec), p.seen[2].Pods[0].Created, "created at 2.65 s of the clock: the API server writes whole seconds")
}

func TestRecordingsThatCannotBe(t *testing.T) {
	cases := map[string]struct {
		spoil func(*Scenario)
		says  string
	}{
		"NegativeEnd":        {func(s *Scenario) { s.End = -sec }, "end -1s"},
		"NoTimeToStart":      {func(s *Scenario) { s.Starts.Recorded = []time.Duration{0} }, "longer than 0"},
		"VictimZero":         {func(s *Scenario) { s.Starts.Victims = []int{0} }, "victims are counted from 1"},
		"StartingButWarm":    {func(s *Scenario) { s.Starting = 1 }, "1 starting replicas"},
		"StartingAboveMax":   {func(s *Scenario) { s.Cold, s.Starting, s.MaxReplicas = true, 3, 2 }, "3 starting replicas of at most 2"},
		"LeaveOfNobody":      {func(s *Scenario) { s.Leaves = []Leave{{1, sec}} }, "request 1 of 1"},
		"LeaveBeforeItComes": {func(s *Scenario) { s.Leaves = []Leave{{0, 0}} }, "before its request"},
		"LeavesOutOfOrder":   {func(s *Scenario) { s.Leaves = []Leave{{0, 3 * sec}, {0, 2 * sec}} }, "leave 2 comes before leave 1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := Scenario{Requests: []trace.Request{{At: sec}}}
			tc.spoil(&s)
			_, err := Run(t.Context(), s, fixed(1))
			require.ErrorIs(t, err, ErrScenario)
			require.ErrorContains(t, err, tc.says)
		})
	}
}

// What the activator has counted arrives with its reports, or at once when
// requests begin to wait.
func TestReportsAreLate(t *testing.T) {
	s := small(trace.Request{At: 100 * ms, Input: 1000, Output: 201}, trace.Request{At: 1200 * ms, Input: 1000, Output: 1}, trace.Request{At: 1600 * ms, Input: 1000, Output: 1})
	p := &script{steps: map[time.Duration]int{0: 1}}
	run1(t, s, Controller{Warm: 1, Reports: 700 * ms, Wakes: 10 * ms, Interval: 500 * ms, New: func() Policy { return p }})
	var counted []int
	for _, v := range p.seen[:6] {
		counted = append(counted, int(v.Arrivals))
	}
	require.Equal(t, []int{0, 0, 1, 2, 3, 3}, counted, "reports at 0, 0.7, 1.4 s; at 1.6 s the third begins to wait, which is looked at 10 ms later")
	require.Equal(t, s.Requests[2].At+10*ms, p.seen[4].Now.Sub(Epoch))
}
