package replay

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/test/e2e/timeline"
)

// load reads a timeline that a run of make e2e has left.
func load(t *testing.T, name string) *timeline.Timeline {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name+".json"), body, 0o600))
	all, err := timeline.Load(dir)
	require.NoError(t, err)
	require.Len(t, all, 1)
	return all[0]
}

// Real KEDA, the real HPA and Pilotlight's own binaries did what the simulator
// says that they do. Whoever changes the policy on purpose records them anew.
func TestRecordedScenarios(t *testing.T) {
	cases := map[string]string{
		"burst-scales-out-and-back-to-zero": "same 6 steps, ",
		"a-start-that-never-becomes-ready":  "same 4 steps, ",
		"minimum-of-one":                    "same 4 steps, ",
	}
	for name, says := range cases {
		t.Run(name, func(t *testing.T) {
			line := load(t, name)
			r, err := Run(t.Context(), line)
			require.NoError(t, err)
			require.Contains(t, r.Says, says)
			require.LessOrEqual(t, r.Largest, r.Of+0.1, "one look of the HPA, and what its loop is late")
			t.Log(r.Says)
			again, err := Run(t.Context(), line)
			require.NoError(t, err)
			require.Equal(t, r, again, "a pure function")
		})
	}
}

// A simulator that did something else would be noticed.
func TestAnotherOutcomeIsNoticed(t *testing.T) {
	cases := map[string]struct {
		reason   string
		from, to string
	}{
		"Target":   {"half as many requests per replica", `"targetRequests":"4"`, `"targetRequests":"2"`},
		"Window":   {"a minute before it shrinks", `"scaleDownWindow":"5s"`, `"scaleDownWindow":"60s"`},
		"Cooldown": {"KEDA waits longer", `"cooldownPeriod":5`, `"cooldownPeriod":30`},
		"Behavior": {"the HPA may add one pod a minute", `"value":100`, `"value":1`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			line := load(t, "burst-scales-out-and-back-to-zero")
			changed := bytes.Replace(line.Trace.ScaledObject, []byte(tc.from), []byte(tc.to), 1)
			require.NotEqual(t, string(line.Trace.ScaledObject), string(changed))
			line.Trace.ScaledObject = changed
			r, err := Run(t.Context(), line)
			require.NoError(t, err)
			require.False(t, r.Same && r.Largest <= r.Of+0.1, "%s: %s", tc.reason, r.Says)
		})
	}
}

// A client asks again when it has its answer: what was recorded of twelve clients
// are twelve sequences, all of which end when the load does.
func TestClientsAreFoundAgain(t *testing.T) {
	in, err := read(load(t, "burst-scales-out-and-back-to-zero"))
	require.NoError(t, err)
	clients := in.clients()
	require.Len(t, clients, 12)
	requests := 0
	for _, c := range clients {
		requests += len(c.requests)
		require.InDelta(t, clients[0].leaves, c.leaves, float64(200*time.Millisecond))
	}
	require.Len(t, in.trace.Requests, requests)
	require.LessOrEqual(t, in.uncounted(), 12)
	require.Positive(t, in.uncounted())
}
