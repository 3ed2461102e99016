package engine_test

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/scaler/engine"
)

// model is the served name in every fixture.
const model = "meta-llama/Llama-3.1-8B-Instruct"

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("testdata", "metrics", name)) //nolint:gosec // names are written in the tests
	require.NoError(t, err)
	return body
}

// only is a Reading that knows nothing but the load.
func only(running, waiting float64) engine.Reading {
	r := unknown()
	r.Running, r.Waiting = running, waiting
	return r
}

// unknown is a Reading that knows nothing.
func unknown() engine.Reading {
	n := math.NaN()
	return engine.Reading{
		Running: n, Waiting: n, PromptTokens: n, GenerationTokens: n, Finished: n,
		InferenceSeconds: n, InferenceCount: n, QueueSeconds: n, QueueCount: n, StartTime: n,
	}
}

func requireReading(t testing.TB, want, got engine.Reading) {
	t.Helper()
	require.Empty(t, cmp.Diff(want, got, cmpopts.EquateNaNs(), cmpopts.EquateApprox(1e-12, 0)))
}
