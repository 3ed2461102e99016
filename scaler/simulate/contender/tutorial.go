package contender

import (
	"time"

	"github.com/pilotlight-dev/pilotlight/scaler/simulate"
)

// Tutorial scales on what waits: the trigger that the vLLM production stack's
// KEDA tutorial (docs/source/use_cases/autoscaling-keda.rst) and many blogs
// show. vllm:num_requests_waiting over 5, through Prometheus.
//
// What the tutorial leaves at one replica goes to zero here, and what the
// activator holds counts as waiting; by itself the query is blind at zero. It
// is blind to what runs: a target that is busy and keeps up looks idle.
func Tutorial(w Window) simulate.Controller {
	const threshold = 5
	return simulate.Controller{
		Name: "tutorial", Source: "vllm-project/production-stack, KEDA tutorial: waiting > 5, pollingInterval 30, cooldownPeriod 300",
		Interval: scrape, Through: w.through(30*time.Second, threshold, false),
		New: stateless("tutorial", func(v simulate.View) simulate.Proposal {
			_, _, _, waiting := v.Count()
			return sum(float64(waiting+v.Held), threshold, "waiting")
		}),
	}
}

// RunningWaiting scales on all that a target has to do, through Prometheus:
// the tutorial with the query it should have.
func RunningWaiting(target float64, w Window) simulate.Controller {
	return simulate.Controller{
		Name: "running+waiting", Source: "KEDA Prometheus trigger on vllm:num_requests_running + vllm:num_requests_waiting, pollingInterval 30, cooldownPeriod 300",
		Interval: scrape, Through: w.through(30*time.Second, target, false),
		New: stateless("running+waiting", func(v simulate.View) simulate.Proposal {
			_, _, running, waiting := v.Count()
			return sum(float64(running+waiting+v.Held), target, "load")
		}),
	}
}
