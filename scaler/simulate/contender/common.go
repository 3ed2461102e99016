package contender

import (
	"math"
	"time"

	"github.com/pilotlight-dev/pilotlight/scaler/simulate"
)

// scrape is Prometheus' usual scrape interval in the charts of the peers: what
// goes through it is up to so much older than what KEDA asks for.
const scrape = 15 * time.Second

// A signal is a policy without memory.
type signal struct {
	name string
	f    func(simulate.View) simulate.Proposal
}

func (s signal) Name() string { return s.name }

func (s signal) Observe(v simulate.View) simulate.Proposal { return s.f(v) }

// stateless makes the same policy for every run.
func stateless(name string, f func(simulate.View) simulate.Proposal) func() simulate.Policy {
	return func() simulate.Policy { return signal{name, f} }
}

// sum proposes value for the HPA to divide by target, active while above 0.
func sum(value, target float64, reason string) simulate.Proposal {
	return simulate.Proposal{Known: true, Value: value, Replicas: ceil(value / target), Active: value > 0, Reason: reason}
}

// ceil forgives one part in a billion.
func ceil(x float64) int { return int(math.Ceil(x - 1e-9)) }

// concurrency is every request that has not ended.
func concurrency(v simulate.View) float64 { return float64(v.Held + v.InFlight) }

// A Window is what KEDA and the HPA are told about time: the two settings that
// users of a plain ScaledObject turn.
type Window struct {
	Cooldown      time.Duration // KEDA's cooldownPeriod
	Stabilization time.Duration // the HPA's scaleDown stabilizationWindowSeconds
}

// DefaultWindow is the default of KEDA and of autoscaling/v2.
var DefaultWindow = Window{5 * time.Minute, 5 * time.Minute}

func (w Window) through(polling time.Duration, target float64, push bool) *simulate.Through {
	down := simulate.DefaultDown()
	down.Stabilization = w.Stabilization
	return &simulate.Through{
		KEDA: simulate.KEDA{PollingInterval: polling, CooldownPeriod: w.Cooldown},
		Push: push, Target: target, Down: &down,
	}
}
