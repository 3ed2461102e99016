package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// coldNames name coldStarts.
var coldNames = []string{"90/150 s", "20/40 s"}

// totals prints every contestant's costs at both cold starts and all prices,
// the cheapest first. Of the tuned and the clairvoyant ones only the best.
func (f field) totals(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) } // Flush reports what fails
	p("policy\t90/150: $ @ .0001\t@ .001\t@ .01\tGPU-h\t20/40: $ @ .0001\t@ .001\t@ .01\tGPU-h\tstarts\tflaps\tregrets\t\n")
	for _, i := range f.ranking() {
		p("%s\t", f.contestants[i].name)
		for cold := range coldStarts {
			for _, price := range []int{cheap, middle, dear} {
				p("%.0f\t", f.total(i, cold, prices[price]))
			}
			p("%.0f\t", f.gpuHours(i, cold))
		}
		flaps, regrets := f.flaps(i)
		p("%d\t%d\t%d\t\n", f.starts(i), flaps, regrets)
	}
	if f.has(clairvoyant) {
		p("clairvoyant, best per trace\t")
		for cold := range coldStarts {
			for _, price := range []int{cheap, middle, dear} {
				p("%.0f\t", f.clairvoyantCost(cold, prices[price]))
			}
			p("\t")
		}
		p("\t\t\t\n")
	}
	return w.Flush()
}

func (f field) has(c class) bool {
	return slices.ContainsFunc(f.contestants, func(x contestant) bool { return x.class == c })
}

// ranking is who is worth a line, by the cost at the middle price.
func (f field) ranking() []int {
	const bestTuned = 8
	var all, grid []int
	for i, c := range f.contestants {
		switch c.class {
		case ours, peer:
			all = append(all, i)
		case tuned:
			grid = append(grid, i)
		}
	}
	byCost := func(a, b int) int {
		return int(f.total(a, -1, prices[middle])*1000) - int(f.total(b, -1, prices[middle])*1000)
	}
	slices.SortStableFunc(grid, byCost)
	all = append(all, grid[:min(bestTuned, len(grid))]...)
	slices.SortStableFunc(all, byCost)
	return all
}

func (f field) gpuHours(i, cold int) float64 {
	sum := 0.0
	for j, s := range f.scenarios {
		if s.coldStart == cold {
			sum += f.outcomes[i][j].gpuHours
		}
	}
	return sum / float64(f.seeds)
}

func (f field) starts(i int) int {
	sum := 0
	for _, o := range f.outcomes[i] {
		sum += o.starts
	}
	return sum / f.seeds
}

// perScenario prints us beside the cheapest default peer, who beats us at both
// p95 and GPU-hours, and the cheapest fixed replicas and schedule.
func (f field) perScenario(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) } // Flush reports what fails
	p("start\tscenario\tours $\tp95 s\tGPU-h\tpeer $\tp95 s\tGPU-h\tpeer\tours/peer\tbest fixed\tclairvoyant\tdominated by\t\n")
	m := prices[middle]
	for cold := range coldStarts {
		for work, wl := range f.workloads {
			us, r := f.cell(f.mine(middle), work, cold, m), f.rivals(work, cold, m)
			p("%s\t%s\t%.1f\t%.1f\t%.1f\t", coldNames[cold], wl.name, us.cost, us.p95, us.gpuHours)
			if r.cheapest < 0 {
				p("\t\t\t\t\t")
			} else {
				them := f.cell(r.cheapest, work, cold, m)
				p("%.1f\t%.1f\t%.1f\t%s\t%.2f\t", them.cost, them.p95, them.gpuHours, f.contestants[r.cheapest].name, us.cost/them.cost)
			}
			p("%s\t%s\t%s\t\n", f.cheapest(work, cold, "fixed"), f.cheapest(work, cold, "clairvoyant"), f.names(r.dominates))
		}
	}
	return w.Flush()
}

// cheapest is the least cost among contestants whose name begins with prefix.
func (f field) cheapest(work, cold int, prefix string) string {
	best, found := 0.0, ""
	for i, c := range f.contestants {
		if len(c.name) < len(prefix) || c.name[:len(prefix)] != prefix {
			continue
		}
		if x := f.cell(i, work, cold, prices[middle]).cost; found == "" || x < best {
			best, found = x, fmt.Sprintf("%.1f (%s)", x, c.name[len(prefix)+1:])
		}
	}
	return found
}

func (f field) names(list []int) string {
	s := ""
	for _, i := range list {
		if s != "" {
			s += ", "
		}
		s += f.contestants[i].name
	}
	return s
}
