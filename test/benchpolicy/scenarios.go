package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/pilotlight-dev/pilotlight/scaler/policy"
	"github.com/pilotlight-dev/pilotlight/scaler/simulate"
	"github.com/pilotlight-dev/pilotlight/scaler/simulate/trace"
)

// slots is the batch of one pod, and what everybody aims at.
const slots = 16

const maxReplicas = 8

// coldStarts are the two start-up times: a mid-size model from object storage,
// and one from a local cache.
var coldStarts = []policy.ColdStart{
	{P50: 90 * time.Second, P95: 150 * time.Second},
	{P50: 20 * time.Second, P95: 40 * time.Second},
}

// A workload is a scenario without its start-up times.
type workload struct {
	name     string
	requests func(seed uint64) ([]trace.Request, error)
	warm     int   // replicas Ready at the beginning
	stuck    []int // starts that never get Ready
}

// twoDays of a ServeGen client are simulated.
const twoDays = 48 * time.Hour

// workloads are the eleven of the policy study. Where it does not say how a
// shape was made, this is how it is made here:
//
//	square  two hours; 9 requests/s for ten minutes of every twenty
//	flash   90 minutes; nothing for 10, 6 requests/s for 20, then 0.3
//	ramp    two hours; from zero to 12 requests/s and back
//	stuck-2 Azure conv; the second start never gets Ready
//	stuck-1 one hour of 1 request/s; the first start never gets Ready
//
// The two days of the ServeGen clients begin at from.
func workloads(dir string, from time.Duration) []workload {
	file := func(name string, o trace.Options) func(uint64) ([]trace.Request, error) {
		return func(seed uint64) ([]trace.Request, error) {
			o.Seed = seed
			return readTrace(filepath.Join(dir, name), o)
		}
	}
	shape := func(s trace.Shape) func(uint64) ([]trace.Request, error) {
		return func(seed uint64) ([]trace.Request, error) {
			return s.Requests(trace.Options{Name: "shape", Seed: seed})
		}
	}
	conv := file("azure-conv.csv", trace.Options{})
	return []workload{
		{name: "code", requests: file("azure-code.csv", trace.Options{})},
		{name: "conv", requests: conv},
		{name: "conv-warm", requests: conv, warm: 4},
		{name: "large-133", requests: file("servegen-large-133.csv", trace.Options{Rate: 1.5, From: from, For: twoDays})},
		{name: "mid-46", requests: file("servegen-mid-46.csv", trace.Options{Rate: 1.5, From: from, For: twoDays})},
		{name: "small-1", requests: file("servegen-small-1.csv", trace.Options{Rate: 0.2, From: from, For: twoDays})},
		{name: "square", requests: shape(trace.Square(9, 0, 20*time.Minute, 2*time.Hour))},
		{name: "flash", requests: shape(trace.Flash(6, 0.3, 10*time.Minute, 20*time.Minute, 90*time.Minute))},
		{name: "ramp", requests: shape(trace.Ramp(12, 2*time.Hour))},
		{name: "stuck-2", requests: conv, stuck: []int{2}},
		{name: "stuck-1", requests: shape(trace.Constant(1, time.Hour)), stuck: []int{1}},
	}
}

func readTrace(path string, o trace.Options) ([]trace.Request, error) {
	f, err := os.Open(path) //nolint:gosec // the folder is the user's own flag
	if err != nil {
		return nil, fmt.Errorf("opening a trace: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	o.Name = path
	return trace.Read(f, o)
}

// scenario makes w happen with starts as cold as cs.
func (w workload) scenario(cs policy.ColdStart, seed uint64) (simulate.Scenario, error) {
	requests, err := w.requests(seed)
	if err != nil {
		return simulate.Scenario{}, fmt.Errorf("scenario %s: %w", w.name, err)
	}
	return simulate.Scenario{
		Name: w.name, Requests: requests, MaxReplicas: maxReplicas, TargetRequests: slots, Warm: w.warm, Seed: seed,
		Engine: simulate.Engine{Slots: slots, Prefill: 8000, DecodeAlone: 20 * time.Millisecond, DecodeFull: 40 * time.Millisecond},
		Starts: simulate.Starts{P50: cs.P50, P95: cs.P95, Stuck: w.stuck},
	}, nil
}
