package policy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The slow reference: it keeps every event in a list and adds up from scratch.
type ledger struct {
	arrived []struct {
		at int64
		n  float64
	}
	served []struct {
		at         int64
		n, seconds float64
	}
}

func (l *ledger) perSecond(now, span int64) float64 {
	sum := 0.0
	for _, a := range l.arrived {
		if a.at > now-span && a.at <= now {
			sum += a.n
		}
	}
	return sum / float64(span)
}

// residence looks back over the last completion's sixteen buckets of 8 s.
func (l *ledger) residence() float64 {
	if len(l.served) == 0 {
		return DefaultResidence.Seconds()
	}
	last := l.served[len(l.served)-1].at / 8
	var n, seconds float64
	for _, s := range l.served {
		if s.at/8 > last-16 {
			n += s.n
			seconds += s.seconds
		}
	}
	return max(seconds/n, 1e-3)
}

// The rings agree with the lists, whatever comes and whenever it is looked at.
func TestRatesAgreeWithTheReference(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 7))
		var rates Rates
		var l ledger
		total := Traffic{Known: true}
		now := epoch
		rates, _ = rates.with(total, now)
		for range 2000 {
			now = now.Add(time.Duration(r.IntN(3000)+1) * time.Millisecond)
			if r.IntN(50) == 0 {
				now = now.Add(time.Duration(r.IntN(300)) * time.Second) // nobody looked for a while
			}
			arrivals, done := float64(r.IntN(4)), float64(r.IntN(3))
			seconds := done * r.Float64() * 20
			total.Arrivals += arrivals
			total.Completions += done
			total.ServiceSeconds += seconds
			l.arrived = append(l.arrived, struct {
				at int64
				n  float64
			}{now.Unix(), arrivals})
			if done > 0 {
				l.served = append(l.served, struct {
					at         int64
					n, seconds float64
				}{now.Unix(), done, seconds})
			}
			var got float64
			rates, got = rates.with(total, now)
			require.InDelta(t, arrivals, got, 1e-9)
			for _, span := range []int64{1, 15, 22, 60} {
				require.InDelta(t, l.perSecond(now.Unix(), span), rates.perSecond(now, span, 0), 1e-9, "seed %d, span %d", seed, span)
			}
			require.InDelta(t, l.residence(), rates.residence(), 1e-6, "seed %d", seed)
		}
	}
}

// slowBacklog integrates rule 4 in steps of a hundredth of a second.
func slowBacklog(c Config, in Sample, rate, s float64, now time.Time) float64 {
	waiting := in.Demand.Held
	ready := 0.0
	for _, p := range in.Pods {
		if p.Ready() {
			ready++
			waiting += p.Load.Waiting
		}
	}
	x := waiting
	const dt = 0.01
	for at := 0.0; at < in.ColdStart.P50.Seconds(); at += dt {
		serving := ready
		for _, p := range in.Pods {
			age := min(now.Sub(p.Created), now.Sub(p.LostAt))
			if !p.Ready() && !p.Terminating && !p.Failing && age <= time.Duration(1.5*float64(in.ColdStart.P95)) && age.Seconds()+at >= in.ColdStart.P50.Seconds() {
				serving++
			}
		}
		x = max(x+(rate-serving*c.TargetRequests/s)*dt, 0)
	}
	return max(waiting, x)
}

// The sixteen slices come within a slice's worth of work of the integral.
func TestBacklogAgreesWithTheReference(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	c := base()
	for range 300 {
		c.TargetRequests = float64(r.IntN(16) + 1)
		in := Sample{
			Demand: Demand{Known: true, Held: float64(r.IntN(100))}, Traffic: Traffic{Known: true},
			ColdStart: ColdStart{P50: 80 * time.Second, P95: 130 * time.Second},
		}
		for range r.IntN(6) {
			p := Pod{Created: epoch.Add(-time.Duration(r.IntN(260)) * time.Second), Failing: r.IntN(8) == 0, Terminating: r.IntN(8) == 0}
			switch r.IntN(4) {
			case 0:
				p.LostAt = epoch.Add(-time.Duration(r.IntN(200)) * time.Second)
			case 1:
				p.ReadyAt, p.Load = epoch, Load{Known: true, Waiting: float64(r.IntN(10))}
			}
			in.Pods = append(in.Pods, p)
		}
		rate, s := r.Float64()*6, 0.5+r.Float64()*20
		v := observe(in, epoch)
		slice := 5.0 * c.TargetRequests / s * float64(len(in.Pods)) // what all pods serve in one slice
		require.InDelta(t, slowBacklog(c, in, rate, s, epoch), backlog(c, v, in, rate, s, epoch), slice+0.1)
	}
}

// The drain time is half of what a search over all times finds cheapest, and
// never less than half of what one request needs.
func TestDrainIsHalfTheCheapest(t *testing.T) {
	for _, target := range []float64{1, 4, 16} {
		for _, ratio := range []float64{0.18, 1.8, 18} {
			c := base()
			c.TargetRequests, c.WaitPrice = target, ratio*c.GPUPrice
			p50, s, pile := 90*time.Second, 6.5, 100.0
			cheapest, least := 0.0, math.Inf(1)
			for d := s; d < 1000; d += 0.01 {
				pods := pile * s / (d * target)
				if cost := c.WaitPrice*pile*d/2 + c.GPUPrice*pods*(90+180); cost < least {
					cheapest, least = d, cost
				}
			}
			require.InDelta(t, cheapest/2, drainWithin(c, p50, s), 0.02, "target %v, c/g %v", target, ratio)
		}
	}
}

// frozen counts up, replica by replica, from what the scale target asks for to
// what carries the known demand as well.
func frozen(c Config, in Sample) int {
	n := min(max(in.Replicas, c.MinReplicas), c.MaxReplicas)
	for n < c.MaxReplicas && float64(n) < (in.Demand.Held+in.Demand.InFlight)/c.TargetRequests-1e-9 {
		n++
	}
	return n
}

// Every combination of load, history and pods: the answer keeps the promises
// that the law makes.
func TestGrid(t *testing.T) {
	loads := map[string]Sample{
		"nothing": {Demand: Demand{Known: true}},
		"held":    {Demand: Demand{Known: true, Held: 7}},
		"running": {Demand: Demand{Known: true, InFlight: 5}},
		"flood":   {Demand: Demand{Known: true, Held: 500, InFlight: 8}},
		"silent":  {Demand: Demand{}},
	}
	histories := map[string]func(*State){
		"none": func(*State) {},
		"idle": func(s *State) {
			s.Since, s.At, s.KnownAt, s.BusyAt = epoch.Add(-time.Hour), epoch.Add(-time.Second), epoch.Add(-time.Second), epoch.Add(-time.Hour)
		},
		"held": func(s *State) {
			s.Since, s.At, s.KnownAt, s.BusyAt = epoch.Add(-time.Hour), epoch.Add(-time.Second), epoch.Add(-time.Second), epoch
			for i := range 3 {
				s.Levels[i].Release = epoch.Add(time.Minute).UnixNano()
			}
		},
		"blind": func(s *State) {
			s.Since, s.At, s.KnownAt, s.BusyAt = epoch.Add(-time.Hour), epoch.Add(-time.Second), epoch.Add(-base().StaleAfter-1), epoch
		},
	}
	type pods struct {
		ready, starting, failing, unread int
		age                              time.Duration
		lost                             bool // the starting ones were Ready, until age ago
	}
	var all []pods
	for ready := range 3 {
		for starting := range 3 {
			for _, age := range []time.Duration{time.Second, 5 * time.Minute, time.Hour} {
				for failing := range starting + 1 {
					for unread := range ready + 1 {
						all = append(all, pods{ready, starting, failing, unread, age, false}, pods{ready, starting, failing, unread, age, true})
					}
				}
			}
		}
	}
	c := base()
	c.KeepAlive, c.ScaleDownWindow = Auto, Auto
	for loadName, load := range loads {
		for historyName, history := range histories {
			for _, p := range all {
				in := load
				in.Replicas, in.ColdStart = p.ready+p.starting, ColdStart{time.Minute, 100 * time.Second}
				for i := range p.ready {
					in.Pods = append(in.Pods, Pod{Created: epoch.Add(-2 * time.Hour), ReadyAt: epoch.Add(-time.Hour), Load: Load{Known: i >= p.unread, Running: in.Demand.InFlight / float64(p.ready)}})
				}
				for i := range p.starting {
					one := Pod{Created: epoch.Add(-p.age), Failing: i < p.failing}
					if p.lost {
						one.Created, one.LostAt = epoch.Add(-3*time.Hour), one.Created
					}
					in.Pods = append(in.Pods, one)
				}
				var s State
				history(&s)
				s.LastReplicas, s.SeenReplicas = in.Replicas, in.Replicas
				d, next := Decide(c, s, in, epoch)
				name := fmt.Sprintf("load %s, history %s, pods %+v: %+v", loadName, historyName, p, d)
				promises(t, name, c, s, in, d, next, p.ready, p.starting, p.unread, p.age)
				if p.lost && p.age == time.Second && p.starting > p.failing {
					require.GreaterOrEqual(t, d.Replicas, min(s.LastReplicas, c.MaxReplicas), "what may come back is not given up: "+name)
				}
			}
		}
	}
}

func promises(t *testing.T, name string, c Config, s State, in Sample, d Decision, next State, ready, starting, unread int, age time.Duration) {
	t.Helper()
	failed := ready == 0 && starting > 0 && age >= 10*time.Minute
	require.True(t, d.Known, name)
	require.True(t, d.Replicas >= 0 && d.Replicas <= c.MaxReplicas, name)
	require.Equal(t, d.Replicas > 0, d.Active, name)
	if (in.Demand.Held > 0 || (in.Demand.InFlight > 0 && ready > 0)) && !failed {
		require.Positive(t, d.Replicas, name)
	}
	if failed {
		require.Equal(t, ReasonStartFailed, d.Reason, name)
		require.Positive(t, next.Failures, name)
	}
	if stale := !s.KnownAt.IsZero() && epoch.Sub(s.KnownAt) > c.StaleAfter; stale && ready > 0 && unread == ready {
		require.Equal(t, ReasonUnknown, d.Reason, name)
		require.Equal(t, frozen(c, in), d.Replicas, "frozen: "+name)
		require.InDelta(t, float64(d.Replicas)*c.TargetRequests, d.Value, 0, name)
	} else {
		require.NotEqual(t, ReasonUnknown, d.Reason, name)
	}
	if ready > 0 && (unread > 0 || !in.Demand.Known) {
		require.GreaterOrEqual(t, d.Replicas, min(s.LastReplicas, c.MaxReplicas), "nothing shrinks on the unknown: "+name)
	}
	if in.Replicas > 1 && !failed {
		require.Positive(t, d.Replicas, "one before zero: "+name)
	}
	if s.Since.IsZero() && ready > 0 {
		require.GreaterOrEqual(t, d.Replicas, min(in.Replicas, c.MaxReplicas), "young: "+name)
	}
	if d.Replicas < s.LastReplicas && !failed {
		require.GreaterOrEqual(t, d.Replicas, s.LastReplicas-1, "one step at a time: "+name)
	}
	if loadless := in.Demand.Known && in.Demand.Held == 0 && in.Demand.InFlight == 0; loadless && ready+starting == 0 {
		require.Zero(t, d.Replicas, "nobody asks and nothing runs: "+name)
	}
}
