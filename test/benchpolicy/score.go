package main

import (
	"math"

	"github.com/pilotlight-dev/pilotlight/scaler/simulate"
	"github.com/pilotlight-dev/pilotlight/test/internal/figures"
)

// A field is what was run: who, in what, with which outcome.
type field struct {
	workloads   []workload
	seeds       int
	contestants []contestant
	scenarios   []prepared
	outcomes    outcomes
}

// total is contestant i's cost over the scenarios of one cold start, or of both
// with -1: the mean over the seeds of the sum over the workloads.
func (f field) total(i, cold int, p simulate.Prices) float64 {
	sum := 0.0
	for j, s := range f.scenarios {
		if cold < 0 || s.coldStart == cold {
			sum += f.outcomes[i][j].cost(p)
		}
	}
	return sum / float64(f.seeds)
}

// best is the cheapest contestant for which is says yes, or -1.
func (f field) best(cold int, p simulate.Prices, is func(contestant) bool) int {
	best, least := -1, math.Inf(1)
	for i, c := range f.contestants {
		if x := f.total(i, cold, p); is(c) && x < least {
			best, least = i, x
		}
	}
	return best
}

func isPeer(c contestant) bool  { return c.class == peer }
func isTuned(c contestant) bool { return c.class == peer || c.class == tuned }

// mine is our index at a price, or -1.
func (f field) mine(price int) int {
	for i, c := range f.contestants {
		if c.class == ours && c.price == price {
			return i
		}
	}
	return -1
}

// against is our cost over that of the best of the others.
func (f field) against(cold, price int, others func(contestant) bool) float64 {
	p := prices[price]
	return f.total(f.mine(price), cold, p) / f.total(f.best(cold, p, others), cold, p)
}

// A cell is a contestant in one workload at one cold start: means over seeds.
type cell struct{ cost, p95, gpuHours float64 }

func (f field) cell(i, work, cold int, p simulate.Prices) cell {
	var c cell
	for j, s := range f.scenarios {
		if s.workload == work && s.coldStart == cold {
			o := f.outcomes[i][j]
			c.cost += o.cost(p) / float64(f.seeds)
			c.p95 += o.p95 / float64(f.seeds)
			c.gpuHours += o.gpuHours / float64(f.seeds)
		}
	}
	return c
}

// rivals are the default peers that matter to us in one workload.
type rivals struct {
	cheapest  int   // the one that costs least
	dominates []int // those that beat us at both p95 wait and GPU-hours
}

func (f field) rivals(work, cold int, p simulate.Prices) rivals {
	r := rivals{cheapest: -1}
	us, least := f.cell(f.mine(middle), work, cold, p), math.Inf(1)
	for i, c := range f.contestants {
		if c.class != peer {
			continue
		}
		them := f.cell(i, work, cold, p)
		if them.cost < least {
			r.cheapest, least = i, them.cost
		}
		if them.p95 < us.p95 && them.gpuHours < us.gpuHours {
			r.dominates = append(r.dominates, i)
		}
	}
	return r
}

// dominated counts the scenarios in which a default peer beats us at both.
func (f field) dominated() int {
	n := 0
	for cold := range coldStarts {
		for work := range f.workloads {
			if len(f.rivals(work, cold, prices[middle]).dominates) > 0 {
				n++
			}
		}
	}
	return n
}

// clairvoyantCost is the sum over scenarios of the cheapest schedule in each.
// Fixed replicas are not among them: they are up before the trace begins.
func (f field) clairvoyantCost(cold int, p simulate.Prices) float64 {
	sum := 0.0
	for j, s := range f.scenarios {
		if s.coldStart != cold {
			continue
		}
		least := math.Inf(1)
		for i, c := range f.contestants {
			if c.class == clairvoyant {
				least = min(least, f.outcomes[i][j].cost(p))
			}
		}
		sum += least
	}
	return sum / float64(f.seeds)
}

// flaps are all of contestant i's.
func (f field) flaps(i int) (flaps, regrets int) {
	for _, o := range f.outcomes[i] {
		flaps += o.flaps
		regrets += o.regrets
	}
	return flaps, regrets
}

// figures are the headline figures, as they are kept.
func (f field) figures(decideNS float64) []figures.Figure {
	flaps, _ := f.flaps(f.mine(middle))
	ratio := func(name string, v float64) figures.Figure {
		return figures.Figure{Name: name, Value: math.Round(v*1e4) / 1e4, Unit: "ratio"}
	}
	foresight := func(cold int) float64 {
		return f.total(f.mine(middle), cold, prices[middle]) / f.clairvoyantCost(cold, prices[middle])
	}
	return []figures.Figure{
		ratio("policy_cost_vs_best_default_peer", f.against(-1, middle, isPeer)),
		ratio("policy_cost_vs_best_default_peer_20_40", f.against(1, middle, isPeer)),
		ratio("policy_cost_vs_tuned_peer", f.against(-1, middle, isTuned)),
		ratio("policy_cost_vs_best_default_peer_cheap_wait", f.against(-1, cheap, isPeer)),
		{Name: "policy_dominated_scenarios", Value: float64(f.dominated()), Unit: "scenarios of 22"},
		{Name: "policy_flaps", Value: float64(flaps), Unit: "flaps"},
		ratio("policy_cost_vs_clairvoyant_90_150", foresight(0)),
		ratio("policy_cost_vs_clairvoyant_20_40", foresight(1)),
		{Name: "decide_ns", Value: math.Round(decideNS), Unit: "ns"},
	}
}
