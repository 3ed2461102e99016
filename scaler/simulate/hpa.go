package simulate

import (
	"math"
	"time"
)

// PolicyType says what a scaling policy counts in.
type PolicyType uint8

// The two kinds of scaling policy of autoscaling/v2.
const (
	Percent PolicyType = iota // of the replicas at the start of the period
	Pods
)

// ScalingPolicy bounds how far replicas may move within a period.
type ScalingPolicy struct {
	Type   PolicyType
	Value  int
	Period time.Duration
}

// Rules are the behaviour in one direction. Among several policies the one
// that allows most wins (selectPolicy Max, the default).
type Rules struct {
	Stabilization time.Duration
	Tolerance     float64
	Policies      []ScalingPolicy
	Disabled      bool
}

// HPA is a Horizontal Pod Autoscaler with one external metric of type
// AverageValue, as KEDA makes it.
type HPA struct {
	MinReplicas int // KEDA sets max(1, minReplicaCount)
	MaxReplicas int
	Target      float64 // AverageValue per replica
	Up, Down    Rules
}

// DefaultTolerance is the controller's --horizontal-pod-autoscaler-tolerance.
const DefaultTolerance = 0.1

// DefaultUp is autoscaling/v2's default for scaleUp: at once, by 100 % or four
// pods every 15 s, whichever is more.
func DefaultUp() Rules {
	return Rules{Tolerance: DefaultTolerance, Policies: []ScalingPolicy{{Percent, 100, 15 * time.Second}, {Pods, 4, 15 * time.Second}}}
}

// DefaultDown is autoscaling/v2's default for scaleDown: after five minutes of
// lower recommendations, by up to 100 % every 15 s.
func DefaultDown() Rules {
	return Rules{Tolerance: DefaultTolerance, Stabilization: 5 * time.Minute, Policies: []ScalingPolicy{{Percent, 100, 15 * time.Second}}}
}

type moment struct {
	at time.Time
	n  int
}

// HPAState is what the controller remembers between syncs. The zero value is a
// controller that has just started.
type HPAState struct {
	recommended []moment // what the metric asked for
	moved       []moment // changes of the replicas, positive and negative
}

// Sync returns the replicas that one sync of the controller sets: spec and
// status are the target's replica counts, sum is the metric over all pods.
// known is false when the metric could not be read: nothing moves then. At
// zero replicas the HPA is off.
//
// The metric: while |1 - sum/(target x status)| is within the tolerance, the
// present count; else ceil(sum/target). Stabilisation: the smallest
// recommendation of the up-window bounds growth, the largest of the
// down-window bounds shrinking. Policies bound the step.
func (h HPA) Sync(s HPAState, spec, status int, sum float64, known bool, now time.Time) (int, HPAState) {
	if spec == 0 || !known {
		return spec, s
	}
	wanted := h.recommend(status, sum)
	s = s.forget(now, h.longest())
	s.recommended = append(s.recommended, moment{now, wanted})
	desired := s.stabilise(h, spec, wanted, now)
	switch {
	case desired > spec:
		desired = min(desired, max(s.limitUp(h.Up, spec, now), spec))
	case desired < spec:
		desired = max(desired, min(s.limitDown(h.Down, spec, now), spec))
	}
	desired = min(max(desired, h.MinReplicas, 1), h.MaxReplicas)
	if desired != spec {
		s.moved = append(s.moved, moment{now, desired - spec})
	}
	return desired, s
}

func (h HPA) recommend(status int, sum float64) int {
	ratio := sum / (h.Target * float64(status))
	if ratio >= 1-h.Down.Tolerance && ratio <= 1+h.Up.Tolerance {
		return status
	}
	// The controller divides thousandths; so is it done here, lest 0.3/0.1
	// become 4.
	return int(min(math.Ceil(math.Round(sum*1000)/math.Round(h.Target*1000)-1e-9), math.MaxInt32))
}

func (s HPAState) stabilise(h HPA, spec, wanted int, now time.Time) int {
	low, high := wanted, wanted
	for _, r := range s.recommended {
		if now.Sub(r.at) <= h.Up.Stabilization {
			low = min(low, r.n)
		}
		if now.Sub(r.at) <= h.Down.Stabilization {
			high = max(high, r.n)
		}
	}
	return min(max(spec, low), high)
}

func (s HPAState) limitUp(r Rules, spec int, now time.Time) int {
	if r.Disabled {
		return spec
	}
	limit := spec
	for _, p := range r.Policies {
		start := spec - s.movedUp(p.Period, now)
		n := start + p.Value
		if p.Type == Percent {
			n = int(math.Ceil(float64(start) * (1 + float64(p.Value)/100)))
		}
		limit = max(limit, n)
	}
	return limit
}

func (s HPAState) limitDown(r Rules, spec int, now time.Time) int {
	if r.Disabled {
		return spec
	}
	limit := spec
	for _, p := range r.Policies {
		start := spec + s.movedDown(p.Period, now)
		n := start - p.Value
		if p.Type == Percent {
			n = int(float64(start) * (1 - float64(p.Value)/100))
		}
		limit = min(limit, n)
	}
	return limit
}

func (s HPAState) movedUp(period time.Duration, now time.Time) int {
	total := 0
	for _, m := range s.moved {
		if m.n > 0 && now.Sub(m.at) < period {
			total += m.n
		}
	}
	return total
}

func (s HPAState) movedDown(period time.Duration, now time.Time) int {
	total := 0
	for _, m := range s.moved {
		if m.n < 0 && now.Sub(m.at) < period {
			total -= m.n
		}
	}
	return total
}

func (h HPA) longest() time.Duration {
	longest := max(h.Up.Stabilization, h.Down.Stabilization)
	for _, rules := range []Rules{h.Up, h.Down} {
		for _, p := range rules.Policies {
			longest = max(longest, p.Period)
		}
	}
	return longest
}

// forget returns a copy of s without what is older than span.
func (s HPAState) forget(now time.Time, span time.Duration) HPAState {
	return HPAState{recommended: younger(s.recommended, now, span), moved: younger(s.moved, now, span)}
}

func younger(all []moment, now time.Time, span time.Duration) []moment {
	kept := make([]moment, 0, len(all)+1)
	for _, m := range all {
		if now.Sub(m.at) <= span {
			kept = append(kept, m)
		}
	}
	return kept
}
