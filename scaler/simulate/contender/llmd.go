package contender

import (
	"time"

	"github.com/pilotlight-dev/pilotlight/scaler/simulate"
)

// LLMD are the parameters of llm-d's KEDA guide.
type LLMD struct {
	Queue   float64 // queue_per_replica
	Running float64 // running_per_replica
	Window  Window
}

// DefaultLLMD is the guide's: one queued request per replica, its target of
// running ones, 300 s.
func DefaultLLMD(target float64) LLMD { return LLMD{Queue: 1, Running: target, Window: DefaultWindow} }

// Controller is the overshoot guard (llm-d/llm-d,
// guides/workload-autoscaling/keda-epp, queue-guard): Prometheus every 15 s,
//
//	demand = max(queued/1, running/16)
//	demand <= replicas: demand, else max(demand - pending, replicas)
//
// to an HPA with target 1 that may double every 15 s. Its queue is the endpoint
// picker's flow control, here what the activator holds.
func (l LLMD) Controller() simulate.Controller {
	through := l.Window.through(15*time.Second, 1, false)
	up := simulate.DefaultUp()
	up.Policies = up.Policies[:1] // 100 % per 15 s
	through.Up = &up
	return simulate.Controller{
		Name: "llm-d", Source: "llm-d keda-epp queue-guard: queue 1, running 16, pollingInterval 15, cooldownPeriod 300",
		Interval: scrape, Through: through,
		New: stateless("llm-d", l.observe),
	}
}

func (l LLMD) observe(v simulate.View) simulate.Proposal {
	_, pending, _, _ := v.Count()
	replicas := float64(v.Replicas)
	demand := max(float64(v.Held)/l.Queue, float64(v.InFlight)/l.Running)
	if demand <= replicas {
		return sum(demand, 1, "demand")
	}
	return sum(max(demand-float64(pending), replicas), 1, "guard")
}
