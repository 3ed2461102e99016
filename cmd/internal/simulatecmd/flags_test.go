package simulatecmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/exitcode"
)

// Every impossible value is the user's to mend, told in one line that names the
// flag.
func TestImpossibleFlags(t *testing.T) {
	so, trace := files(t, "")
	cases := map[string][]string{
		"--warm 5":                   {"--warm", "5"},
		"--warm -1":                  {"--warm", "-1"},
		"--engine: slots":            {"--engine", "slots=0"},
		"--engine: prefill":          {"--engine", "prefill=0"},
		"--engine: prefill: \"inf":   {"--engine", "prefill=inf"},
		"--engine: decode:":          {"--engine", "decode=0s"},
		"--engine: decodefull:":      {"--engine", "decodefull=0s"},
		"--engine: decodefull 1ms":   {"--engine", "decodefull=1ms"},
		"--engine: kv":               {"--engine", "kv=-1"},
		"--engine: slots is given":   {"--engine", "slots=1,slots=2"},
		"--cold-start: p50":          {"--cold-start", "p50=0s"},
		"--cold-start: p50: \"9000h": {"--cold-start", "p50=9000h"},
		"--cold-start: p95 10s":      {"--cold-start", "p95=10s"},
		"--cold-start: node: \"1.5":  {"--cold-start", "node=1.5"},
		"--cold-start: node: \"-0.1": {"--cold-start", "node=-0.1"},
		"--cold-start: nodedelay":    {"--cold-start", "nodedelay=-1s"},
		"--slo 0s":                   {"--slo", "0s"},
		"--patience -1s":             {"--patience", "-1s"},
		"--patience 2562047h":        {"--patience", "2562047h"},
		"--gauge-lag -1s":            {"--gauge-lag", "-1s"},
		"--from -1s":                 {"--from", "-1s"},
		"--for -1s":                  {"--for", "-1s"},
		"--stuck 0":                  {"--stuck", "1,0"},
		"--failing -2":               {"--failing", "-2"},
		"--stuck 2: --failing":       {"--stuck", "2", "--failing", "1,2"},
		"--rate -1":                  {"--rate", "-1"},
		"--rate 0":                   {"--rate", "0"},
		"--rate NaN":                 {"--rate", "NaN"},
		"--rate: ":                   {"--rate", "2"}, // of recorded requests
		"\"--seed\"":                 {"--seed", "-1"},
		"--slo -1s: must be above 0 and at most 8760h0m0s; --warm -1: must not": {"--warm", "-1", "--slo", "-1s"},
	}
	for says, args := range cases {
		t.Run(says, func(t *testing.T) {
			for _, cmd := range []string{"simulate", "tune"} {
				c := Simulate(false)
				if cmd == "tune" {
					c = Tune(false)
				}
				code, out, errs := run(t, c, append([]string{"--scaledobject", so, "--trace", trace}, args...)...)
				require.Equal(t, exitcode.Usage, code, errs)
				require.Contains(t, errs, says)
				require.Equal(t, 1, strings.Count(errs, "\n"), "one line: %s", errs)
				require.Empty(t, out)
			}
		})
	}
}

// The faults of all flags and of the ScaledObject are told together.
func TestFaultsAreToldAtOnce(t *testing.T) {
	so, trace := files(t, "      mode: shadow\n      demandFrom: none\n")
	code, _, errs := run(t, Simulate(false), "--scaledobject", so, "--trace", trace, "--slo", "-1s", "--compare", "fixed-0,skynet", "-o", "xml", "--engine", "slots=0")
	require.Equal(t, exitcode.Usage, code)
	for _, says := range []string{"; --scaledobject: " + so + ":18: trigger metadata: demandFrom", "; " + so + ":17: trigger metadata: mode", "--slo", "; --compare fixed-0", "; --compare skynet", "; --output", "; --engine"} {
		require.Contains(t, errs, says)
	}
	require.Equal(t, 1, strings.Count(errs, "\n"), errs)
}

// What cannot be written is found before the run, and nothing is left behind
// that was not there.
func TestOutputsAreOpenedFirst(t *testing.T) {
	so, trace := files(t, "")
	dir := t.TempDir()
	page, old := filepath.Join(dir, "out.html"), filepath.Join(dir, "old.png")
	require.NoError(t, os.WriteFile(old, []byte("yesterday's picture, longer than nothing"), 0o600))
	args := []string{"--scaledobject", so, "--trace", trace, "--compare", "none"}
	for _, bad := range [][]string{
		{"--html", page, "--png", filepath.Join(dir, "none", "x.png")},
		{"--html", dir, "--png", old},
		{"--html", page, "--png", old, "--slo", "-1s"},
		{"--html", page, "--png", page},
	} {
		code, out, errs := run(t, Simulate(false), append(args, bad...)...)
		require.Equal(t, exitcode.Usage, code, errs)
		require.Empty(t, out, "nothing was run")
		require.NoFileExists(t, page)
		kept, err := os.ReadFile(old)
		require.NoError(t, err)
		require.Equal(t, "yesterday's picture, longer than nothing", string(kept))
	}
	code, _, errs := run(t, Simulate(false), append(args, "--html", page, "--png", old)...)
	require.Equal(t, exitcode.OK, code, errs)
	require.FileExists(t, page)
	picture, err := os.ReadFile(old)
	require.NoError(t, err)
	require.Equal(t, "\x89PNG", string(picture[:4]))
}
