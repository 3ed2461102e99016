package engine_test

import (
	"bytes"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/scaler/engine"
)

// FuzzParse compares Parse with the reference wherever Prometheus's parser
// accepts the body: same Reading, or same class of error.
//
// Parse is stricter in one point: expfmt takes quotes in the middle of a bare
// name (vllm:a"b") and a quoted name outside braces, which the format does not
// have; bodies with such quotes are not compared.
func FuzzParse(f *testing.F) {
	for _, file := range []string{"vllm-metrics-v1.txt", "vllm-metrics-v1-dp2-multiproc.txt", "vllm-metrics-v0.txt", "sglang-metrics.txt", "tgi-metrics.txt"} {
		body := withoutBuckets(fixture(f, file))
		for kind := range byte(3) {
			f.Add(kind, body, model)
		}
		f.Add(byte(0), body, "")
	}
	f.Add(byte(0), []byte(load), "m")
	f.Add(byte(0), []byte(load+"# HEL"), "m")
	f.Add(byte(0), page(`a\\b`, `a\"b`, `a\nb`), `a\b`)
	f.Add(byte(0), []byte("{\"vllm:num_requests_running\",pid=\"1\"} 3\n{a=\"b\",\"vllm:num_requests_waiting\"}2e+01 7\n# EOF\n"), "")
	f.Add(byte(1), []byte("sglang:num_running_reqs{tp_rank=\"0\",dp_rank=\"1\"} 3\nsglang:num_running_reqs{tp_rank=\"1\"} 4\nsglang:num_queue_reqs NaN\n"), "")
	f.Add(byte(2), []byte("tgi_queue_size -1\nprocess_start_time_seconds 1.7e9\n"), "x")

	f.Fuzz(func(t *testing.T, which byte, body []byte, model string) {
		compare(t, []engine.Kind{engine.VLLM, engine.SGLang, engine.TGI}[which%3], body, model)
	})
}

// compare fails t when Parse and the reference disagree. It reports whether
// they were compared, and whether both gave a Reading.
func compare(t *testing.T, kind engine.Kind, body []byte, model string) (compared, read bool) {
	t.Helper()
	got, err := engine.Parse(kind, body, model)
	if err != nil {
		require.ErrorIs(t, err, engine.ErrUnknown)
		require.NotContains(t, []string{"", "other"}, engine.Reason(err))
	} else {
		requireUsable(t, got)
	}
	all, refErr := refSamples(body)
	if refErr != nil || strayQuote(body) {
		return false, false
	}
	want, wantErr := refParse(kind, body, model, all)
	if wantErr != nil {
		require.ErrorIs(t, err, wantErr, "kind %s, model %q", kind, model)
		return true, false
	}
	require.NoError(t, err, "kind %s, model %q", kind, model)
	if diff := cmp.Diff(want, got, cmpopts.EquateNaNs(), cmpopts.EquateApprox(1e-12, 0)); diff != "" {
		t.Fatalf("kind %s, model %q: reference -, Parse +:\n%s", kind, model, diff)
	}
	return true, true
}

// requireUsable checks what every Reading without an error promises.
func requireUsable(t *testing.T, r engine.Reading) {
	t.Helper()
	const huge = math.MaxFloat64
	require.True(t, r.Running >= 0 && r.Running <= huge, "running %v", r.Running)
	require.True(t, r.Waiting >= 0 && r.Waiting <= huge, "waiting %v", r.Waiting)
	for _, v := range []float64{
		r.PromptTokens, r.GenerationTokens, r.Finished, r.InferenceSeconds, r.InferenceCount,
		r.QueueSeconds, r.QueueCount, r.StartTime,
	} {
		require.False(t, v < 0 || v > huge, "counter %v", v)
	}
}

// strayQuote says whether a quote opens anywhere but after {, a comma or =.
func strayQuote(body []byte) bool {
	for line := range bytes.Lines(body) {
		line = bytes.TrimLeft(line, " \t")
		if bytes.HasPrefix(line, []byte{'#'}) {
			continue
		}
		inside, before := false, byte(' ')
		for i := 0; i < len(line); i++ {
			c := line[i]
			switch {
			case inside && c == '\\':
				i++
			case inside && c == '"':
				inside = false
				before = c
			case inside:
			case c == '"' && before != '{' && before != ',' && before != '=':
				return true
			case c == '"':
				inside = true
			case c != ' ' && c != '\t':
				before = c
			}
		}
	}
	return false
}
