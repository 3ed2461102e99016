package contender

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/trigger"
	"github.com/pilotlight-dev/pilotlight/scaler/policy"
	"github.com/pilotlight-dev/pilotlight/scaler/simulate"
	"github.com/pilotlight-dev/pilotlight/scaler/simulate/trace"
)

// seen is a view of some pods that are Ready, each running and with waiting
// as given, and some that start.
func seen(ready, running, waiting, starting, held int) simulate.View {
	v := simulate.View{Now: simulate.Epoch.Add(time.Hour), Replicas: ready + starting, Held: held, InFlight: ready * (running + waiting)}
	for range ready {
		v.Pods = append(v.Pods, simulate.PodView{Created: simulate.Epoch, ReadyAt: simulate.Epoch, Running: running, Waiting: waiting})
	}
	for range starting {
		v.Pods = append(v.Pods, simulate.PodView{Created: simulate.Epoch})
	}
	return v
}

func observe(c simulate.Controller, views ...simulate.View) simulate.Proposal {
	var p simulate.Proposal
	one := c.New()
	for _, v := range views {
		p = one.Observe(v)
	}
	return p
}

func TestFormulas(t *testing.T) {
	fast := DefaultWVA(16)
	cases := map[string]struct {
		reason   string
		c        simulate.Controller
		v        simulate.View
		value    float64
		replicas int
		active   bool
	}{
		"TutorialIsBlindToRunning": {"16 run and nothing waits: idle", Tutorial(DefaultWindow), seen(1, 16, 0, 0, 0), 0, 0, false},
		"TutorialWaiting":          {"2 pods with 4 waiting each and 3 held: 11/5", Tutorial(DefaultWindow), seen(2, 16, 4, 0, 3), 11, 3, true},
		"RunningWaiting":           {"2 x 20 + 3 over 16", RunningWaiting(16, DefaultWindow), seen(2, 16, 4, 0, 3), 43, 3, true},
		"HTTPAddOn":                {"in flight + held, starting pods or not", HTTPAddOn(16, DefaultWindow), seen(2, 16, 0, 3, 1), 33, 3, true},
		"FreezeDecides":            {"nothing starts", Freeze(16, DefaultWindow), seen(2, 16, 0, 0, 1), 33, 3, true},
		"FreezeFreezes":            {"one starts: stay at three, whatever is held", Freeze(16, DefaultWindow), seen(2, 16, 0, 1, 99), 48, 3, true},
		"LLMDFits":                 {"max(1/1, 20/16) <= 2 replicas: the demand", DefaultLLMD(16).Controller(), seen(2, 10, 0, 0, 1), 1.25, 2, true},
		"LLMDQueue":                {"9 queued, 2 of 4 replicas pending: max(9-2, 4)", DefaultLLMD(16).Controller(), seen(2, 16, 0, 2, 9), 7, 7, true},
		"LLMDFloor":                {"5 queued, 2 of 4 pending: not below what there is", DefaultLLMD(16).Controller(), seen(2, 16, 0, 2, 5), 4, 4, true},
		"LLMDIdle":                 {"nothing", DefaultLLMD(16).Controller(), seen(0, 0, 0, 0, 0), 0, 0, false},
		"WVAGrows":                 {"64/0.85 - 2 x 16 = 43.3, three pods more", fast.Controller(), seen(2, 16, 0, 0, 32), 5, 5, true},
		"WVAPendingCounts":         {"64/0.85 - 5 x 16 < 0: what starts is enough", fast.Controller(), seen(2, 16, 0, 3, 32), 5, 5, true},
		"WVAShrinks":               {"4 x 16 - 20/0.7 = 35.4, two pods fewer", fast.Controller(), seen(4, 5, 0, 0, 0), 2, 2, true},
		"WVAKeepsOne":              {"never to zero by spare", fast.Controller(), seen(1, 0, 0, 0, 0), 1, 1, true},
		"WVAAtZero":                {"nothing ever completed", fast.Controller(), seen(0, 0, 0, 0, 0), 0, 0, false},
		"WVAWakes":                 {"one held at zero", fast.Controller(), seen(0, 0, 0, 0, 1), 1, 1, true},
		"Fixed":                    {"always", Fixed(3), seen(0, 0, 0, 0, 0), 3, 3, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := observe(tc.c, tc.v)
			require.True(t, p.Known)
			require.InDelta(t, tc.value, p.Value, 1e-9, tc.reason)
			require.Equal(t, tc.replicas, p.Replicas, tc.reason)
			require.Equal(t, tc.active, p.Active, tc.reason)
			require.NotEmpty(t, p.Reason)
		})
	}
}

// ticks repeats a view every d.
func ticks(v simulate.View, n int, from time.Time, d time.Duration) []simulate.View {
	var all []simulate.View
	for i := range n {
		v.Now = from.Add(time.Duration(i) * d)
		all = append(all, v)
	}
	return all
}

func TestKnativeStory(t *testing.T) {
	p := DefaultKnative(10)
	p.Utilization = 1
	k := p.Controller().New()
	now := simulate.Epoch
	play := func(v simulate.View, seconds int) simulate.Proposal {
		var out simulate.Proposal
		for _, v := range ticks(v, seconds/2, now, knativeTick) {
			out = k.Observe(v)
			now = v.Now.Add(knativeTick)
		}
		return out
	}
	require.Equal(t, direct(0, "idle"), play(seen(0, 0, 0, 0, 0), 60))
	require.Equal(t, direct(5, "panic"), play(seen(0, 0, 0, 0, 50), 6), "50 held at zero: five panic pods, at least twice the one that counts as ready")
	require.Equal(t, direct(5, "panic"), play(seen(5, 2, 0, 0, 0), 60), "no shrinking in panic")
	require.Equal(t, direct(2, "stable"), play(seen(5, 2, 0, 0, 0), 2), "a minute later: 10 in flight want one, at most half may go at a time")
	require.Equal(t, direct(1, "stable"), play(seen(2, 2, 0, 0, 0), 2))
	require.Equal(t, direct(1, "grace"), play(seen(1, 0, 0, 0, 0), 64), "a minute until the mean is zero, then the grace")
	require.Equal(t, direct(0, "idle"), play(seen(1, 0, 0, 0, 0), 30))
}

func TestKubeAIStory(t *testing.T) {
	k := DefaultKubeAI(10).Controller().New()
	now := simulate.Epoch
	play := func(v simulate.View, seconds int) simulate.Proposal {
		var out simulate.Proposal
		for _, v := range ticks(v, seconds, now, time.Second) {
			out = k.Observe(v)
			now = v.Now.Add(time.Second)
		}
		return out
	}
	require.Equal(t, 0, play(seen(0, 0, 0, 0, 0), 2).Replicas)
	require.Equal(t, direct(1, "from-zero"), play(seen(0, 0, 0, 0, 1), 1), "the proxy does not wait for a tick")
	play(seen(1, 30, 0, 0, 0), 307) // 30 samples of 30 among 60
	require.Equal(t, 2, play(seen(1, 30, 0, 0, 0), 1).Replicas, "half a window of 30 in flight: a mean of 15")
	require.Equal(t, 3, play(seen(2, 15, 0, 0, 0), 300).Replicas, "a whole one: 30")
	require.Equal(t, direct(3, "scale-down-delay"), play(seen(3, 0, 0, 0, 0), 200), "20 idle samples: a mean of 20 wants two")
	require.Equal(t, 3, play(seen(3, 0, 0, 0, 0), 29).Replicas)
	require.Equal(t, direct(2, "mean"), play(seen(3, 0, 0, 0, 0), 1), "30 s later it gets two")
}

func TestWVARetention(t *testing.T) {
	w := DefaultWVA(16).Controller().New()
	v := seen(1, 1, 0, 0, 0)
	v.Completions = 5
	require.True(t, w.Observe(v).Active)
	v.Now = v.Now.Add(DefaultWVA(16).Retention - time.Second)
	require.True(t, w.Observe(v).Active)
	v.Now = v.Now.Add(time.Second)
	require.False(t, w.Observe(v).Active, "ten minutes without a completed request look idle, although one runs")
}

func base(t *testing.T, s trace.Shape) simulate.Scenario {
	t.Helper()
	requests, err := s.Requests(trace.Options{Seed: 1})
	require.NoError(t, err)
	return simulate.Scenario{
		Name: "base", Requests: requests, Seed: 1, MaxReplicas: 8, TargetRequests: 16,
		Engine: simulate.Engine{Slots: 16, Prefill: 8000, DecodeAlone: 20 * time.Millisecond, DecodeFull: 40 * time.Millisecond},
		Starts: simulate.Starts{P50: 90 * time.Second, P95: 150 * time.Second},
	}
}

func our(t *testing.T) Ours {
	t.Helper()
	parsed, err := trigger.Parse(map[string]string{"targetRequests": "16", "modelName": "m"})
	require.NoError(t, err)
	c := Config(parsed, 0, 8, Recommended())
	require.NoError(t, c.Validate())
	require.Zero(t, c.Tolerance)
	require.Equal(t, 30*time.Second, c.Cooldown)
	return Ours{Config: c, ColdStart: policy.ColdStart{P50: 90 * time.Second, P95: 150 * time.Second}}
}

// Everybody brings a flash crowd from zero through, and goes back to sleep
// where that is in its nature.
func TestEveryContenderServesAFlashCrowd(t *testing.T) {
	s := base(t, trace.Flash(4, 0.02, time.Minute, 5*time.Minute, 20*time.Minute))
	s.Tail = 90 * time.Minute
	for _, c := range []simulate.Controller{
		our(t).Controller(), Tutorial(DefaultWindow), RunningWaiting(16, DefaultWindow), HTTPAddOn(16, DefaultWindow),
		Freeze(16, DefaultWindow), DefaultKnative(16).Controller(), DefaultKubeAI(16).Controller(), DefaultLLMD(16).Controller(),
		DefaultWVA(16).Controller(), Fixed(8), Clairvoyant(s, 0), Clairvoyant(s, Schedules-1),
	} {
		t.Run(c.Name, func(t *testing.T) {
			r, err := simulate.Run(t.Context(), s, c)
			require.NoError(t, err)
			require.Equal(t, len(s.Requests), r.Completed)
			require.NotEmpty(t, c.Source)
			require.Equal(t, c.New().Name(), c.Name)
			if c.Warm == 0 {
				require.Equal(t, 0, r.Moves[len(r.Moves)-1].To, "asleep at the end")
			}
		})
	}
}

// A first start that never gets Ready stops the freezing ones for good, and
// costs us no more than the time until it is expired.
func TestStuckFirstStart(t *testing.T) {
	s := base(t, trace.Constant(1, 20*time.Minute))
	s.Starts.Stuck = []int{1}
	frozen, err := simulate.Run(t.Context(), s, Freeze(16, DefaultWindow))
	require.NoError(t, err)
	require.Zero(t, frozen.Completed)
	ours, err := simulate.Run(t.Context(), s, our(t).Controller())
	require.NoError(t, err)
	require.Equal(t, len(s.Requests), ours.Completed)
	require.Less(t, ours.Wait.Max, 300.0)
}

// Foresight is worth something: from a cold start the best schedule costs less
// than any policy without it.
func TestClairvoyantIsCheapest(t *testing.T) {
	s := base(t, trace.Square(6, 0, 20*time.Minute, time.Hour))
	price := simulate.Prices{GPUHour: 2, WaitSeconds: 0.001}
	cost := func(c simulate.Controller) float64 {
		r, err := simulate.Run(t.Context(), s, c)
		require.NoError(t, err)
		return r.Cost(price)
	}
	best := cost(Clairvoyant(s, 0))
	for n := 1; n < Schedules; n++ {
		best = min(best, cost(Clairvoyant(s, n)))
	}
	for _, c := range []simulate.Controller{our(t).Controller(), HTTPAddOn(16, DefaultWindow), DefaultKnative(16).Controller()} {
		require.Greater(t, cost(c), best, c.Name)
	}
}

func TestFilledDips(t *testing.T) {
	require.Equal(t, []int{0, 2, 2, 1, 1, 1, 3, 0}, filled([]int{0, 2, 2, 0, 0, 1, 3, 0}, 2), "a dip of two to zero is filled to the lower side")
	require.Equal(t, []int{0, 2, 2, 2, 2, 2, 3, 0}, filled([]int{0, 2, 2, 0, 0, 1, 3, 0}, 9))
	require.Equal(t, []int{0, 2, 0, 0, 2, 0}, filled([]int{0, 2, 0, 0, 2, 0}, 1))
}

// What a scaler and an activator that have just started do not know yet, a fresh
// policy does not know.
func TestFresh(t *testing.T) {
	o := our(t)
	o.ColdStart = policy.ColdStart{P50: 3 * time.Second}
	v := seen(0, 0, 0, 0, 8)
	v.Arrivals = 8
	idle := simulate.View{Now: v.Now.Add(-time.Second)}
	counted := observe(o.Controller(), idle, v)
	o.Fresh = true
	require.Less(t, observe(o.Controller(), idle, v).Replicas, counted.Replicas, "the activator counts from its first request on, which it holds: no rate yet")

	o.Uncounted = 1
	later := v
	later.Now = v.Now.Add(time.Second)
	require.Equal(t, counted.Replicas, observe(o.Controller(), idle, v, later).Replicas, "if the first report has only one of them, the next counts the others")

	o.Uncounted = 8
	few := v
	few.Arrivals, few.Held, few.Now = 4, 4, v.Now.Add(-time.Millisecond)
	require.Equal(t, observe(o.Controller(), idle, v).Replicas, observe(o.Controller(), idle, few, v).Replicas, "a look before that report counts nothing")

	one := &ours{Ours: o}
	require.Equal(t, policy.ColdStart{P50: 3 * time.Second, P95: 5 * time.Second}, one.coldStart(v), "what the trigger says, and the usual spread")
	for n := range 3 {
		v.Pods = append(v.Pods, simulate.PodView{ID: n + 1, Created: v.Now.Add(-20 * time.Second), ReadyAt: v.Now})
	}
	require.Equal(t, 20*time.Second, one.coldStart(v).P50.Round(time.Millisecond), "three starts are believed")
}
