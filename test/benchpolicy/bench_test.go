package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A field of two workloads with one seed, on paper: ours, two peers, a tuned
// one and a schedule. At $2 per GPU-hour and $0.001 per request-second, 1000
// waited seconds cost as much as half a GPU-hour.
func paper() field {
	f := field{
		seeds: 1, workloads: []workload{{name: "a"}, {name: "b"}},
		contestants: []contestant{
			{name: "ours", class: ours, price: middle},
			{name: "ours, cheap", class: ours, price: cheap},
			{name: "thrifty", class: peer},
			{name: "lavish", class: peer},
			{name: "grid", class: tuned},
			{name: "seer", class: clairvoyant},
		},
	}
	for cold := range coldStarts {
		for work := range f.workloads {
			f.scenarios = append(f.scenarios, prepared{workload: work, coldStart: cold})
		}
	}
	f.outcomes = make(outcomes, len(f.contestants))
	for i, o := range []outcome{
		{gpuHours: 2, waitSeconds: 1000, p95: 2, flaps: 1}, // $5
		{gpuHours: 1, waitSeconds: 10_000, p95: 9},         // $3 at the cheap price
		{gpuHours: 1, waitSeconds: 8000, p95: 8},           // $10, $2.80 when waiting is cheap
		{gpuHours: 10, waitSeconds: 0, p95: 0},             // $20
		{gpuHours: 2, waitSeconds: 2000, p95: 3},           // $6
		{gpuHours: 1, waitSeconds: 0, p95: 0},              // $2
	} {
		for range f.scenarios {
			f.outcomes[i] = append(f.outcomes[i], o)
		}
	}
	return f
}

func TestScore(t *testing.T) {
	f := paper()
	f.outcomes[2][0].p95, f.outcomes[2][0].gpuHours = 1, 1 // thrifty is better at both in one of four
	got := map[string]float64{}
	for _, x := range f.figures(1234.4) {
		got[x.Name] = x.Value
	}
	require.InDeltaMapValues(t, map[string]float64{
		"policy_cost_vs_best_default_peer":            5.0 / 10,
		"policy_cost_vs_best_default_peer_20_40":      5.0 / 10,
		"policy_cost_vs_tuned_peer":                   5.0 / 6,
		"policy_cost_vs_best_default_peer_cheap_wait": 3.0 / 2.8,
		"policy_dominated_scenarios":                  1,
		"policy_flaps":                                4,
		"policy_cost_vs_clairvoyant_90_150":           5.0 / 2,
		"policy_cost_vs_clairvoyant_20_40":            5.0 / 2,
		"decide_ns":                                   1234,
	}, got, 1e-3)
}

func TestTables(t *testing.T) {
	var out bytes.Buffer
	f := paper()
	require.NoError(t, f.totals(&out))
	require.NoError(t, f.perScenario(&out))
	require.Regexp(t, `thrifty +6 +20 +164 +2 `, out.String(), "two workloads at each cold start")
	require.Regexp(t, `90/150 s +a +5\.0 +2\.0 +2\.0 +10\.0 +8\.0 +1\.0 +thrifty +0\.50`, out.String())
}

// One scenario and one peer, for real.
func TestRunOne(t *testing.T) {
	var out bytes.Buffer
	o := options{scenario: "flash", policy: "http-add-on", seeds: 1, quick: true, traces: "../traces", out: filepath.Join(t.TempDir(), "x", "policy.json")}
	require.NoError(t, run(t.Context(), o, &out))
	require.Contains(t, out.String(), "pilotlight @ 0.001")
	require.Contains(t, out.String(), "http-add-on")
	require.NotContains(t, out.String(), "kubeai")
	require.NoFileExists(t, o.out, "part of the field is no figure")

	o.scenario = "nothing like it"
	require.ErrorContains(t, run(t.Context(), o, &out), "no scenario contains")
	o.scenario, o.traces = "code", "nowhere"
	require.ErrorIs(t, run(t.Context(), o, &out), os.ErrNotExist)
}
