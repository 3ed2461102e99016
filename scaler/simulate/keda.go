package simulate

import "time"

// KEDA is the part of a ScaledObject that KEDA's own scale loop obeys.
type KEDA struct {
	MinReplicas     int
	MaxReplicas     int
	PollingInterval time.Duration // default 30 s
	CooldownPeriod  time.Duration // default 300 s
	InitialCooldown time.Duration // default 0
}

// KEDAState is what the scale loop remembers.
type KEDAState struct {
	Created    time.Time // of the ScaledObject
	LastActive time.Time // zero = never (status.lastActiveTime is nil)
}

// Answer is what the triggers said at one poll, or by a push.
type Answer struct {
	Active bool // a trigger is active
	Failed bool // a trigger answered with an error
}

// Scale returns the replicas that KEDA's scale loop leaves behind: it only
// ever moves a target between zero and max(1, MinReplicas), everything between
// one and N is the HPA's. It follows requestScale of KEDA 2.21's
// scale_scaledobjects.go:
//
//   - 0 -> max(1, min) when a trigger is active;
//   - N -> 0 in one step when min is 0, nothing is active, nothing failed and
//     the cooldown has passed since the last activity (the initial cooldown
//     since creation where there never was any);
//   - an error freezes the replicas, and keeps the cooldown from being renewed.
func (k KEDA) Scale(s KEDAState, replicas int, a Answer, now time.Time) (int, KEDAState) {
	switch {
	case replicas == 0 && a.Active:
		s.LastActive = now
		return max(1, k.MinReplicas), s
	case replicas == 0:
		return k.MinReplicas, s
	case a.Active && !a.Failed:
		s.LastActive = now
		return max(replicas, k.MinReplicas), s
	case a.Active || a.Failed:
		return replicas, s
	case k.MinReplicas > 0:
		return max(replicas, k.MinReplicas), s
	}
	rest := s.LastActive.Add(k.CooldownPeriod)
	if s.LastActive.IsZero() {
		rest = s.Created.Add(k.InitialCooldown)
	}
	if now.Before(rest) {
		return replicas, s
	}
	return 0, s
}
