package main

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pilotlight-dev/pilotlight/scaler/engine"
	"github.com/pilotlight-dev/pilotlight/scaler/policy"
	"github.com/pilotlight-dev/pilotlight/test/internal/figures"
)

// rounds is how often a benchmark runs; the median counts, as other work on
// the machine disturbs single rounds.
const rounds = 3

func median(run func(b *testing.B)) testing.BenchmarkResult {
	results := make([]testing.BenchmarkResult, rounds)
	for i := range results {
		results[i] = testing.Benchmark(run)
	}
	slices.SortFunc(results, func(a, b testing.BenchmarkResult) int { return int(a.NsPerOp() - b.NsPerOp()) })
	return results[rounds/2]
}

// nanoseconds keeps the fraction that NsPerOp drops.
func nanoseconds(r testing.BenchmarkResult) float64 { return float64(r.T.Nanoseconds()) / float64(r.N) }

func measureParse(page []byte) ([]figures.Figure, error) {
	r, err := engine.Parse(engine.VLLM, page, "")
	if err != nil {
		return nil, fmt.Errorf("parsing the metrics page: %w", err)
	}
	result := median(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if r, err = engine.Parse(engine.VLLM, page, ""); err != nil {
				b.Fatal(err)
			}
		}
	})
	note := fmt.Sprintf("one vLLM page of %.0f KB, %g running", float64(len(page))/1000, r.Running)
	return []figures.Figure{
		{Name: "parse_60kb_ns", Value: nanoseconds(result), Unit: "ns", Goal: figures.Below(40000), Note: note},
		{Name: "parse_60kb_allocs", Value: float64(result.AllocsPerOp()), Unit: "allocs", Goal: figures.AtMost(0)},
	}, nil
}

// measureDecide asks the policy about four busy pods and one that starts.
func measureDecide() figures.Figure {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c := policy.Config{
		TargetRequests: 12, MaxReplicas: 8, KeepAlive: policy.Auto, ScaleDownWindow: policy.Auto,
		StartDeadline: policy.Auto, StaleAfter: time.Minute,
	}
	in := policy.Sample{
		Replicas: 5, Demand: policy.Demand{Known: true, InFlight: 40},
		ColdStart: policy.ColdStart{P50: 90 * time.Second, P95: 150 * time.Second},
	}
	for range 4 {
		in.Pods = append(in.Pods, policy.Pod{Created: now.Add(-time.Hour), ReadyAt: now.Add(-time.Hour), Load: policy.Load{Known: true, Running: 8, Waiting: 2}})
	}
	in.Pods = append(in.Pods, policy.Pod{Created: now.Add(-time.Minute)})
	var state policy.State
	result := median(func(b *testing.B) {
		at := now
		for b.Loop() {
			at = at.Add(time.Second)
			_, state = policy.Decide(c, state, in, at)
		}
	})
	return figures.Figure{Name: "decide_ns", Value: nanoseconds(result), Unit: "ns", Note: fmt.Sprintf("%d pods", len(in.Pods))}
}
