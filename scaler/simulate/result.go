package simulate

import (
	"math"
	"slices"
	"time"
)

// A Result is what a run cost and how it went.
//
// Every request is in one of Completed, Streaming, Waiting and Lost.
type Result struct {
	Scenario, Controller string

	Requests  int
	Completed int
	Streaming int // had their first token when the run ended, not their last
	Waiting   int // were still waiting for it
	Lost      int // their clients had left

	// Wait is from a request's arrival until the engine begins with its
	// prompt: what more replicas could have made shorter. FirstToken adds the
	// prefill, which they could not. Both count the requests that were still
	// waiting when the run ended with the time they had waited until then;
	// Wait counts the lost as well.
	Wait, FirstToken Quantiles
	WaitSeconds      float64 // sum of Wait
	OverSLO          int     // first token later than Scenario.SLO, or lost

	ServiceSeconds float64 // from dispatch to done, over the completed
	GPUSeconds     float64 // of all pods, from creation to end
	Starts         int     // pods created
	PeakReplicas   int     // most replicas asked for
	Flaps          int     // scale-outs followed by a scale-in within Scenario.FlapWithin: a start for nothing
	Regrets        int     // scale-ins followed by a scale-out within it: a start that keeping the replica would have saved

	Duration time.Duration // simulated
	Moves    []Move        // every change of the replicas
	Timeline []Moment      // every Scenario.SampleEvery

	// Ends are when each request got its last token, or its client left; 0 = not
	// yet. Kept with Scenario.KeepEnds.
	Ends []time.Duration
}

// Quantiles of a number of seconds.
type Quantiles struct{ Mean, P50, P95, P99, Max float64 }

// A Move is one change of the replicas asked for.
type Move struct {
	At       time.Duration
	From, To int
	By       string // ByPush, ByPoll, ByHPA, ByPolicy
	Reason   string // the policy's at that time
}

// A Moment is how things stood at one time.
type Moment struct {
	At          time.Duration
	Arrivals    float64 // requests per second since the moment before
	Held        int     // requests at the activator
	Queued      int     // requests in pods without a slot
	Running     int     // requests with a slot
	Replicas    int     // asked for
	Wanted      int     // by the policy
	Starting    int     // pods
	Ready       int
	Terminating int
	Active      bool
	Reason      string
}

// Prices turn a Result into money.
type Prices struct {
	GPUHour     float64 // $ per GPU-hour
	WaitSeconds float64 // $ per request-second of waiting
}

// Cost is GPU-seconds and waited request-seconds at their prices, in $. A lost
// request counts with what it waited until it left and with nothing more, so
// that who loses requests looks cheap: compare costs where Lost is the same.
func (r *Result) Cost(p Prices) float64 {
	return p.GPUHour*r.GPUSeconds/3600 + p.WaitSeconds*r.WaitSeconds
}

// GPUHours is GPUSeconds in hours.
func (r *Result) GPUHours() float64 { return r.GPUSeconds / 3600 }

// quantiles sorts seconds.
func quantiles(seconds []float32) Quantiles {
	n := len(seconds)
	if n == 0 {
		return Quantiles{}
	}
	slices.Sort(seconds)
	sum := 0.0
	for _, x := range seconds {
		sum += float64(x)
	}
	at := func(q float64) float64 { return float64(seconds[int(math.Ceil(q*float64(n)))-1]) }
	return Quantiles{Mean: sum / float64(n), P50: at(0.50), P95: at(0.95), P99: at(0.99), Max: at(1)}
}

// flaps counts changes of mind within d: scale-outs followed by a scale-in, and
// scale-ins followed by a scale-out.
func flaps(moves []Move, d time.Duration) (outIn, inOut int) {
	for i := 1; i < len(moves); i++ {
		before, after := moves[i-1], moves[i]
		if after.At-before.At > d {
			continue
		}
		switch down, up := before.To < before.From, after.To > after.From; {
		case down && up:
			inOut++
		case !down && !up:
			outIn++
		}
	}
	return outIn, inOut
}

// sample adds a moment to the timeline.
func (r *run) sample(p Proposal) {
	m := Moment{At: r.now, Held: r.held, Replicas: r.replicas, Wanted: p.Replicas, Active: p.Active, Reason: p.Reason}
	m.Starting, m.Ready, m.Terminating = r.counts()
	for _, pod := range r.pods {
		m.Queued += pod.waiting
		m.Running += pod.used
	}
	if r.now > 0 {
		m.Arrivals = float64(r.arrived-r.sampled) / r.s.SampleEvery.Seconds()
	}
	r.sampled = r.arrived
	r.result.Timeline = append(r.result.Timeline, m)
}
