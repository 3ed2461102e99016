package contender

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/scaler/policy"
	"github.com/pilotlight-dev/pilotlight/scaler/simulate"
	"github.com/pilotlight-dev/pilotlight/scaler/simulate/trace"
)

// A day of 10 requests a second under our policy, behind KEDA and the HPA.
func BenchmarkPilotlightDay(b *testing.B) {
	requests, err := trace.Constant(10, 24*time.Hour).Requests(trace.Options{})
	require.NoError(b, err)
	o := Ours{
		Config: policy.Config{
			TargetRequests: 16, MaxReplicas: 8, WaitPrice: 0.001, GPUPrice: 2.0 / 3600,
			KeepAlive: policy.Auto, ScaleDownWindow: policy.Auto, Lookahead: policy.Auto,
			DrainWithin: policy.Auto, StartDeadline: policy.Auto, StaleAfter: time.Minute, Cooldown: 30 * time.Second,
		},
		ColdStart: policy.ColdStart{P50: 90 * time.Second, P95: 150 * time.Second},
	}
	require.NoError(b, o.Config.Validate())
	for b.Loop() {
		r, err := simulate.Run(b.Context(), simulate.Scenario{Requests: requests, Seed: 1, SampleEvery: 10 * time.Second}, o.Controller())
		require.NoError(b, err)
		require.Greater(b, r.Completed, len(requests)-1000)
	}
}
