package trace

import (
	"errors"
	"strings"
	"testing"
)

// Whatever is read, the answer is requests in order within bounds, or an error
// that names the trace.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n2023-11-16 18:17:04.0319600,3180,8",
		"timestamp_s,rate_rps,cv,pattern,param0,param1\n0,0.05,1.3,Gamma,0.53,2.4\n600,0,0,,0,0\n1200,0.01,1,Weibull,0.06,253\n",
		`{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}` + "\n",
		"timestamp,input,output\n1,2,3\n2026-01-02T03:04:05Z,1,1\n",
		"1,2,3\n0,2,3\n", "0,1,1,Gamma,1e-300,1\n", "\ufeff1e18,1,1\n-1e18,1,1\n",
	} {
		f.Add(seed, uint64(1))
	}
	f.Fuzz(func(t *testing.T, content string, seed uint64) {
		got, err := Read(strings.NewReader(content), Options{Name: "fuzz", Seed: seed, Limit: 5000})
		if err != nil {
			var at *LineError
			if !errors.As(err, &at) || at.Name != "fuzz" || len(err.Error()) > 2000 {
				t.Fatalf("%v", err)
			}
			return
		}
		if len(got) == 0 || len(got) > 5000 {
			t.Fatalf("%d requests", len(got))
		}
		for i, q := range got {
			if q.At < 0 || q.Input < 0 || q.Output < 0 || q.Input > MaxTokens || q.Output > MaxTokens || i > 0 && q.At < got[i-1].At {
				t.Fatalf("request %d: %+v", i, q)
			}
		}
	})
}
