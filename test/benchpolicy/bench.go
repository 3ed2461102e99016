package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pilotlight-dev/pilotlight/scaler/policy"
	"github.com/pilotlight-dev/pilotlight/scaler/simulate"
)

// A prepared scenario is what a contestant needs to know of one.
type prepared struct {
	simulate.Scenario
	workload  int // index
	coldStart int // index
	cold      policy.ColdStart
}

// prepare reads and draws every workload for every seed, once for both cold
// starts.
func prepare(all []workload, seeds int) ([]prepared, error) {
	var out []prepared
	for i, w := range all {
		for seed := 1; seed <= seeds; seed++ {
			s, err := w.scenario(coldStarts[0], uint64(seed))
			if err != nil {
				return nil, err
			}
			for c, cold := range coldStarts {
				s.Starts.P50, s.Starts.P95 = cold.P50, cold.P95
				out = append(out, prepared{s, i, c, cold})
			}
		}
	}
	return out, nil
}

// An outcome is what is kept of a run.
type outcome struct {
	gpuHours, waitSeconds, p95 float64
	starts, flaps, regrets     int
}

func (o outcome) cost(p simulate.Prices) float64 {
	return p.GPUHour*o.gpuHours + p.WaitSeconds*o.waitSeconds
}

// Outcomes by contestant and prepared scenario.
type outcomes [][]outcome

// runAll plays every contestant in every scenario, on all cores.
func runAll(ctx context.Context, contestants []contestant, scenarios []prepared, progress io.Writer) (outcomes, error) {
	out := make(outcomes, len(contestants))
	var done atomic.Int64
	total := int64(len(contestants) * len(scenarios))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, c := range contestants {
		out[i] = make([]outcome, len(scenarios))
		for j, s := range scenarios {
			group.Go(func() error {
				r, err := simulate.Run(ctx, s.Scenario, c.make(s))
				if err != nil {
					return fmt.Errorf("running %s in %s: %w", c.name, s.Name, err)
				}
				out[i][j] = outcome{r.GPUHours(), r.WaitSeconds, r.Wait.P95, r.Starts, r.Flaps, r.Regrets}
				report(progress, done.Add(1), total, c.name)
				return nil
			})
		}
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	report(progress, total, total, "")
	return out, nil
}

// report draws the progress on one line of a terminal; progress is nil where
// there is none.
func report(progress io.Writer, done, total int64, what string) {
	if progress == nil || done%16 != 0 && done != total {
		return
	}
	const width = 40
	bar := make([]byte, width)
	for i := range bar {
		bar[i] = '.'
		if int64(i)*total < done*width {
			bar[i] = '#'
		}
	}
	_, _ = fmt.Fprintf(progress, "\r%s %d/%d %-40.40s", bar, done, total, what) // a lost line of progress is no loss
	if what == "" {
		_, _ = fmt.Fprintln(progress)
	}
}

// decideTime is how long one decision takes, over a target of eight pods under
// load.
func decideTime() time.Duration {
	const rounds = 200_000
	c, cold := config(prices[middle]), coldStarts[0]
	pods := make([]policy.Pod, maxReplicas)
	for i := range pods {
		pods[i] = policy.Pod{
			Created: simulate.Epoch.Add(-time.Hour), ReadyAt: simulate.Epoch.Add(-time.Hour + cold.P50),
			Load: policy.Load{Known: true, Running: 12, Waiting: 1},
		}
	}
	in := policy.Sample{Replicas: maxReplicas, Pods: pods, ColdStart: cold, Demand: policy.Demand{Known: true, Held: 3, InFlight: 100}}
	in.Traffic.Known = true
	var state policy.State
	now := simulate.Epoch
	began := time.Now()
	for range rounds {
		now = now.Add(time.Second)
		in.Traffic.Arrivals += 12
		in.Traffic.Completions += 12
		in.Traffic.ServiceSeconds += 80
		in.Traffic.Tokens += 4000
		_, state = policy.Decide(c, state, in, now)
	}
	return time.Since(began) / rounds
}
