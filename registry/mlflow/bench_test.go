//go:build unix

package mlflow_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/registry/mlflow"
)

// BenchmarkUnchangedPointer is what an agent's poll costs while nothing moves:
// the one GET of Peek. cpu-ms/op is of the whole process, so of the client and
// of the server that answers it, with each poll on a connection of its own, as
// it is when polls are further apart than servers keep a connection. The goal is
// 0.2 ms.
func BenchmarkUnchangedPointer(b *testing.B) {
	const answer = `{"model_version":{"name":"llama","version":"3","creation_timestamp":1767225600000,"last_updated_timestamp":1767225600000,` +
		`"current_stage":"None","description":"","source":"models:/m-0f3c","run_id":"ab12","status":"READY","tags":[{"key":"k","value":"v"}],"run_link":"","aliases":["champion"]}}`
	for name, keep := range map[string]bool{"KeptConnection": true, "NewConnection": false} {
		b.Run(name, func(b *testing.B) {
			ts := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, answer)
			}))
			ts.Config.SetKeepAlivesEnabled(keep)
			ts.Start()
			defer ts.Close()
			c, err := mlflow.New(mlflow.Config{TrackingURI: ts.URL, Username: "ann", Password: "x", Logger: slog.New(slog.DiscardHandler)})
			require.NoError(b, err)
			ref := championRef(b)
			b.ReportAllocs()
			before := processCPU(b)
			for b.Loop() {
				_, version, _, err := c.Peek(b.Context(), ref)
				require.NoError(b, err)
				require.Equal(b, "3", version)
			}
			b.ReportMetric(float64((processCPU(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
		})
	}
}

func processCPU(tb testing.TB) time.Duration {
	tb.Helper()
	var use syscall.Rusage
	require.NoError(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &use))
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
