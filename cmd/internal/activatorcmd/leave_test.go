package activatorcmd

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/exitcode"
)

// keptAlive is a client's connection that is used again and again, and that
// never repeats a request by itself.
type keptAlive struct {
	net.Conn
	from *bufio.Reader
}

func dial(ctx context.Context, url string) (*keptAlive, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		return nil, err
	}
	return &keptAlive{conn, bufio.NewReader(conn)}, conn.SetDeadline(time.Now().Add(time.Minute))
}

// post asks the model that is awake. last reports whether the server asked to
// connect anew.
func (k *keptAlive) post() (status int, last bool, err error) {
	const body = `{"model":"awake"}`
	if _, err := io.WriteString(k, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 17\r\n\r\n"+body); err != nil {
		return 0, false, err
	}
	resp, err := http.ReadResponse(k.from, nil)
	if err != nil {
		return 0, false, err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Close, err
}

func awake(t *testing.T, engine http.HandlerFunc, args ...string) running {
	t.Helper()
	srv := httptest.NewServer(engine)
	t.Cleanup(srv.Close)
	targets := filepath.Join(t.TempDir(), "targets.yaml")
	targetsFile(t, targets, srv.Listener.Addr().String(), false)
	r := start(t, append([]string{"--static-targets", targets}, args...)...)
	require.Eventually(t, func() bool { return r.get(t, r.clients+"/v1/models") == http.StatusOK }, 30*time.Second, 10*time.Millisecond)
	return r
}

// A connection that is idle while the activator is asked to stop still takes a
// request for the whole of --shutdown-delay, and is told to be the last.
func TestIdleConnectionsLiveUntilTheDelayIsOver(t *testing.T) {
	r := awake(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }, "--shutdown-delay", "10s", "--grace", "20s")
	conns := make([]*keptAlive, 3)
	for i := range conns {
		var err error
		conns[i], err = dial(t.Context(), r.clients)
		require.NoError(t, err)
		defer func() { _ = conns[i].Close() }()
		status, last, err := conns[i].post()
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status)
		require.False(t, last)
	}
	r.stop()
	require.Eventually(t, func() bool { return r.get(t, r.probes+"/readyz") == http.StatusServiceUnavailable }, 8*time.Second, time.Millisecond)
	for _, conn := range conns[:2] {
		status, last, err := conn.post()
		require.NoError(t, err, "the connection has been closed under its client")
		require.Equal(t, http.StatusOK, status)
		require.True(t, last, "the client is asked to connect anew")
		_, err = conn.from.ReadByte()
		require.ErrorIs(t, err, io.EOF)
		time.Sleep(100 * time.Millisecond) // the second comes in the middle of the delay
	}
	_, err := conns[2].from.ReadByte()
	require.ErrorIs(t, err, io.EOF, "the idle end with the delay")
}

// Two dozen clients that never stop asking lose nothing to a stop.
func TestFaultStoppedUnderKeptAliveClients(t *testing.T) {
	r := awake(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }, "--shutdown-delay", "10s", "--grace", "20s")
	const clients = 24
	var answered atomic.Int64
	over := make(chan struct{})
	failed := make(chan error, clients)
	for range clients {
		go func() { failed <- loop(t.Context(), r, over, &answered) }()
	}
	require.Eventually(t, func() bool { return answered.Load() > 10*clients }, 30*time.Second, time.Millisecond)
	r.stop()
	time.Sleep(400 * time.Millisecond) // well inside the delay
	close(over)
	for range clients {
		require.NoError(t, <-failed)
	}
}

// loop asks on one connection until over, and connects anew when asked to.
func loop(ctx context.Context, r running, over <-chan struct{}, answered *atomic.Int64) error {
	var conn *keptAlive
	for {
		select {
		case <-over:
			return nil
		default:
		}
		if conn == nil {
			var err error
			if conn, err = dial(ctx, r.clients); err != nil {
				return err
			}
		}
		_, last, err := conn.post()
		if err != nil || last {
			_ = conn.Close()
			conn = nil
		}
		if err != nil {
			return err
		}
		answered.Add(1)
	}
}

// Who has seen nothing when --grace is over is answered, not dropped, and is
// not blamed.
func TestWhatGraceCutsIsAnswered(t *testing.T) {
	asked := make(chan struct{}, 2)
	r := awake(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		asked <- struct{}{}
		<-r.Context().Done()
	}, "--shutdown-delay", "0s", "--drain-hold", "0s", "--grace", "300ms")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	type answer struct {
		status int
		body   string
		err    error
	}
	answers := make(chan answer, 2)
	for range 2 {
		go func() {
			status, body, err := r.ask(ctx, "awake")
			answers <- answer{status, body, err}
		}()
	}
	<-asked
	<-asked
	r.stop()
	for range 2 {
		got := <-answers
		require.NoError(t, got.err)
		require.Equal(t, http.StatusServiceUnavailable, got.status)
		require.Contains(t, got.body, `"shutdown"`)
	}
	select {
	case code := <-r.code:
		require.Equal(t, exitcode.OK, code)
	case <-time.After(time.Minute):
		t.Fatal("the activator did not end")
	}
}
