package engine_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/scaler/engine"
)

func BenchmarkParse60KB(b *testing.B) { benchmarkParse(b, engine.VLLM, "vllm-metrics-v1.txt") }
func BenchmarkParseDP2(b *testing.B) {
	benchmarkParse(b, engine.VLLM, "vllm-metrics-v1-dp2-multiproc.txt")
}
func BenchmarkParseSGLang(b *testing.B) { benchmarkParse(b, engine.SGLang, "sglang-metrics.txt") }
func BenchmarkParseTGI(b *testing.B)    { benchmarkParse(b, engine.TGI, "tgi-metrics.txt") }

func benchmarkParse(b *testing.B, kind engine.Kind, file string) {
	body := fixture(b, file)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		_, err := engine.Parse(kind, body, model)
		require.NoError(b, err)
	}
}
