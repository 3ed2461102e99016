package simulate

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/pilotlight-dev/pilotlight/scaler/simulate/trace"
)

// Epoch is the moment at which a simulation begins, unless its Scenario says
// otherwise.
var Epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A Scenario is what happens to a target. Zero values stand for the defaults.
type Scenario struct {
	Name     string
	Requests []trace.Request // in order of arrival; only read
	Tail     time.Duration   // how long the run goes on after the last arrival; 0 = DefaultTail
	End      time.Duration   // when the run ends; 0 = Tail after the last arrival. With an End there may be no requests
	Leaves   []Leave         // clients that close their connections, in order of time

	Engine Engine
	Starts Starts
	Gauges Gauges

	MinReplicas    int
	MaxReplicas    int           // 0 = DefaultMaxReplicas
	TargetRequests float64       // requests that a replica should carry, and the activator's bound; 0 = Engine.Slots
	Warm           int           // replicas that are Ready at the beginning
	Cold           bool          // none is Ready at the beginning, whatever Warm, Controller.Warm and MinReplicas say
	Starting       int           // of a Cold scenario: replicas asked for at the beginning, whose pods begin to start
	Unbounded      bool          // the activator lets go at once, and requests queue inside pods
	Patience       time.Duration // a client without a first token leaves after this; 0 = never

	SLO         time.Duration // wait for the first token that is still good; 0 = DefaultSLO
	FlapWithin  time.Duration // see Result.Flaps; 0 = Starts.P50
	SampleEvery time.Duration // of the timeline; 0 = no timeline
	KeepEnds    bool          // keep Result.Ends

	// Began is the moment at which the run begins; zero = Epoch. Timestamps of
	// pods have whole seconds where Stamps is set, as the API server's have.
	Began  time.Time
	Stamps bool

	// Seed draws the start-up times and the phases of all loops. With seed 0
	// every loop starts at time zero, and starts are drawn all the same.
	Seed uint64
}

// Defaults of a Scenario.
const (
	DefaultTail        = 15 * time.Minute
	DefaultMaxReplicas = 8
	DefaultSLO         = 10 * time.Second
)

// Engine is what one pod can do. The defaults are those of the policy study: a
// mid-size model on one GPU.
type Engine struct {
	Slots       int           // requests in the batch; 0 = 16
	Prefill     float64       // prompt tokens per second, one request at a time; 0 = 8000
	DecodeAlone time.Duration // a token of a request that is alone; 0 = 20 ms
	DecodeFull  time.Duration // a token of each request of a full batch, at least DecodeAlone; 0 = 40 ms (or DecodeAlone if more)
	KVTokens    int           // prompt and output tokens that fit together; 0 = no limit
}

// A Leave is a client that closes its connection, whatever it has got by then.
// One that has had its first token counts as completed, as the activator counts
// it; one that has not is lost.
type Leave struct {
	Request int // index of Scenario.Requests
	At      time.Duration
}

// Starts says how long pods take to get Ready.
type Starts struct {
	P50, P95 time.Duration   // of a lognormal distribution; 0 = 90 s and 150 s. Equal: every start takes P50
	Recorded []time.Duration // what the first starts took, in order; those after them are drawn
	Stuck    []int           // starts that never get Ready: 1 is the first
	Failing  []int           // the same, and seen to fail (crash loop, cannot pull) after FailsAfter

	FailsAfter time.Duration // 0 = 20 s
	Victims    []int         // pods in the order in which they are taken away, 1 is the first; those not named go as usual, after them
	NodeChance float64       // probability that a start needs a new node first, 0 .. 1
	NodeDelay  time.Duration // what that takes
}

// Gauges says how late an engine's metrics are.
type Gauges struct {
	Cold  time.Duration // running and waiting read 0 for so long after the first dispatch (vLLM: up to 20 s)
	Every time.Duration // and move only once in so long after that; 0 = always fresh
}

// end is when the run ends.
func (s Scenario) end() time.Duration {
	if s.End > 0 {
		return s.End
	}
	return s.Requests[len(s.Requests)-1].At + s.Tail
}

// at is the moment so long after the beginning.
func (s Scenario) at(d time.Duration) time.Time {
	if s.Began.IsZero() {
		return Epoch.Add(d)
	}
	return s.Began.Add(d)
}

// stamp is at as the API server writes it.
func (s Scenario) stamp(d time.Duration) time.Time {
	if s.Stamps {
		return s.at(d).Truncate(time.Second)
	}
	return s.at(d)
}

// ErrScenario is wrapped by the errors of Run about its arguments.
var ErrScenario = errors.New("impossible scenario")

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// complete fills in the defaults and reports every fault at once.
func (s Scenario) complete() (Scenario, error) {
	orDefault(&s.Tail, DefaultTail)
	orDefault(&s.MaxReplicas, max(DefaultMaxReplicas, s.MinReplicas))
	orDefault(&s.Engine.Slots, 16)
	orDefault(&s.Engine.Prefill, 8000)
	orDefault(&s.Engine.DecodeAlone, 20*time.Millisecond)
	orDefault(&s.Engine.DecodeFull, max(40*time.Millisecond, s.Engine.DecodeAlone))
	orDefault(&s.TargetRequests, float64(s.Engine.Slots))
	if s.Starts.P50 == 0 && s.Starts.P95 == 0 {
		s.Starts.P50, s.Starts.P95 = 90*time.Second, 150*time.Second
	}
	orDefault(&s.Starts.FailsAfter, 20*time.Second)
	orDefault(&s.SLO, DefaultSLO)
	orDefault(&s.FlapWithin, s.Starts.P50)
	return s, s.validate()
}

func (s Scenario) validate() error {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("%w: "+format, append([]any{ErrScenario}, args...)...))
		}
	}
	e, st := s.Engine, s.Starts
	check(len(s.Requests) > 0 || s.End > 0, "no requests")
	for i := 1; i < len(s.Requests); i++ {
		if s.Requests[i].At < s.Requests[i-1].At {
			check(false, "request %d comes before request %d", i+1, i)
			break
		}
	}
	check(len(s.Requests) == 0 || s.Requests[0].At >= 0, "the first request comes before time zero")
	check(s.Tail > 0, "tail %v must be above 0", s.Tail)
	check(s.End >= 0, "end %v must not be negative", s.End)
	faults = append(faults, s.checkLeaves()...)
	check(e.Slots > 0, "slots %d must be above 0", e.Slots)
	check(e.Prefill > 0 && !math.IsInf(e.Prefill, 0), "prefill %v must be above 0", e.Prefill)
	check(e.DecodeAlone > 0, "decode %v must be above 0", e.DecodeAlone)
	check(e.DecodeFull >= e.DecodeAlone, "decode of a full batch %v must be at least that of one request, %v", e.DecodeFull, e.DecodeAlone)
	check(e.KVTokens >= 0, "KV limit %d must not be negative", e.KVTokens)
	check(st.P50 > 0 && st.P95 >= st.P50, "start-up P50 %v and P95 %v must be above 0 and in order", st.P50, st.P95)
	check(st.NodeChance >= 0 && st.NodeChance <= 1 && st.NodeDelay >= 0, "node chance %v and delay %v", st.NodeChance, st.NodeDelay)
	check(!slices.ContainsFunc(st.Recorded, func(d time.Duration) bool { return d <= 0 }), "recorded starts must take longer than 0")
	check(st.FailsAfter > 0, "starts that fail after %v must be seen after time zero", st.FailsAfter)
	belowOne := func(n int) bool { return n < 1 }
	check(!slices.ContainsFunc(st.Stuck, belowOne) && !slices.ContainsFunc(st.Failing, belowOne), "stuck and failing starts are counted from 1")
	check(!slices.ContainsFunc(st.Victims, belowOne), "victims are counted from 1")
	check(s.SLO > 0, "SLO %v must be above 0", s.SLO)
	check(s.Gauges.Cold >= 0 && s.Gauges.Every >= 0, "gauge lags must not be negative")
	check(s.MinReplicas >= 0 && s.MaxReplicas >= max(1, s.MinReplicas), "replicas between %d and %d", s.MinReplicas, s.MaxReplicas)
	check(s.TargetRequests >= 1, "target of %v requests must be at least 1", s.TargetRequests)
	check(s.Warm >= 0 && s.Warm <= s.MaxReplicas, "%d warm replicas of at most %d", s.Warm, s.MaxReplicas)
	check(s.Starting >= 0 && s.Starting <= s.MaxReplicas && (s.Cold || s.Starting == 0), "%d starting replicas of at most %d of a cold scenario", s.Starting, s.MaxReplicas)
	check(s.Patience >= 0 && s.SampleEvery >= 0, "patience and sampling must not be negative")
	return errors.Join(faults...)
}

// checkLeaves returns the first fault of the leaves, if there is one.
func (s Scenario) checkLeaves() []error {
	for i, l := range s.Leaves {
		switch {
		case l.Request < 0 || l.Request >= len(s.Requests):
			return []error{fmt.Errorf("%w: leave %d is of request %d of %d", ErrScenario, i+1, l.Request, len(s.Requests))}
		case l.At < s.Requests[l.Request].At:
			return []error{fmt.Errorf("%w: leave %d comes before its request", ErrScenario, i+1)}
		case i > 0 && l.At < s.Leaves[i-1].At:
			return []error{fmt.Errorf("%w: leave %d comes before leave %d", ErrScenario, i+1, i)}
		}
	}
	return nil
}
