package policy

import "time"

// blind (rule 1): there are Ready pods and none of them could be read.
func blind(v view) bool { return v.ready > 0 && v.unread == v.ready }

// holdBlind (rule 1): the last answer stands for StaleAfter, raised by what
// the demand source sees, and then what runs is frozen.
//
//	last 3, 20 s ago, StaleAfter 60 s, nothing held  -> 3, hold-unknown
//	last 3, 61 s ago                                 -> frozen
func holdBlind(c Config, s *State, in Sample, t Terms, now time.Time) Decision {
	s.BusyAt = now
	t.Need = ceiling(in.Demand.Held+in.Demand.InFlight, c.TargetRequests)
	since := s.KnownAt
	if since.IsZero() {
		since = s.Since
	}
	if now.Sub(since) > c.StaleAfter {
		return freeze(c, s, in, t, now)
	}
	a := answer{s.LastReplicas, ReasonHoldUnknown}.atLeast(max(in.asked(), 1), ReasonHoldUnknown).atLeast(t.Need, ReasonLoad)
	return bounds(c, a).decision(c, in, t, now)
}

// freeze (rule 1): the replicas stay exactly as the scale target asks for now,
// whatever was wanted last. Only what the demand source sees may raise them,
// for that is known. The law goes on from there once a pod can be read. Where
// nobody says how many are asked for, or none is, there is nothing to keep and
// no answer.
//
// That is what an error should bring about, and not left to one: after errors
// KEDA 2.21 may take a poll for inactive, and what is in use to zero.
//
//	asks for 2, last answer 3, nothing held, target 4  -> 2, value 8
//	asks for 2, 20 held                                -> 5, value 20
//	asks for 2, has 3 in the middle of a rollout       -> 2, or each look would add one
//	nobody knows what it asks for                      -> no answer
func freeze(c Config, s *State, in Sample, t Terms, now time.Time) Decision {
	if in.asked() < 1 {
		return Decision{Reason: ReasonUnknown, Terms: t, At: now}
	}
	a := bounds(c, answer{max(in.asked(), t.Need), ReasonUnknown})
	a.reason = ReasonUnknown // also at a bound: that nothing can be read is what matters
	s.LastReplicas = a.replicas
	return a.decision(c, in, t, now)
}

// Freeze is the answer while something outside of the law keeps it from being
// asked: the replicas stay as they are. Without any there is no answer.
func Freeze(c Config, in Sample, now time.Time) Decision {
	var s State
	v := observe(in, now)
	return freeze(c, &s, in, v.terms(in), now)
}

// noShrinkWhileUnknown (rule 1): with some pods unreadable, or the demand
// source silent, the answer does not fall below the last one. A pod that has
// ceased to be Ready is not asked, and may serve what it has: it counts as
// unreadable while it is counted on. At zero a silent source means inactive, not
// awake.
func noShrinkWhileUnknown(s *State, a answer, v view, in Sample) answer {
	running := v.ready+v.starting > 0 || in.Replicas > 0
	switch {
	case running && v.unread+v.lost > 0:
		return a.atLeast(s.LastReplicas, ReasonHoldUnknown)
	case running && !in.Demand.Known:
		return a.atLeast(s.LastReplicas, ReasonDemandUnknown)
	case !in.Demand.Known && a.replicas == 0:
		a.reason = ReasonDemandUnknown
	}
	return a
}
