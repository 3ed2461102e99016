package contender

import (
	"math"
	"time"

	"github.com/pilotlight-dev/pilotlight/scaler/simulate"
)

// WVA are the parameters of llm-d's Workload Variant Autoscaler, V2 analyzer.
type WVA struct {
	PerReplica float64       // what one replica carries, requests
	Grow       float64       // utilisation above which it grows
	Shrink     float64       // and below which it shrinks
	Retention  time.Duration // without a completed request until zero
	Loop       time.Duration // of the optimiser
	Up, Down   time.Duration // the HPA's stabilisation windows
}

// DefaultWVA is its default: GLOBAL_OPT_INTERVAL 60 s, and the chart's windows
// of 240 s.
func DefaultWVA(target float64) WVA {
	return WVA{
		PerReplica: target, Grow: 0.85, Shrink: 0.70, Retention: 10 * time.Minute, Loop: time.Minute,
		Up: 240 * time.Second, Down: 240 * time.Second,
	}
}

// Controller is the V2 analyzer
// (llm-d-incubation/workload-variant-autoscaler, saturation_v2/analyzer.go):
//
//	required = demand/0.85 - (ready + pending) x perReplica   > 0: grow by it
//	spare    = ready x perReplica - demand/0.70               > 0: shrink by it
//
// which an HPA with target 1 follows. Pending pods count for growth only. It
// counts demand and capacity in tokens of KV cache and learns the capacity;
// here both are requests and the capacity is known. At zero its own loop
// watches the queue ten times a second; zero comes when no request was
// completed for the retention.
func (w WVA) Controller() simulate.Controller {
	up, down := simulate.DefaultUp(), simulate.DefaultDown()
	up.Stabilization, down.Stabilization = w.Up, w.Down
	name := "wva"
	if w.Up == 0 {
		name = "wva up 0"
	}
	return simulate.Controller{
		Name: name, Source: "llm-d Workload Variant Autoscaler V2: 0.85/0.70, round every 60 s, retention 10 min, HPA stabilisation " + w.Up.String() + "/" + w.Down.String(),
		Through: &simulate.Through{
			KEDA: simulate.KEDA{PollingInterval: time.Second}, Push: true, Target: 1, Up: &up, Down: &down,
		},
		New: func() simulate.Policy { return &wva{p: w, name: name, wanted: 1} },
	}
}

type wva struct {
	p         WVA
	name      string
	wanted    int
	next      time.Time // the optimiser's next round
	completed float64
	usedAt    time.Time // when a request was last completed, or the target woken
}

func (w *wva) Name() string { return w.name }

func (w *wva) Observe(v simulate.View) simulate.Proposal {
	if v.Completions > w.completed || v.Replicas == 0 && v.Held > 0 || w.usedAt.IsZero() && v.Replicas > 0 {
		w.completed, w.usedAt = v.Completions, v.Now
	}
	if w.usedAt.IsZero() || v.Now.Sub(w.usedAt) >= w.p.Retention {
		w.wanted = 1
		return simulate.Proposal{Known: true, Reason: "retention"}
	}
	reason := "between-rounds"
	if !v.Now.Before(w.next) {
		w.next = v.Now.Add(w.p.Loop)
		w.wanted, reason = w.analyze(v)
	}
	return simulate.Proposal{Known: true, Value: float64(w.wanted), Replicas: w.wanted, Active: true, Reason: reason}
}

func (w *wva) analyze(v simulate.View) (int, string) {
	ready, pending, _, _ := v.Count()
	per, demand := w.p.PerReplica, concurrency(v)
	required := demand/w.p.Grow - float64(ready+pending)*per
	spare := float64(ready)*per - demand/w.p.Shrink
	switch {
	case required > 0:
		return ready + pending + ceil(required/per), "required"
	case spare > 0 && pending == 0:
		return max(ready-int(math.Floor(spare/per)), 1), "spare"
	}
	return max(ready+pending, 1), "fits"
}
