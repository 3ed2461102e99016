package replay

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/pilotlight-dev/pilotlight/internal/scaledobject"
	"github.com/pilotlight-dev/pilotlight/scaler/policy"
	"github.com/pilotlight-dev/pilotlight/scaler/simulate"
	"github.com/pilotlight-dev/pilotlight/scaler/simulate/contender"
	"github.com/pilotlight-dev/pilotlight/test/e2e/timeline"
)

// input is a recorded scenario, read.
type input struct {
	trace  *timeline.Trace
	points []timeline.Point
	object scaledobject.ScaledObject
	began  time.Time
	ended  float64
}

func read(t *timeline.Timeline) (input, error) {
	if t.Trace == nil || len(t.Trace.ScaledObject) == 0 {
		return input{}, ErrNoTrace
	}
	so, err := scaledobject.Parse("the ScaledObject", t.Trace.ScaledObject)
	if err != nil {
		return input{}, err
	}
	if so.Triggers > 1 {
		return input{}, fmt.Errorf("the simulator has one trigger, the ScaledObject %d", so.Triggers)
	}
	return input{trace: t.Trace, points: t.Points, object: so, began: t.Began, ended: t.Ended}, nil
}

// token is what the simulated engine takes for one: requests are as long as they
// were, to the millisecond, whatever else runs.
const token = time.Millisecond

// slots is so many that requests wait nowhere but at the activator: what one
// waited inside an engine is part of how long it was served.
const slots = 1 << 10

// scenario is what the simulator has no say in, but for the requests.
func (in input) scenario() simulate.Scenario {
	return simulate.Scenario{
		MinReplicas: in.object.MinReplicas, MaxReplicas: in.object.MaxReplicas, TargetRequests: in.object.Trigger.TargetRequests,
		Engine: simulate.Engine{Slots: slots, DecodeAlone: token, DecodeFull: token},
		Began:  in.began.Add(duration(in.trace.Began)), Stamps: true,
		Starts: in.starts(), Cold: true, Starting: int(in.trace.Replicas),
		End: in.since(in.ended) + 5*max(in.object.PollingInterval, duration(in.trace.HPASync)),
	}
}

func (in input) since(seconds float64) time.Duration { return duration(seconds - in.trace.Began) }

// starts are the pods' times to ready. One that was ended before it was Ready
// would have taken as long as the others, or longer than it lived; and where
// none ever got Ready, none does. One that was there before the ScaledObject
// begins with it, and has so much less to go.
func (in input) starts() simulate.Starts {
	var took []time.Duration
	victims := in.victims()
	for _, s := range in.trace.Starts {
		if s.Took > 0 {
			took = append(took, duration(s.Took))
		}
	}
	if len(took) == 0 {
		all := simulate.Starts{P50: time.Second, P95: time.Second, Victims: victims}
		for n := 1; n <= neverReady; n++ {
			all.Stuck = append(all.Stuck, n)
		}
		return all
	}
	slices.Sort(took)
	usual := took[len(took)/2]
	out := simulate.Starts{P50: usual, P95: usual, Victims: victims}
	for _, s := range in.trace.Starts {
		one := duration(s.Took)
		if s.Took <= 0 {
			one = max(usual, duration(s.Lived)+token)
		}
		out.Recorded = append(out.Recorded, max(one+min(in.since(s.At), 0), token))
	}
	return out
}

// wakes is what the news that requests wait takes from the activator to the
// scaler's decision; reports is how often the activator tells what has changed
// otherwise.
const (
	wakes   = 10 * time.Millisecond
	reports = 100 * time.Millisecond
)

// victims are the pods that were ended, the first first. Which of several pods of
// a similar age goes is for the ReplicaSet to say, and how long the one that stays
// has been Ready matters (the lease, rule 9 of the policy).
func (in input) victims() []int {
	var out []int
	end := func(i int) float64 { s := in.trace.Starts[i-1]; return s.At + s.Lived }
	for i := range in.trace.Starts {
		if end(i+1) < in.ended-0.01 {
			out = append(out, i+1)
		}
	}
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(end(a), end(b)) })
	return out
}

// neverReady is more pods than a scenario makes.
const neverReady = 100

// controller is our policy behind KEDA and the HPA, whose loops look when the
// recorded ones did.
func (in input) controller() simulate.Controller {
	through := contender.Through(in.object)
	through.Polls, through.KEDA.PollingInterval = in.moments(in.trace.Polls, in.object.PollingInterval)
	through.Syncs, through.Sync = in.moments(in.trace.Syncs, duration(in.trace.HPASync))
	c := contender.Ours{
		Config: contender.Config(in.object.Trigger, in.object.MinReplicas, in.object.MaxReplicas, through),
		Fresh:  true, Uncounted: in.uncounted(), ColdStart: policy.ColdStart{P50: in.object.Trigger.ColdStart},
		Through: through,
	}.Controller()
	c.Wakes, c.Reports = wakes, reports
	c.FirstLook, c.Interval = in.loop(in.trace.Looks, duration(in.trace.Interval))
	return c
}

// uncounted is how many requests had come when the scaler first heard of the
// activator: by a hair one of a burst, or all. It is what is missing from the
// rate that it counted soon afterwards.
func (in input) uncounted() int {
	if len(in.trace.Requests) == 0 {
		return 0
	}
	window := min(max(in.object.Trigger.ColdStart/4, leastWindow), mostWindow).Truncate(time.Second).Seconds()
	first := in.trace.Requests[0].At
	for _, p := range in.points {
		if p.Seconds < first+settled || p.Seconds > first+leastWindow.Seconds() {
			continue
		}
		came, late := 0, false
		for _, r := range in.trace.Requests {
			if r.At <= p.Seconds {
				came++
				late = late || r.At > p.Seconds-settled
			}
		}
		if !late { // a point may be as old as the scaler's interval
			return max(came-int(math.Round(p.Arrivals*window)), 1)
		}
	}
	return 0
}

// The window in which the policy counts arrivals (its rule 3), and how long after
// a request a point surely knows of it.
const (
	leastWindow = 15 * time.Second
	mostWindow  = time.Minute
	settled     = 1.2 // seconds
)

// loop is when a loop looked for the first time, and how often it did: the line
// through all looks that were noticed, by medians, for some were out of turn. It
// is a little longer than it should be by what the loop's own work takes. Where
// less than two were noticed nothing is known but how long it should be.
func (in input) loop(looks []float64, every time.Duration) (first, period time.Duration) {
	nominal := every.Seconds()
	if len(looks) == 0 || nominal <= 0 {
		return 0, every
	}
	var periods, phases []float64
	for i, a := range looks {
		for _, b := range looks[i+1:] {
			if n := math.Round((b - a) / nominal); n > 0 {
				periods = append(periods, (b-a)/n)
			}
		}
	}
	p := nominal
	if len(periods) > 0 {
		p = min(max(median(periods), nominal), nominal*(1+mostWork))
	}
	for _, look := range looks {
		off := math.Mod(look-looks[0], p)
		if off > p/2 {
			off -= p
		}
		phases = append(phases, off)
	}
	phase := math.Mod(looks[0]+median(phases)-in.trace.Began, p)
	if phase < 0 {
		phase += p
	}
	return duration(phase), duration(p)
}

// moments are those at which a loop looked: the ones that were noticed, and
// between them those that must have been; and how often it looks after them.
func (in input) moments(noticed []float64, every time.Duration) (at []time.Duration, period time.Duration) {
	first, period := in.loop(noticed, every)
	last := first - period
	for _, look := range noticed {
		next := in.since(look)
		n := math.Round(float64(next-last) / float64(period))
		if n < 1 {
			continue // out of turn
		}
		for i := 1.0; i < n; i++ {
			at = append(at, last+time.Duration(i/n*float64(next-last)))
		}
		at, last = append(at, next), next
	}
	return at, period
}

// mostWork is how much longer than its interval a loop may be, as a share.
const mostWork = 0.05

func median(x []float64) float64 {
	slices.Sort(x)
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}
