package contender

import (
	"time"

	"github.com/pilotlight-dev/pilotlight/scaler/simulate"
)

// HTTPAddOn is KEDA's HTTP add-on: the requests at its interceptors, held ones
// included, divided by the target; active while there is one, and pushed
// (kedacore/http-add-on, scaler/handlers.go). The windows are KEDA's and the
// HPA's own.
func HTTPAddOn(target float64, w Window) simulate.Controller {
	return simulate.Controller{
		Name: "http-add-on", Source: "kedacore/http-add-on: concurrency, pushed; scaledownPeriod 300, HPA defaults",
		Through: w.through(30*time.Second, target, true),
		New: stateless("http-add-on", func(v simulate.View) simulate.Proposal {
			return sum(concurrency(v), target, "concurrency")
		}),
	}
}

// Freeze is concurrency scaling that decides nothing while a pod starts, so as
// not to order twice: the readiness gate of kaito-project/keda-kaito-scaler,
// NVIDIA Dynamo's planner ("scaling_in_progress") and the first analyzer of
// llm-d's Workload Variant Autoscaler do that. A pod that never gets Ready
// freezes it for good.
func Freeze(target float64, w Window) simulate.Controller {
	return simulate.Controller{
		Name: "freeze", Source: "readiness gates of keda-kaito-scaler, Dynamo's planner and WVA V1; KEDA and HPA defaults",
		Through: w.through(30*time.Second, target, true),
		New: stateless("freeze", func(v simulate.View) simulate.Proposal {
			if _, starting, _, _ := v.Count(); starting > 0 {
				return sum(float64(v.Replicas)*target, target, "frozen")
			}
			return sum(concurrency(v), target, "concurrency")
		}),
	}
}
