package contender

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/pilotlight-dev/pilotlight/scaler/simulate"
	"github.com/pilotlight-dev/pilotlight/scaler/simulate/trace"
)

// Schedules is how many schedules Clairvoyant knows.
const Schedules = 24

// Clairvoyant follows the n-th (0 .. Schedules-1) of some schedules made with
// the whole trace in view. The cheapest of them says what foresight is worth.
// The scenario's engine, start-up times and MaxReplicas must be set.
//
// It is a heuristic: a search over a few families of schedules, each of which
// is simulated. The true optimum can only be cheaper, so a cost given as a
// multiple of it flatters us. It is no proof of a lower bound.
//
// A schedule comes from the pods' worth of work that arrives (podSeconds), its
// mean over a smoothing window, at some utilisation, at most MaxReplicas. Dips
// shorter than a hold are filled up, and everything is ordered one start-up time
// ahead. What comes before anything can be ready at all is worked off soon
// after. Where a scenario has stuck starts it orders so many more.
func Clairvoyant(s simulate.Scenario, n int) simulate.Controller {
	p50 := s.Starts.P50
	lead := (p50 + s.Starts.P95) / 2
	smooth := []int{20, 90}[n%2]
	use := []float64{0.6, 0.75, 0.9}[n/2%3]
	hold := []time.Duration{p50, 5 * p50, 20 * p50, never}[n/6%4]
	need := needed(offeredLoad(s, lead), smooth, use, s.MaxReplicas)
	plan := filled(need, int(min(hold/time.Second, math.MaxInt32)))
	extra := len(s.Starts.Stuck) + len(s.Starts.Failing)
	return schedule(fmt.Sprintf("clairvoyant %d", n+1), plan, lead, extra, s.MaxReplicas)
}

const never = time.Duration(math.MaxInt64)

// podSeconds is how long a request keeps a whole pod busy, and stays: its
// prefill, which is one at a time, or its share of a full batch, whichever is
// more.
func podSeconds(q trace.Request, e simulate.Engine) (work, stay float64) {
	prefill := float64(q.Input) / e.Prefill
	stay = prefill + float64(q.Output)*e.DecodeFull.Seconds()
	return max(prefill, stay/float64(e.Slots)), stay
}

// offeredLoad is the pods' worth of work in every second of the trace. From a
// cold start, what comes within the first lead comes in the quarter of it that
// follows.
func offeredLoad(s simulate.Scenario, lead time.Duration) []float64 {
	const longest = 600 // seconds over which one request is spread
	last := s.Requests[len(s.Requests)-1].At + 2*lead
	change := make([]float64, int(last/time.Second)+longest+2)
	for _, q := range s.Requests {
		at := q.At
		if s.Warm == 0 && at < lead {
			at = lead + at/4
		}
		work, stay := podSeconds(q, s.Engine)
		from, seconds := int(at/time.Second), min(max(int(stay), 1), longest)
		change[from] += work / float64(seconds)
		change[from+seconds] -= work / float64(seconds)
	}
	for i := 1; i < len(change); i++ {
		change[i] += change[i-1]
	}
	return change
}

// needed is the replicas for the mean load of the smooth seconds around each
// second, at least one where there is any, at most most.
func needed(load []float64, smooth int, use float64, most int) []int {
	need := make([]int, len(load))
	total := 0.0
	for i := -smooth / 2; i < len(load); i++ {
		if j := i + smooth/2; j < len(load) {
			total += load[j]
		}
		if j := i - (smooth - smooth/2); j >= 0 {
			total -= load[j]
		}
		if i < 0 || total < 1e-6 {
			continue
		}
		need[i] = min(max(ceil(total/float64(smooth)/use), 1), most)
	}
	return need
}

// filled raises every dip of need that is shorter than hold seconds to the
// lower of what is around it.
func filled(need []int, hold int) []int {
	out := slices.Clone(need)
	for level := range slices.Max(need) {
		since := -1 // the last second above level
		for i, n := range need {
			if n <= level {
				continue
			}
			if since >= 0 && i-since-1 <= hold {
				for j := since + 1; j < i; j++ {
					out[j] = max(out[j], level+1)
				}
			}
			since = i
		}
	}
	return out
}

// schedule has at every second what plan needs within lead of it.
func schedule(name string, plan []int, lead time.Duration, more, most int) simulate.Controller {
	ahead := int(lead/time.Second) + 1
	for i := range plan {
		plan[i] = slices.Max(plan[i:min(i+ahead, len(plan))])
	}
	return simulate.Controller{
		Name: name, Source: "search over schedules made with the whole trace in view",
		New: stateless(name, func(v simulate.View) simulate.Proposal {
			at := int(v.Now.Sub(simulate.Epoch) / time.Second)
			switch {
			case at < len(plan) && plan[at] > 0:
				return direct(min(plan[at]+more, most), "schedule")
			case v.Held+v.InFlight > 0:
				return direct(1, "late")
			}
			return direct(0, "schedule")
		}),
	}
}
