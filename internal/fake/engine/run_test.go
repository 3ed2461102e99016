package engine_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/fake/engine"
	"github.com/pilotlight-dev/pilotlight/internal/freeport"
)

// These tests use real sockets and, where something takes time, a little of it.

// run starts an engine and gives the channel of its end.
func run(ctx context.Context, e *engine.Engine, addr string) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx, addr) }()
	return ended
}

func get(t *testing.T, url string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return client.Do(req)
}

func TestRefusedUntilReady(t *testing.T) {
	addr, err := freeport.Addr(t.Context())
	require.NoError(t, err)

	var log bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	reached, release := make(chan struct{}), make(chan struct{})
	e := engine.New(engine.Config{
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
		// The engine asks for its jitter during the start: a place to hold it.
		Rand: func() float64 { close(reached); <-release; return 0 },
	})
	ended := run(ctx, e, addr)
	<-reached
	_, err = get(t, "http://"+addr+"/health") //nolint:bodyclose // there is no answer
	require.ErrorContains(t, err, "refused")
	require.Empty(t, e.Addr())
	close(release)
	<-e.Ready()
	require.Equal(t, addr, e.Addr())

	resp, err := get(t, "http://"+addr+"/health")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)

	cancel()
	require.NoError(t, <-ended)
	_, err = get(t, "http://"+addr+"/health") //nolint:bodyclose // there is no answer
	require.ErrorContains(t, err, "refused", "gone after the drain")
	require.Contains(t, log.String(), "engine ready")
}

// openStream begins a stream and reads its first event.
func openStream(t *testing.T, e *engine.Engine) io.ReadCloser {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+e.Addr()+"/v1/completions",
		strings.NewReader(`{"prompt":"x","stream":true,"max_tokens":100000}`))
	require.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	require.NoError(t, err)
	_, err = io.ReadFull(resp.Body, make([]byte, len("data: ")))
	require.NoError(t, err)
	return resp.Body
}

func TestRunEndsStreamsWithAbort(t *testing.T) {
	for name, timeout := range map[string]time.Duration{"AtOnce": 0, "AfterTheTimeout": 50 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			e := engine.New(engine.Config{DecodeInterval: time.Millisecond, ShutdownTimeout: timeout})
			ended := run(ctx, e, "127.0.0.1:0")
			<-e.Ready()
			body := openStream(t, e)
			cancel()
			rest, err := io.ReadAll(body)
			require.NoError(t, err, "the stream ends whole")
			require.NoError(t, body.Close())
			require.Contains(t, string(rest), `"finish_reason":"abort"`)
			require.True(t, strings.HasSuffix(string(rest), "data: [DONE]\n\n"))
			require.NoError(t, <-ended)
		})
	}
}

func TestExitAfterCutsConnections(t *testing.T) {
	e := engine.New(engine.Config{DecodeInterval: time.Millisecond, ExitAfter: 3 * time.Second})
	ended := run(t.Context(), e, "127.0.0.1:0")
	<-e.Ready()
	body := openStream(t, e)
	_, err := io.ReadAll(body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.NoError(t, body.Close())
	require.ErrorIs(t, <-ended, engine.ErrExited)
}

func TestRunNeedsItsPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // only to occupy a port
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	err = engine.New(engine.Config{}).Run(t.Context(), l.Addr().String())
	require.ErrorContains(t, err, l.Addr().String())
}
