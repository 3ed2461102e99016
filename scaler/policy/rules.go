package policy

import (
	"math"
	"time"
)

const (
	// expiredAfter x P95 is the age at which a start is not counted on any
	// more; deadlineAfter x P95, at least leastDeadline, that at which it has
	// failed. In the study anything from 1 to 3 was alike for the first.
	expiredAfter  = 1.5
	deadlineAfter = 3
	leastDeadline = 10 * time.Minute

	// shrinkBelow is the share of the remaining replicas' target that the
	// offered load may use for one to go. In the scenarios of
	// `make bench-policy` 0.5 costs 1 % more, 0.7 3 %.
	shrinkBelow = 0.4

	// mostProjected x A bounds the look-ahead, so that noise cannot order GPUs.
	// 2 is as good; 1, which is no look-ahead, costs 1 % more.
	mostProjected = 3.0

	// StallAfter is how long tokens may stand still under load.
	StallAfter = 5 * time.Minute

	firstBackoff = 30 * time.Second
	lastBackoff  = 10 * time.Minute
)

// A view is a Sample added up.
type view struct {
	ready, starting, lost, unread, failing, expired int
	running, waiting                                float64   // of the readable Ready pods
	lastUnread                                      float64   // last known total of the unreadable ones
	youngestStart                                   time.Time // when the youngest starting pod began
	firstReady                                      time.Time // when the first of the Ready pods became Ready
}

// expired (rule 6): a starting pod is not counted on any more once it is older
// than 1.5 x P95, or failing.
//
//	P95 150 s: a pod 226 s old and not Ready is expired; so is one whose image
//	cannot be pulled, at once; one that was Ready until 4 s ago is not
func expired(p *Pod, cs ColdStart, now time.Time) bool {
	return p.Failing || now.Sub(p.began()) > time.Duration(expiredAfter*float64(cs.P95))
}

// observe adds a sample up.
func observe(in Sample, now time.Time) view {
	var v view
	for i := range in.Pods {
		p := &in.Pods[i]
		switch {
		case p.Terminating:
		case p.Ready():
			v.add(p)
		default:
			v.starting++
			if p.Failing {
				v.failing++
			}
			switch {
			case expired(p, in.ColdStart, now):
				v.expired++
			case !p.LostAt.IsZero():
				v.lost++
			}
			if p.began().After(v.youngestStart) {
				v.youngestStart = p.began()
			}
		}
	}
	return v
}

func (v *view) add(p *Pod) {
	v.ready++
	if v.firstReady.IsZero() || p.ReadyAt.Before(v.firstReady) {
		v.firstReady = p.ReadyAt
	}
	if p.Load.Known {
		v.running += p.Load.Running
		v.waiting += p.Load.Waiting
	} else {
		v.unread++
		v.lastUnread += p.Load.Total()
	}
}

// load (rule 2): running + waiting of Ready pods + held, where a request that
// was sent on counts once. Later, too, anything in flight is some load: engines do
// not count an open connection on which nothing is asked now, nor a body that is
// still being sent.
//
//	6 running, 3 waiting, 2 held, gauges settled           -> 11
//	0 running (gauges late), 5 in flight, 2 held           -> 7
//	0 running, gauges settled, a WebSocket in flight       -> 1
//	one of two pods unreadable, last seen at 4; 6 running  -> 10
func load(c Config, s *State, v view, in Sample, now time.Time) float64 {
	engines := counted(c, s, v, in, now)
	if in.Demand.Known && v.ready > 0 {
		engines = max(engines, min(in.Demand.InFlight, 1))
	}
	return engines + in.Demand.Held
}

// counted is the part of the load that engines count, or will.
func counted(c Config, s *State, v view, in Sample, now time.Time) float64 {
	engines := v.running + v.waiting + v.lastUnread
	fresh := s.DispatchAt.IsZero() || now.Sub(s.DispatchAt) < gaugeLag(c)
	if in.Demand.Known && fresh && v.ready > 0 {
		engines = max(engines, in.Demand.InFlight)
	}
	return engines
}

func gaugeLag(c Config) time.Duration {
	if c.GaugeLag == 0 {
		return DefaultGaugeLag
	}
	return c.GaugeLag
}

// offered (rule 3): A = arrivals x S, over a window of clamp(P50/4, 15 s,
// 60 s): short, for a burst is worth seeing early, and holds, not this window,
// keep what it ordered. Until it has been counted whole, what the engines carry
// stands in. Without traffic counts: the load, less what piled up since the present
// start began; that pile is not steady demand.
//
//	P50 90 s: window 22 s; 44 arrivals in it, S 6.5 s -> 2/s x 6.5 = 13
func offered(s *State, v view, in Sample, load float64, now time.Time) (rate, a float64) {
	if in.Traffic.Known {
		span := clampSeconds(in.ColdStart.P50/4, 15*time.Second, time.Minute)
		rate = s.Rates.perSecond(now, span, 0)
		a = rate * s.Rates.residence()
		if now.Unix()-s.Rates.Since < span {
			a = max(a, v.running+v.waiting+v.lastUnread)
		}
		return rate, a
	}
	if v.starting == 0 {
		s.Steady = load
	}
	return 0, min(load, max(s.Steady, v.running))
}

// lookahead (rule 5): A projected by its slope over P50/2, between A and 3 A.
// The slope is that of the two halves of a window of clamp(2/3 P50, 30 s, 60 s);
// until that has been counted whole, what was missed would look like a rise.
//
//	P50 90 s, S 6.5 s: 1/s then 2/s in the two halves of 60 s: slope 1/30,
//	A 13, A' = 13 + 1/30 x 6.5 x 45 = 22.75
func lookahead(c Config, s *State, in Sample, a float64, now time.Time) float64 {
	horizon := c.Lookahead
	if horizon == Auto {
		horizon = in.ColdStart.P50 / 2
	}
	if horizon == 0 || !in.Traffic.Known {
		return a
	}
	half := clampSeconds(2*in.ColdStart.P50/3, 30*time.Second, time.Minute) / 2
	if now.Unix()-s.Rates.Since < 2*half {
		return a
	}
	slope := (s.Rates.perSecond(now, half, 0) - s.Rates.perSecond(now, half, half)) / float64(half)
	return min(max(a+slope*s.Rates.residence()*horizon.Seconds(), a), mostProjected*a)
}

func clampSeconds(d, least, most time.Duration) int64 {
	return int64(min(max(d, least), most) / time.Second)
}

// backlog (rule 4): the larger of what waits now and what will wait at
// now + P50, when pods ordered now could serve: requests go on coming in, Ready
// pods serve, and each starting pod that is counted on serves from P50 - age on (in
// slices of P50/16). Where arrivals are not counted only what waits now is known.
//
//	40 waiting, 2/s, S 6.5 s, one Ready pod with target 16, which serves 2.5/s -> 40
//	40 waiting, 2/s, none Ready, P50 90 s -> 40 + 2 x 90 = 220
func backlog(c Config, v view, in Sample, rate, s float64, now time.Time) float64 {
	const slices = 16
	var joining [slices + 1]float64
	for i := range in.Pods {
		if p := &in.Pods[i]; !p.Terminating && !p.Ready() && !expired(p, in.ColdStart, now) {
			left := max(in.ColdStart.P50-now.Sub(p.began()), 0)
			joining[min(int(slices*left/max(in.ColdStart.P50, 1)), slices)]++
		}
	}
	waiting := v.waiting + in.Demand.Held
	if !in.Traffic.Known {
		return waiting
	}
	x, serving, slice := waiting, float64(v.ready), in.ColdStart.P50.Seconds()/slices
	for _, n := range joining[:slices] {
		serving += n
		x = max(x+(rate-serving*c.TargetRequests/s)*slice, 0)
	}
	return max(waiting, x)
}

// drainWithin (rule 4): the time in which a backlog is worked off that costs
// least: more pods wait less and cost more. A pile B that is worked off evenly
// within D waits B D/2 in all, at c; the B S/(D target) pods that do it cost g
// while they start and stay, P50 + W. The sum is least at
//
//	D = max(S, sqrt(2 g S (P50 + W) / (target c))), W = max(60 s, 2 P50)
//
// and half of that is taken. Pods that a pile ordered serve what comes after it
// as well, so it should not pay for their whole stay; and bursts go on growing
// while pods load. In the scenarios of `make bench-policy` the whole costs 2 %
// more, a third the same.
//
//	S 6.5 s, P50 90 s, c/g 1.8, target 16: sqrt(2 x 6.5 x 270 / 28.8) / 2 = 5.5 s
func drainWithin(c Config, p50 time.Duration, s float64) float64 {
	if c.DrainWithin != Auto {
		return c.DrainWithin.Seconds()
	}
	stay := max(60, 2*p50.Seconds())
	return max(s, math.Sqrt(2*c.GPUPrice*s*(p50.Seconds()+stay)/(c.TargetRequests*c.WaitPrice))) / 2
}

// need is what the rules on the way up want together:
//
//	ceil((A' + backlog x S / drainWithin) / target)
//
// at most the replicas for A and the backlog each rounded up, and at least one
// while there is any load. What runs already is a floor: streams longer than
// the window do not arrive in it, and requests that bypass the counting are
// carried all the same.
//
//	A 13, backlog 0, target 4              -> 4
//	A 0, 9 running in one pod, target 4    -> 3
func need(c Config, t Terms) answer {
	pile := t.Backlog * t.Residence / t.Drain
	n := ceiling(t.Projected+pile, c.TargetRequests)
	n = min(n, ceiling(max(t.Offered, t.Running), c.TargetRequests)+ceiling(pile, c.TargetRequests)+ceiling(t.Projected-t.Offered, c.TargetRequests))
	if floor := ceiling(t.Running, c.TargetRequests); floor >= n && floor > 0 {
		return answer{floor, ReasonLoad}
	}
	reason := ReasonLoad
	switch steady := ceiling(t.Offered, c.TargetRequests); {
	case n > ceiling(t.Projected, c.TargetRequests):
		reason = ReasonBacklog
	case n > steady:
		reason = ReasonLookahead
	case n == 0 && t.Load > 0:
		n = 1
	case n == 0:
		reason = ReasonIdle
	}
	return answer{n, reason}
}

// ceiling is the smallest number of replicas that carries the load at the
// target each. One part in a billion is forgiven, so that 0.3/0.1 is 3.
//
//	load 9, target 4 -> 3;  load 8, target 4 -> 2;  load 0 -> 0
func ceiling(load, target float64) int {
	n := math.Ceil(load/target - 1e-9)
	return int(min(max(n, 0), math.MaxInt32))
}

// replaceExpired (rule 6): what was counted on and does not come is ordered
// again, beside it; but no more than there are pods that do come, or one, so
// that a version which cannot start anywhere does not fill the cluster.
//
//	need 2, one of two starting pods expired            -> 3
//	need 1, one expired; its replacement expires as well -> 2, and stays 2
func replaceExpired(a answer, v view) answer {
	if v.expired == 0 || a.replicas == 0 {
		return a
	}
	sound := v.ready + v.starting - v.expired
	return answer{a.replicas + min(v.expired, max(sound, 1)), ReasonCredit}
}

// noGrowthWhileStalled (rule 12): engines that hang are not helped by more.
func noGrowthWhileStalled(s *State, a answer, stalled bool) answer {
	if stalled && a.replicas > s.LastReplicas {
		return answer{s.LastReplicas, ReasonStalled}
	}
	return a
}

// noteTokens (rule 12) reports whether the engines have made no token for
// StallAfter although they had work all the while: requests that they count, or
// that wait for a place. An open connection asks for none.
func noteTokens(s *State, before Traffic, v view, in Sample, work float64, now time.Time) bool {
	moved := !in.Traffic.TokensKnown || in.Traffic.Tokens != before.Tokens
	if moved || work == 0 || v.ready == 0 || s.TokensAt.IsZero() {
		s.TokensAt = now
	}
	return now.Sub(s.TokensAt) > StallAfter
}

// oneBeforeZero (rule 8): KEDA goes from N to zero in one step, whatever the
// HPA's windows say, so several replicas first become one.
func oneBeforeZero(a answer, in Sample) answer {
	if in.Replicas > 1 {
		return a.atLeast(1, ReasonOneFirst)
	}
	return a
}

// lease (rule 9): from activation until the first pod is Ready and its first
// dispatch is GaugeLag old (or, without one, it has been Ready for GaugeLag),
// at least one replica is wanted, whether or not the client still waits. It
// derives from the pods themselves, so that a restart keeps it. A pod that has
// ceased to be Ready has the time of a start to be Ready again.
func lease(c Config, s *State, a answer, v view, in Sample, now time.Time) (answer, time.Duration) {
	var left time.Duration
	switch {
	case v.ready > 0:
		since := v.firstReady
		if s.DispatchAt.After(since) {
			since = s.DispatchAt
		}
		left = gaugeLag(c) - now.Sub(since)
	case v.starting > 0:
		left = startDeadline(c, in.ColdStart) - now.Sub(v.youngestStart)
	}
	if left <= 0 {
		return a, 0
	}
	return a.atLeast(1, ReasonLease), left
}

// startDeadline (rule 9): the age at which a start has failed. Automatic:
// 3 x P95, at least 10 minutes.
//
//	P95 150 s -> 10 min;  P95 300 s -> 15 min
func startDeadline(c Config, cs ColdStart) time.Duration {
	if c.StartDeadline != Auto {
		return c.StartDeadline
	}
	return max(deadlineAfter*cs.P95, leastDeadline)
}

// noteStart (rule 9) counts failed starts: no pod is Ready and every starting
// pod is past the deadline. A Ready pod forgives them all.
func noteStart(c Config, s *State, v view, in Sample, now time.Time) {
	if v.ready > 0 {
		s.Failures, s.RetryAt = 0, time.Time{}
		return
	}
	s.DispatchAt = time.Time{}
	failed := v.starting > 0 && now.Sub(v.youngestStart) >= startDeadline(c, in.ColdStart)
	if failed && !now.Before(s.RetryAt) {
		s.Failures++
		s.RetryAt = now.Add(backoffAfter(s.Failures))
	}
}

// backoffAfter is the wait after the n-th failure in a row.
//
//	1 -> 30 s; 2 -> 1 min; 3 -> 2 min; 6 and more -> 10 min
func backoffAfter(n int) time.Duration {
	return min(firstBackoff<<min(max(n-1, 0), 10), lastBackoff)
}

// backoff (rule 9): after a failed start nothing is started until RetryAt.
func backoff(s *State, a answer, v view, now time.Time) (answer, time.Duration) {
	left := s.RetryAt.Sub(now)
	if left <= 0 || v.ready > 0 {
		return a, 0
	}
	return answer{0, ReasonStartFailed}, left
}

// bounds: MinReplicas <= answer <= MaxReplicas.
func bounds(c Config, a answer) answer {
	if a.replicas > c.MaxReplicas {
		return answer{c.MaxReplicas, ReasonMax}
	}
	return a.atLeast(c.MinReplicas, ReasonMin)
}

// noteLoad remembers when there was load, and the first load after a start.
// Unknown load counts as load.
func noteLoad(s *State, v view, in Sample, load float64, now time.Time) {
	if load > 0 || v.unread+v.lost > 0 || !in.Demand.Known {
		s.BusyAt = now
	}
	if v.ready > 0 && s.DispatchAt.IsZero() && (v.running+v.waiting > 0 || in.Demand.InFlight > 0) {
		s.DispatchAt = now
	}
}
