package activatorcmd

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/exitcode"
)

// targetsFile writes two targets: asleep, with pods or without, and awake.
func targetsFile(t *testing.T, path, engine string, asleepIsReady bool) {
	t.Helper()
	host, port, err := net.SplitHostPort(engine)
	require.NoError(t, err)
	pods := fmt.Sprintf("pods: [{name: a, host: %s, port: %s, readyAt: 2026-01-01T00:00:00Z}]", host, port)
	asleep := ""
	if asleepIsReady {
		asleep = ", " + pods
	}
	content := fmt.Sprintf(`targets:
- {namespace: ai, name: asleep, maxReplicaCount: 1, metadata: {targetRequests: "20", modelName: asleep}%s}
- {namespace: ai, name: awake, maxReplicaCount: 1, metadata: {targetRequests: "20", modelName: awake}, %s}
`, asleep, pods)
	require.NoError(t, os.WriteFile(path+".new", []byte(content), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

// slowEngine streams a token every 50 ms until finish is closed.
func slowEngine(t *testing.T, finish <-chan struct{}) (addr string, running *atomic.Int32) {
	t.Helper()
	running = new(atomic.Int32)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		running.Add(1)
		defer running.Add(-1)
		w.Header().Set("Content-Type", "text/event-stream")
		for end := false; !end; {
			_, _ = io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-finish:
				end = true
			case <-time.After(50 * time.Millisecond):
			}
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}))
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String(), running
}

// An activator is rolled while it holds ten requests and ten streams run: the
// streams end as they should, and the held are served when the model comes up
// while it leaves.
func TestFaultRolledWithTenHeldAndTenStreaming(t *testing.T) {
	finish := make(chan struct{})
	engine, running := slowEngine(t, finish)
	targets := filepath.Join(t.TempDir(), "targets.yaml")
	targetsFile(t, targets, engine, false)
	r := start(t, "--static-targets", targets, "--shutdown-delay", "200ms", "--drain-hold", "10s", "--grace", "20s")
	require.Eventually(t, func() bool { return r.get(t, r.clients+"/v1/models") == http.StatusOK }, 30*time.Second, 10*time.Millisecond)

	type answer struct {
		status int
		body   string
		err    error
	}
	answers := make(chan answer, 20)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for range 10 {
		for _, model := range []string{"awake", "asleep"} {
			go func() {
				status, body, err := r.ask(ctx, model)
				answers <- answer{status, body, err}
			}()
		}
	}
	require.Eventually(t, func() bool { return running.Load() == 10 && r.held(t, "asleep") == "10" }, 30*time.Second, 10*time.Millisecond)
	r.stop()
	require.Eventually(t, func() bool { return r.get(t, r.clients+"/v1/models") == 0 }, 30*time.Second, 10*time.Millisecond, "accepts no more")
	require.Equal(t, "10", r.held(t, "asleep"), "and still holds")
	targetsFile(t, targets, engine, true)
	require.Eventually(t, func() bool { return running.Load() == 20 }, 30*time.Second, 10*time.Millisecond)
	close(finish)
	for range 20 {
		a := <-answers
		require.NoError(t, a.err)
		require.Equal(t, http.StatusOK, a.status, a.body)
		require.True(t, strings.HasSuffix(a.body, "data: [DONE]\n\n"))
	}
	select {
	case code := <-r.code:
		require.Equal(t, exitcode.OK, code)
	case <-time.After(time.Minute):
		t.Fatal("the activator did not end")
	}
}

// held reads from the metrics page how many requests are held for a target.
func (r running) held(t *testing.T, target string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.probes+"/metrics", nil)
	require.NoError(t, err)
	resp, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(t, err)
	page, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	for line := range strings.Lines(string(page)) {
		if rest, ok := strings.CutPrefix(line, fmt.Sprintf("pilotlight_activator_held_requests{namespace=%q,scaled_object=%q} ", "ai", target)); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}
