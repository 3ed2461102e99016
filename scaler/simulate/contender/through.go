package contender

import (
	"github.com/pilotlight-dev/pilotlight/internal/scaledobject"
	"github.com/pilotlight-dev/pilotlight/scaler/simulate"
)

// Through is the way over KEDA and the HPA that the ScaledObject describes.
func Through(so scaledobject.ScaledObject) *simulate.Through {
	up, down := simulate.DefaultUp(), simulate.DefaultDown()
	apply(&up, so.ScaleUp)
	apply(&down, so.ScaleDown)
	return &simulate.Through{
		KEDA: simulate.KEDA{
			MinReplicas: so.MinReplicas, MaxReplicas: so.MaxReplicas,
			PollingInterval: so.PollingInterval, CooldownPeriod: so.CooldownPeriod, InitialCooldown: so.InitialCooldown,
		},
		Push: so.Push, Target: so.Trigger.TargetRequests, Up: &up, Down: &down,
	}
}

func apply(r *simulate.Rules, b scaledobject.Behavior) {
	if b.Stabilization != nil {
		r.Stabilization = *b.Stabilization
	}
	if b.Tolerance != nil {
		r.Tolerance = *b.Tolerance
	}
	r.Disabled = b.Disabled
	if len(b.Policies) > 0 {
		r.Policies = nil
		for _, p := range b.Policies {
			kind := simulate.Pods
			if p.Percent {
				kind = simulate.Percent
			}
			r.Policies = append(r.Policies, simulate.ScalingPolicy{Type: kind, Value: p.Value, Period: p.Period})
		}
	}
}
