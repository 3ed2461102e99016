package simulatecmd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/internal/exitcode"
)

const object = `apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: llama, namespace: ai}
spec:
  scaleTargetRef: {name: llama}
  maxReplicaCount: 4
  pollingInterval: 10
  cooldownPeriod: 30
  advanced: {horizontalPodAutoscalerConfig: {behavior: {scaleUp: {tolerance: 0}, scaleDown: {tolerance: 0, stabilizationWindowSeconds: 0}}}}
  triggers:
  - type: external-push
    metadata:
      scalerAddress: pilotlight:6000
      targetRequests: "4"
      modelName: llama
      coldStart: 30s
%s`

// files writes a ScaledObject (with more metadata) and a trace: bursts of
// eight requests every five minutes for an hour.
func files(t *testing.T, metadata string) (so, trace string) {
	t.Helper()
	dir := t.TempDir()
	so, trace = filepath.Join(dir, "so.yaml"), filepath.Join(dir, "trace.csv")
	require.NoError(t, os.WriteFile(so, fmt.Appendf(nil, object, metadata), 0o600))
	var b strings.Builder
	b.WriteString("timestamp,input,output\n")
	for burst := range 12 {
		for i := range 8 {
			fmt.Fprintf(&b, "%d.%d,500,200\n", burst*300, i)
		}
	}
	require.NoError(t, os.WriteFile(trace, []byte(b.String()), 0o600))
	return so, trace
}

func run(t *testing.T, cmd *cobra.Command, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = cli.Run(t.Context(), cmd, cli.Env{Args: args, Stdout: &stdout, Stderr: &stderr})
	return code, stdout.String(), stderr.String()
}

func TestSimulateComparesPolicies(t *testing.T) {
	so, trace := files(t, "")
	page, picture := filepath.Join(t.TempDir(), "out.html"), filepath.Join(t.TempDir(), "out.png")
	args := []string{"--scaledobject", so, "--trace", trace, "--compare", "http-add-on,clairvoyant,fixed-2", "--html", page, "--png", picture}
	code, out, errs := run(t, Simulate(false), args...)
	require.Equal(t, exitcode.OK, code, errs)
	require.Empty(t, errs, "no bar where there is no terminal")
	require.Contains(t, out, "trace.csv: 96 requests in 55m1s, at most 4 replicas of 4")
	for _, name := range []string{"pilotlight", "http-add-on", "clairvoyant", "fixed-2", "cost $"} {
		require.Contains(t, out, name)
	}
	_, again, _ := run(t, Simulate(false), args...)
	require.Equal(t, out, again, "the same seed gives the same table")

	html, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Contains(t, string(html), "<svg")
	require.NotContains(t, string(html), "<script", "the page needs nothing else")
	require.NotContains(t, string(html), "ZgotmplZ")
	require.Contains(t, string(html), "Strip below pilotlight, why", "the picture explains the only strip there is")
	require.NotContains(t, out, "lost requests", "none were lost")
	require.Contains(t, string(html), "<td>http-add-on</td>")
	f, err := os.Open(picture)
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	image, err := png.Decode(f)
	require.NoError(t, err)
	require.Greater(t, image.Bounds().Dy(), 500, "a lane for each policy")
}

// The figures say what the settings imply: what is held longer costs more GPU
// time and lets fewer wait, and a fixed replica is there from the start.
func TestSettingsShowInTheFigures(t *testing.T) {
	type report struct {
		Policies []row `json:"policies"`
	}
	simulate := func(metadata string) row {
		so, trace := files(t, metadata)
		code, out, errs := run(t, Simulate(false), "--scaledobject", so, "--trace", trace, "--compare", "none", "-o", "json")
		require.Equal(t, exitcode.OK, code, errs)
		var r report
		require.NoError(t, json.Unmarshal([]byte(out), &r))
		require.Len(t, r.Policies, 1)
		return r.Policies[0]
	}
	short, long := simulate("      keepAlive: 30s\n"), simulate("      keepAlive: 1h\n")
	require.GreaterOrEqual(t, short.Starts, 12, "asleep before each of the twelve bursts")
	require.Less(t, long.Starts, short.Starts)
	require.Greater(t, long.GPUHours, short.GPUHours)
	require.Less(t, long.WaitMean, short.WaitMean)
	require.Zero(t, long.Lost)
}

func TestErrorsNamePlaceAndKey(t *testing.T) {
	so, trace := files(t, "")
	bad, _ := files(t, "      treshold: '5'\n")
	plain := filepath.Join(t.TempDir(), "plain.yaml")
	require.NoError(t, os.WriteFile(plain, []byte("kind: ScaledObject\nspec: {triggers: []}\n"), 0o600))
	disordered := filepath.Join(t.TempDir(), "disordered.csv")
	require.NoError(t, os.WriteFile(disordered, []byte("timestamp,input,output\n5,1,1\n4,1,1\n"), 0o600))
	empty := filepath.Join(t.TempDir(), "empty.csv")
	require.NoError(t, os.WriteFile(empty, []byte("timestamp,input,output\n"), 0o600))
	price, _ := files(t, "      waitCost: '-1'\n")
	shadow, _ := files(t, "      mode: shadow\n")
	cases := map[string]struct {
		args []string
		says []string
	}{
		"NoFiles":        {nil, []string{"--scaledobject is required"}},
		"NoTrace":        {[]string{"--scaledobject", so}, []string{"--trace is required"}},
		"MissingFile":    {[]string{"--scaledobject", "none.yaml"}, []string{"none.yaml"}},
		"NotOurTrigger":  {[]string{"--scaledobject", plain, "--trace", trace}, []string{plain + ":1:", "no ScaledObject with a Pilotlight trigger"}},
		"BadKey":         {[]string{"--scaledobject", bad, "--trace", trace}, []string{bad + ":17:", "treshold"}},
		"BadPrice":       {[]string{"--scaledobject", price, "--trace", trace}, []string{price + ":17:", "waitCost"}},
		"OutOfOrder":     {[]string{"--scaledobject", so, "--trace", disordered}, []string{disordered + ":3:", "out of order"}},
		"EmptyTrace":     {[]string{"--scaledobject", so, "--trace", empty}, []string{empty, "no requests"}},
		"UnknownPeer":    {[]string{"--scaledobject", so, "--trace", trace, "--compare", "skynet"}, []string{"skynet", "knative"}},
		"FixedTooMany":   {[]string{"--scaledobject", so, "--trace", trace, "--compare", "fixed-9"}, []string{"fixed-9", "maxReplicaCount"}},
		"EngineKey":      {[]string{"--scaledobject", so, "--trace", trace, "--engine", "slot=3"}, []string{"--engine", "slots"}},
		"EngineValue":    {[]string{"--scaledobject", so, "--trace", trace, "--engine", "slots=-3"}, []string{"slots"}},
		"ColdStartValue": {[]string{"--scaledobject", so, "--trace", trace, "--cold-start", "p50=soon"}, []string{"--cold-start", "p50"}},
		"ColdStartOrder": {[]string{"--scaledobject", so, "--trace", trace, "--cold-start", "p50=90s,p95=10s"}, []string{"--cold-start: p95 10s"}},
		"Output":         {[]string{"--scaledobject", so, "--trace", trace, "--compare", "none", "-o", "xml"}, []string{"xml"}},
		"Refused":        {[]string{"--scaledobject", shadow, "--trace", trace}, []string{shadow + ":17:", "mode: shadow needs another trigger"}},
		"Unwritable":     {[]string{"--scaledobject", so, "--trace", trace, "--compare", "none", "--html", filepath.Join(trace, "x.html")}, []string{"x.html"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			code, _, errs := run(t, Simulate(false), tc.args...)
			require.Equal(t, exitcode.Usage, code)
			for _, want := range tc.says {
				require.Contains(t, errs, want)
			}
			require.Equal(t, 1, strings.Count(errs, "\n"), "one line: %s", errs)
		})
	}
}

// A lost request has no price, so the table says what its cost leaves out.
func TestLostRequestsAreSaid(t *testing.T) {
	so, trace := files(t, "      keepAlive: 30s\n")
	page := filepath.Join(t.TempDir(), "out.html")
	code, out, errs := run(t, Simulate(false), "--scaledobject", so, "--trace", trace, "--compare", "none", "--patience", "5s", "--html", page)
	require.Equal(t, exitcode.OK, code, errs)
	require.True(t, strings.HasSuffix(out, "\n\n"+lostNote+"\n"), out)
	html, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Contains(t, string(html), lostNote)
}

func TestOtherTriggersAreNoted(t *testing.T) {
	so, trace := files(t, "  - type: cron\n    metadata: {timezone: UTC}\n")
	for _, cmd := range []*cobra.Command{Simulate(false), Tune(false)} {
		code, _, errs := run(t, cmd, "--scaledobject", so, "--trace", trace)
		require.Equal(t, exitcode.OK, code, errs)
		require.Equal(t, "note: "+so+":17: the trigger of type cron is not simulated\n", errs)
	}
}

func TestProgressBar(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out, true, 4)
	p.step()
	p.end()
	require.Contains(t, out.String(), "1/4 simulations")
	require.True(t, strings.HasSuffix(out.String(), "\r\x1b[K"), "the bar is gone at the end")
}
