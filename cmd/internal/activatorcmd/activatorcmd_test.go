package activatorcmd

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/internal/exitcode"
)

type running struct {
	clients, probes string
	stop            context.CancelFunc
	code            chan int
}

func start(t *testing.T, args ...string) running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	logs, w := io.Pipe()
	r := running{stop: cancel, code: make(chan int, 1)}
	go func() {
		c := Main(ctx, cli.Env{Args: append([]string{"--listen=127.0.0.1:0", "--http-listen=127.0.0.1:0", "--scaler=127.0.0.1:1", "--insecure"}, args...), Getenv: func(string) string { return "" }, Stdout: io.Discard, Stderr: w})
		_ = w.Close()
		r.code <- c
	}()
	lines := bufio.NewScanner(logs)
	var at struct{ Clients, Probes string }
	for at.Clients == "" {
		require.True(t, lines.Scan(), "the activator ended")
		require.NoError(t, json.Unmarshal(lines.Bytes(), &at), lines.Text())
	}
	go func() { _, _ = io.Copy(io.Discard, logs) }()
	r.clients, r.probes = "http://"+at.Clients, "http://"+at.Probes
	t.Cleanup(cancel)
	return r
}

func (r running) get(t *testing.T, url string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return 0
	}
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}

func (r running) ask(ctx context.Context, model string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.clients+"/v1/chat/completions", strings.NewReader(fmt.Sprintf(`{"model":%q}`, model)))
	if err != nil {
		return 0, "", err
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// Asked to stop, the activator becomes unready, still accepts for a while,
// answers those it holds and lets a stream finish.
func TestLeavesInOrder(t *testing.T) {
	finish := make(chan struct{})
	streaming := make(chan struct{}, 10)
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "first ")
		_ = http.NewResponseController(w).Flush()
		streaming <- struct{}{}
		<-finish
		_, _ = io.WriteString(w, "last")
	}))
	t.Cleanup(engine.Close)
	host, port, err := net.SplitHostPort(engine.Listener.Addr().String())
	require.NoError(t, err)
	targets := filepath.Join(t.TempDir(), "targets.yaml")
	require.NoError(t, os.WriteFile(targets, fmt.Appendf(nil, `targets:
- {namespace: ai, name: asleep, maxReplicaCount: 1, metadata: {targetRequests: "1", modelName: asleep}}
- {namespace: ai, name: awake, maxReplicaCount: 1, metadata: {targetRequests: "1", modelName: awake}, pods: [{name: a, host: %s, port: %s, readyAt: 2026-01-01T00:00:00Z}]}
`, host, port), 0o600))
	r := start(t, "--static-targets", targets, "--shutdown-delay", "10s", "--drain-hold", "100ms", "--grace", "20s")
	require.Eventually(t, func() bool { return r.get(t, r.clients+"/v1/models") == http.StatusOK }, 30*time.Second, 10*time.Millisecond)
	require.Equal(t, http.StatusOK, r.get(t, r.probes+"/readyz"))

	type answer struct {
		status int
		body   string
		err    error
	}
	do := func(model string) <-chan answer {
		c := make(chan answer, 1)
		go func() {
			status, body, err := r.ask(t.Context(), model)
			c <- answer{status, body, err}
		}()
		return c
	}
	stream := do("awake")
	<-streaming
	held := do("asleep")
	require.Eventually(t, func() bool { return r.held(t, "asleep") == "1" }, 30*time.Second, time.Millisecond)

	r.stop()
	require.Eventually(t, func() bool { return r.get(t, r.probes+"/readyz") == http.StatusServiceUnavailable }, 8*time.Second, 5*time.Millisecond, "unready first")
	require.Equal(t, http.StatusOK, r.get(t, r.clients+"/v1/models"), "and still accepting")
	h := <-held
	require.NoError(t, h.err, "the held are answered, not dropped")
	require.Equal(t, http.StatusServiceUnavailable, h.status)
	require.Contains(t, h.body, "try again")
	close(finish)
	s := <-stream
	require.NoError(t, s.err)
	require.Equal(t, "first last", s.body, "a stream finishes")
	select {
	case code := <-r.code:
		require.Equal(t, exitcode.OK, code)
	case <-time.After(time.Minute):
		t.Fatal("the activator did not end")
	}
}

func TestUsageErrors(t *testing.T) {
	cases := map[string]struct {
		args []string
		says string
	}{
		"NoScaler":     {nil, "--scaler is required"},
		"NoPort":       {[]string{"--scaler", "x"}, "host:port"},
		"Nonsense":     {[]string{"--scaler", "::::"}, "host:port"},
		"NegativeHold": {[]string{"--scaler", "a:1", "--max-hold=-5s"}, "--max-hold"},
		"NoHeld":       {[]string{"--scaler", "a:1", "--max-held=0"}, "--max-held"},
		"NoCluster":    {[]string{"--scaler", "a:1", "--insecure"}, "no cluster"},
		"NoCertFile":   {[]string{"--scaler", "a:1", "--tls-cert-file", "none.crt", "--tls-key-file", "none.key"}, "none.crt"},
		"Argument":     {[]string{"now"}, "now"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Setenv("HOME", t.TempDir())
			t.Setenv("KUBECONFIG", "")
			var stderr strings.Builder
			code := Main(t.Context(), cli.Env{Args: tc.args, Getenv: func(string) string { return "" }, Stdout: io.Discard, Stderr: &stderr})
			require.Equal(t, exitcode.Usage, code, stderr.String())
			require.Contains(t, stderr.String(), tc.says)
			require.Equal(t, 1, strings.Count(stderr.String(), "\n"), stderr.String())
		})
	}
}
