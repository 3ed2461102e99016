package engine_test

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/scaler/engine"
)

func TestParseReadsEveryEnginesPage(t *testing.T) {
	nan := math.NaN()
	tests := map[string]struct {
		kind engine.Kind
		file string
		want engine.Reading
	}{
		"VLLMOneEngine": {engine.VLLM, "vllm-metrics-v1.txt", engine.Reading{
			Running: 48, Waiting: 7, PromptTokens: 919359, GenerationTokens: 200410,
			Finished: 937 + 231 + 16, InferenceSeconds: 2996.7181338523037, InferenceCount: 1184,
			QueueSeconds: 588.3463216141281, QueueCount: 1184, StartTime: 1787219112.34,
		}},
		"VLLMTwoEnginesWithoutProcessMetrics": {engine.VLLM, "vllm-metrics-v1-dp2-multiproc.txt", engine.Reading{
			Running: 48 + 43, Waiting: 7 + 9, PromptTokens: 925911 + 962224, GenerationTokens: 198003 + 197016,
			Finished: 944 + 968 + 225 + 203 + 15 + 13, InferenceSeconds: 2958.895736258259 + 2940.6142739034003,
			InferenceCount: 2 * 1184, QueueSeconds: 585.915153501428 + 620.7566179739115, QueueCount: 2 * 1184, StartTime: nan,
		}},
		"VLLMV0NamesTheModelOnly": {engine.VLLM, "vllm-metrics-v0.txt", engine.Reading{
			Running: 62, Waiting: 5, PromptTokens: 530365, GenerationTokens: 113008, Finished: 604 + 207,
			InferenceSeconds: 2205.405895104168, InferenceCount: 811,
			QueueSeconds: 756.4455136765182, QueueCount: 811, StartTime: nan,
		}},
		"SGLangHasNoInferenceTime": {engine.SGLang, "sglang-metrics.txt", engine.Reading{
			Running: 37, Waiting: 4, PromptTokens: 723211, GenerationTokens: 182115, Finished: 903,
			InferenceSeconds: nan, InferenceCount: nan, QueueSeconds: 409.947425923902, QueueCount: 903, StartTime: nan,
		}},
		"TGIWithoutLabels": {engine.TGI, "tgi-metrics.txt", engine.Reading{
			Running: 16, Waiting: 4, PromptTokens: 476447, GenerationTokens: 128137, Finished: 742,
			InferenceSeconds: 1842.1283501440223, InferenceCount: 742,
			QueueSeconds: 344.14598658722844, QueueCount: 742, StartTime: nan,
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			body := fixture(t, tc.file)
			for _, m := range []string{model, ""} {
				got, err := engine.Parse(tc.kind, body, m)
				require.NoError(t, err)
				requireReading(t, tc.want, got)
			}
			crlf := bytes.ReplaceAll(body, []byte("\n"), []byte("\r\n"))
			got, err := engine.Parse(tc.kind, crlf, model)
			require.NoError(t, err, "CRLF")
			requireReading(t, tc.want, got)

			allocs := testing.AllocsPerRun(20, func() { _, _ = engine.Parse(tc.kind, body, model) })
			require.Zero(t, allocs, "allocations of a successful parse")
		})
	}
}

func TestEveryPageIsUnknownToTheOtherEngines(t *testing.T) {
	files := map[engine.Kind]string{engine.VLLM: "vllm-metrics-v1.txt", engine.SGLang: "sglang-metrics.txt", engine.TGI: "tgi-metrics.txt"}
	for kind := range files {
		for other, file := range files {
			if kind == other {
				continue
			}
			got, err := engine.Parse(kind, fixture(t, file), "")
			require.ErrorIs(t, err, engine.ErrNoSeries, "%s reads %s", kind, file)
			requireReading(t, unknown(), got)
		}
	}
}

// A page may be cut anywhere. Wherever the cut can be seen, it must be: the
// only Reading that may differ from the whole page's is one whose last line
// ends, without newline, inside its own number (HTTP shows that cut, and the
// Scraper refuses it), or one that lacks whole lines at the end.
func TestCutPageNeverChangesTheLoad(t *testing.T) {
	for file, kind := range map[string]engine.Kind{
		"vllm-metrics-v1.txt": engine.VLLM, "vllm-metrics-v1-dp2-multiproc.txt": engine.VLLM, "sglang-metrics.txt": engine.SGLang,
	} {
		body := withoutBuckets(fixture(t, file))
		whole, err := engine.Parse(kind, body, model)
		require.NoError(t, err)
		unknowns := 0
		for end := range len(body) {
			got, err := engine.Parse(kind, body[:end], model)
			if err != nil {
				require.ErrorIs(t, err, engine.ErrUnknown)
				unknowns++
				continue
			}
			inNumber := bytes.IndexByte(body[end:], '\n') > 0 && bytes.ContainsAny(body[end-1:end], "0123456789.")
			if !inNumber {
				require.Equal(t, whole.Running, got.Running, "%s cut at %d", file, end)
				require.Equal(t, whole.Waiting, got.Waiting, "%s cut at %d", file, end)
			}
		}
		require.Greater(t, unknowns, len(body)*9/10, "cuts of %s that were noticed", file)
	}
}

// withoutBuckets drops histogram buckets, three quarters of a page.
func withoutBuckets(body []byte) []byte {
	var kept [][]byte
	for line := range bytes.Lines(body) {
		if !bytes.Contains(line, []byte("_bucket{")) {
			kept = append(kept, line)
		}
	}
	return bytes.Join(kept, nil)
}
