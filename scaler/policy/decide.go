package policy

import "time"

// Decide is the scaling law. c must be valid (Config.Validate). It neither
// reads a clock nor changes its arguments.
func Decide(c Config, state State, in Sample, now time.Time) (Decision, State) {
	s := &state
	if s.Since.IsZero() {
		s.Since, s.BusyAt, s.LastReplicas = now, now, max(in.Replicas, 0)
		careful(s, in, now)
	}
	if s.At.IsZero() && in.Replicas >= 0 {
		s.LastReplicas, s.SeenReplicas = in.Replicas, in.Replicas // begun or restored: what runs is where we stand
	}
	v := observe(in, now)
	noteStart(c, s, v, in, now)
	before := s.Rates.Last
	rates, arrivals := s.Rates.with(in.Traffic, now)
	s.Rates = rates
	noteHolds(c, s, in, arrivals, now)
	s.At = now

	t := v.terms(in)
	if blind(v) {
		return holdBlind(c, s, in, t, now), *s
	}
	t.Load = load(c, s, v, in, now)
	noteLoad(s, v, in, t.Load, now)
	t.Stalled = noteTokens(s, before, v, in, counted(c, s, v, in, now)+in.Demand.Held, now)
	t.Residence = s.Rates.residence()
	t.Arrivals, t.Offered = offered(s, v, in, t.Load, now)
	t.Projected = lookahead(c, s, in, t.Offered, now)
	t.Backlog = backlog(c, v, in, t.Arrivals, t.Residence, now)
	t.Drain = drainWithin(c, in.ColdStart.P50, t.Residence)

	a := need(c, t)
	t.Need = a.replicas
	a = replaceExpired(a, v)
	a = noGrowthWhileStalled(s, a, t.Stalled)
	a, holdLeft := holds(c, s, a, v, t, in, now)
	a = noShrinkWhileUnknown(s, a, v, in)
	a, leaseLeft := lease(c, s, a, v, in, now)
	a = oneBeforeZero(a, in)
	a, backoffLeft := backoff(s, a, v, now)
	t.HoldLeft, t.LeaseLeft, t.BackoffLeft = Span(holdLeft), Span(leaseLeft), Span(backoffLeft)
	a = bounds(c, a)

	if a.replicas > s.LastReplicas || in.Replicas > s.SeenReplicas {
		s.GrewAt = now // the HPA may follow in steps
	}
	s.SeenReplicas = in.Replicas
	s.KnownAt, s.LastReplicas = now, a.replicas
	return a.decision(c, in, t, now), *s
}

// An answer is the number of replicas so far and the rule that set it.
type answer struct {
	replicas int
	reason   Reason
}

// atLeast raises a to n for reason r.
func (a answer) atLeast(n int, r Reason) answer {
	if a.replicas >= n {
		return a
	}
	return answer{n, r}
}

func (a answer) decision(c Config, in Sample, t Terms, now time.Time) Decision {
	return Decision{
		Known: true, Replicas: a.replicas, Value: value(c, in, a.replicas),
		Active: a.replicas > 0, Reason: a.reason, Terms: t, At: now,
	}
}

func (v view) terms(in Sample) Terms {
	return Terms{
		Running: v.running, Waiting: v.waiting, Held: in.Demand.Held, InFlight: in.Demand.InFlight,
		Ready: v.ready, Starting: v.starting, Lost: v.lost, Unread: v.unread, Failing: v.failing, Expired: v.expired,
	}
}
