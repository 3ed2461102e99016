package contender

import (
	"math"
	"time"

	"github.com/pilotlight-dev/pilotlight/scaler/simulate"
)

// Knative are the parameters of Knative's pod autoscaler (KPA).
type Knative struct {
	Target      float64       // container-concurrency-target-default: requests per pod
	Utilization float64       // container-concurrency-target-percentage / 100
	Stable      time.Duration // stable-window
	Grace       time.Duration // scale-to-zero-grace-period
	PanicShare  float64       // panic-window-percentage / 100
	PanicFactor float64       // panic-threshold-percentage / 100
	MaxUp       float64       // max-scale-up-rate
	MaxDown     float64       // max-scale-down-rate
}

// DefaultKnative is the default of config-autoscaler, with the target given.
func DefaultKnative(target float64) Knative {
	return Knative{
		Target: target, Utilization: 0.7, Stable: time.Minute, Grace: 30 * time.Second,
		PanicShare: 0.1, PanicFactor: 2, MaxUp: 1000, MaxDown: 2,
	}
}

// knativeTick is how often Knative's autoscaler decides.
const knativeTick = 2 * time.Second

// Controller is the KPA (knative/serving, pkg/autoscaler/scaling/autoscaler.go):
//
//	stable = ceil(mean over the stable window / (target x 0.7)), panic = same over a
//	tenth of it; both within [ready/MaxDown, ready x MaxUp], ready at least 1
//	panicking from panic/ready >= 2 until a stable window after it was last so:
//	then the largest panic seen, never less
//	zero: nothing in the stable window, then the grace period
//
// It counts Ready pods only: how long a start takes does not enter.
func (k Knative) Controller() simulate.Controller {
	return simulate.Controller{
		Name: "knative", Source: "knative/serving KPA: utilization 70 %, stable 60 s, panic 6 s at 200 %, grace 30 s",
		Interval: knativeTick,
		New:      func() simulate.Policy { return &knative{p: k} },
	}
}

type knative struct {
	p        Knative
	recent   []float64 // concurrency, a sample per tick, the latest last
	panic    time.Time // when panicking was last confirmed; zero = calm
	highest  int       // while panicking
	idleFrom time.Time
}

func (k *knative) Name() string { return "knative" }

func (k *knative) Observe(v simulate.View) simulate.Proposal {
	n := int(k.p.Stable / knativeTick)
	k.recent = append(k.recent, concurrency(v))
	k.recent = k.recent[max(len(k.recent)-n, 0):]
	quick := max(int(float64(n)*k.p.PanicShare), 1)

	ready, _, _, _ := v.Count()
	pods := math.Max(float64(ready), 1)
	target := k.p.Target * k.p.Utilization
	stable := math.Ceil(mean(k.recent)/target - 1e-9)
	panic := math.Ceil(mean(k.recent[max(len(k.recent)-quick, 0):])/target - 1e-9)
	within := func(x float64) int {
		return int(math.Min(math.Max(x, math.Floor(pods/k.p.MaxDown)), math.Ceil(k.p.MaxUp*pods)))
	}
	wanted, reason := within(stable), "stable"
	switch {
	case panic/pods >= k.p.PanicFactor:
		k.panic = v.Now
	case !k.panic.IsZero() && v.Now.Sub(k.panic) > k.p.Stable:
		k.panic, k.highest = time.Time{}, 0
	}
	if !k.panic.IsZero() {
		k.highest = max(k.highest, within(panic))
		wanted, reason = max(wanted, k.highest), "panic"
	}
	return k.toZero(v, wanted, reason)
}

// toZero keeps one replica for the grace period.
func (k *knative) toZero(v simulate.View, wanted int, reason string) simulate.Proposal {
	if wanted > 0 {
		k.idleFrom = time.Time{}
		return direct(wanted, reason)
	}
	if k.idleFrom.IsZero() {
		k.idleFrom = v.Now
	}
	if v.Replicas > 0 && v.Now.Sub(k.idleFrom) < k.p.Grace {
		return direct(1, "grace")
	}
	return direct(0, "idle")
}

func mean(x []float64) float64 {
	total := 0.0
	for _, v := range x {
		total += v
	}
	return total / float64(max(len(x), 1))
}

// direct proposes replicas, for controllers that set them.
func direct(n int, reason string) simulate.Proposal {
	return simulate.Proposal{Known: true, Replicas: n, Value: float64(n), Active: n > 0, Reason: reason}
}
