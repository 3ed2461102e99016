package activator

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

// fabric is a network in memory, so that time can be faked.
type fabric struct {
	mu        sync.Mutex
	listeners map[string]*pipeListener
	dials     map[string]int
}

func newFabric() *fabric {
	return &fabric{listeners: map[string]*pipeListener{}, dials: map[string]int{}}
}

func (f *fabric) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	f.mu.Lock()
	f.dials[addr]++
	l := f.listeners[addr]
	f.mu.Unlock()
	if l == nil {
		return nil, errors.New("connection refused")
	}
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		return near, nil
	case <-l.closed:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// firstDialled is how often 10.0.0.1, where most tests have their first pod, was
// dialled.
func (f *fabric) firstDialled() int { return f.dialled("10.0.0.1:8000") }

func (f *fabric) dialled(addr string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dials[addr]
}

func (f *fabric) listen(addr string) *pipeListener {
	l := &pipeListener{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listeners[addr] = l
	return l
}

// serve runs a server at addr until the test or the returned function ends it.
func (f *fabric) serve(t *testing.T, addr string, srv *http.Server) (stop func()) {
	t.Helper()
	l := f.listen(addr)
	go func() { _ = srv.Serve(l) }()
	stop = sync.OnceFunc(func() {
		f.mu.Lock()
		if f.listeners[addr] == l {
			delete(f.listeners, addr)
		}
		f.mu.Unlock()
		_ = srv.Close()
	})
	t.Cleanup(stop)
	return stop
}

type pipeListener struct {
	addr   string
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return pipeAddr(l.addr) }

type pipeAddr string

func (a pipeAddr) Network() string { return "pipe" }
func (a pipeAddr) String() string  { return string(a) }

// safeBuffer is a log that may be read while it is written.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

const clientsAt = "activator:80"

// town is an activator with its clients and engines on a fabric.
type town struct {
	*Activator
	*world
	*fabric
	log      *safeBuffer
	client   *http.Client
	registry *prometheus.Registry
}

func newTown(t *testing.T, opts Options) *town {
	t.Helper()
	tn := &town{world: &world{}, fabric: newFabric(), log: &safeBuffer{}, registry: prometheus.NewRegistry()}
	opts.Source, opts.Dial, opts.Registerer = tn.world, tn.dial, tn.registry
	opts.Logger = slog.New(slog.NewTextHandler(tn.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	tn.Activator, err = New(opts)
	require.NoError(t, err)
	tn.serve(t, clientsAt, tn.Server(t.Context()))
	transport := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return tn.dial(ctx, network, clientsAt)
	}}
	tn.client = &http.Client{Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)
	t.Cleanup(func() { tn.set(t) })
	return tn
}

func (tn *town) set(t *testing.T, all ...workload.Workload) {
	t.Helper()
	tn.world.mu.Lock()
	tn.all = all
	tn.world.mu.Unlock()
	require.NoError(t, tn.refresh(context.Background()))
}

// pod is a Ready pod at an address of the fabric.
func pod(name, host string) workload.Pod {
	return workload.Pod{Name: name, Host: host, Port: 8000, ReadyAt: time.Now(), Created: time.Now()}
}

func (tn *town) request(ctx context.Context, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://x/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	return tn.client.Do(req)
}

func (tn *town) ask(ctx context.Context, body string) reply {
	resp, err := tn.request(ctx, body)
	if err != nil {
		return reply{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(text), err}
}

func (tn *town) asks(ctx context.Context, body string) <-chan reply {
	c := make(chan reply, 1)
	go func() { c <- tn.ask(ctx, body) }()
	return c
}

// ended counts the requests that ended in a class.
func (tn *town) ended(t *testing.T, class string) int {
	t.Helper()
	families, err := tn.registry.Gather()
	require.NoError(t, err)
	n := 0.0
	for _, f := range families {
		if f.GetName() != "pilotlight_activator_requests_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "class" && l.GetValue() == class {
					n += m.GetCounter().GetValue()
				}
			}
		}
	}
	return int(n)
}

// streamer is an engine that sends an event every so often.
func streamer(events int, every time.Duration) *http.Server {
	return engineOf(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range events {
			if _, err := io.WriteString(w, token(i)); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
			select {
			case <-time.After(every):
			case <-r.Context().Done():
				return
			}
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	})
}

func token(int) string { return `data: {"choices":[{"delta":{"content":"x"}}]}` + "\n\n" }

func engineOf(f http.HandlerFunc) *http.Server {
	return &http.Server{Handler: f, ReadHeaderTimeout: 10 * time.Second}
}

const askStream = `{"model":"llama","stream":true,"messages":[{"role":"user","content":"hello"}]}`
