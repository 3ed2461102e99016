package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/scaler/engine"
)

const pagePath = "../../scaler/engine/testdata/metrics/vllm-metrics-v1.txt"

// TestSmall plays the load on a small fleet, with the targets in a file, so that
// the bench cannot rot. Only that everything works is asserted: how fast is the
// bench's affair.
func TestSmall(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has the whole of 127.0.0.0/8 on loopback")
	}
	t.Parallel()
	c := config{dir: t.TempDir(), page: pagePath}
	c.scaler = filepath.Join(c.dir, "pilotlight-scaler")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", c.scaler, "../../cmd/pilotlight-scaler").CombinedOutput()
	require.NoError(t, err, "%s", out)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	f := small
	base, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f.port = base.Addr().(*net.TCPAddr).Port
	page, err := os.ReadFile(pagePath)
	require.NoError(t, err)
	e, err := newEngines(ctx, f, page)
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- e.serve(ctx, base) }()
	targets := filepath.Join(c.dir, "targets.yaml")
	require.NoError(t, writeTargets(targets, f))

	l := load{interval: 500 * time.Millisecond, speed: 15, settle: 500 * time.Millisecond, window: 2 * time.Second, least: 0.1} // other tests run beside it
	s, err := startScaler(ctx, c, l, "--scrape-timeout", "30s", "--static-targets", targets, "--state-file", filepath.Join(c.dir, "state.json"))
	require.NoError(t, err)
	nothing, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	idle := make(chan error, 1)
	go func() { idle <- serveBare(ctx, nothing) }()
	got, err := measureLoad(ctx, f, l, s, nothing.Addr().String(), func(context.Context) (int, error) { return int(e.served.Load()), nil })
	require.NoError(t, err)
	names := map[string]float64{}
	for _, x := range got {
		names[x.Name] = x.Value
		t.Log(x.Name, x.Value, x.Unit, x.Note)
	}
	for _, name := range []string{"scale_cores", "scale_rss_mib", "scale_getmetrics_p99_ms", "scale_bare_grpc_p99_ms", "scale_edge_p99_ms", "scale_known_s"} {
		require.Positive(t, names[name], name)
	}
	require.NoError(t, s.Stop(10*time.Second))
	require.Zero(t, s.ExitCode())
	stop()
	require.NoError(t, <-served)
	require.NoError(t, <-idle)
}

func TestFleet(t *testing.T) {
	for name, f := range map[string]fleet{"size": size, "small": small} {
		t.Run(name, func(t *testing.T) {
			next, hosts := 0, map[string]bool{}
			for i := range f.objects {
				first, end := f.podsOf(i)
				if i < f.asleep {
					require.Equal(t, first, end, "asleep")
					continue
				}
				require.Equal(t, next, first, "every pod has one object")
				require.Greater(t, end, first, "awake")
				require.LessOrEqual(t, end-first, maxReplicas)
				for k := first; k < end; k++ {
					require.Equal(t, i, f.objectOf(k))
					hosts[f.host(k)] = true
				}
				next = end
			}
			require.Equal(t, f.pods, next)
			require.Len(t, hosts, f.pods, "an address each")
			for host := range hosts {
				require.True(t, net.ParseIP(host).IsLoopback(), host)
			}
		})
	}
}

// What an engine answers is a page of the usual size, the same gzipped and plain,
// whose moving numbers are read as such.
func TestPagesAreVLLMs(t *testing.T) {
	page, err := os.ReadFile(pagePath)
	require.NoError(t, err)
	f := small
	e, err := newEngines(t.Context(), f, page)
	require.NoError(t, err)
	k := f.pods - 1
	e.began = time.Now().Add(-time.Hour)
	ask := func(encoding string) []byte {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
		r.Header.Set("Accept-Encoding", encoding)
		w := httptest.NewRecorder()
		e.answer(w, r, k)
		require.Equal(t, strconv.Itoa(w.Body.Len()), w.Header().Get("Content-Length"))
		if encoding != "gzip" {
			return w.Body.Bytes()
		}
		require.Equal(t, "gzip", w.Header().Get("Content-Encoding"))
		z, err := gzip.NewReader(w.Body)
		require.NoError(t, err)
		text, err := io.ReadAll(z)
		require.NoError(t, err)
		return text
	}
	plain, zipped := ask("identity"), ask("gzip")
	require.InEpsilon(t, len(page), len(plain), 0.05)
	require.InEpsilon(t, len(page), len(zipped), 0.05)
	require.Equal(t, 1, bytes.Count(plain, []byte("\nvllm:num_requests_running{")), "the fixed part has none")
	require.Contains(t, string(plain), "vllm:num_requests_waiting_by_reason{", "but what only sounds alike")
	for _, text := range [][]byte{plain, zipped} {
		r, err := engine.Parse(engine.VLLM, text, f.model(f.objectOf(k)))
		require.NoError(t, err)
		require.Positive(t, r.Running)
		require.InDelta(t, 3600*400, r.GenerationTokens, 60*400, "and it grows with time")
		require.Positive(t, r.Finished)
	}
	_, _, err = split([]byte("no page"))
	require.ErrorContains(t, err, "names no model")
}
