package activator

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/demandpb"
	"github.com/pilotlight-dev/pilotlight/internal/freeport"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

var llama = workload.Ref{Namespace: "ai", Name: "llama"}

// world is a Source of one's own making.
type world struct {
	mu  sync.Mutex
	all []workload.Workload
	err error
}

func (w *world) All(context.Context) ([]workload.Workload, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all, w.err
}

func target(ref workload.Ref, metadata map[string]string, pods ...workload.Pod) workload.Workload {
	m := map[string]string{"targetRequests": "2", "modelName": ref.Name}
	for k, v := range metadata {
		m[k] = v
	}
	return workload.Workload{Ref: ref, MaxReplicas: 4, Metadata: m, Pods: pods}
}

// podAt is a Ready pod that serves at a listener's address.
func podAt(t *testing.T, name, addr string) workload.Pod {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	n, err := strconv.Atoi(port)
	require.NoError(t, err)
	return workload.Pod{Name: name, Host: host, Port: n, ReadyAt: time.Now()}
}

type rig struct {
	*Activator
	*world
	url string
}

func newRig(t *testing.T, opts Options) *rig {
	t.Helper()
	w := &world{}
	opts.Source = w
	a, err := New(opts)
	require.NoError(t, err)
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = a.Server(t.Context())
	srv.Start()
	t.Cleanup(srv.Close)
	return &rig{a, w, srv.URL}
}

// set replaces the world and has the activator look at it.
func (r *rig) set(t *testing.T, all ...workload.Workload) {
	t.Helper()
	r.mu2(func() { r.all = all })
	require.NoError(t, r.refresh(t.Context()))
}

func (r *rig) mu2(f func()) {
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	f()
}

type reply struct {
	status int
	header http.Header
	body   string
	err    error
}

func (r *rig) post(ctx context.Context, path, body string) reply {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+path, strings.NewReader(body))
	if err != nil {
		return reply{err: err}
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return reply{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(text), err}
}

func (r *rig) async(ctx context.Context) <-chan reply {
	c := make(chan reply, 1)
	go func() { c <- r.post(ctx, "/v1/chat/completions", ask) }()
	return c
}

func (r *rig) held() uint64 {
	var n uint64
	for _, d := range r.Snapshot() {
		n += d.GetHeld()
	}
	return n
}

func (r *rig) waitHeld(t *testing.T, n uint64) {
	t.Helper()
	require.Eventually(t, func() bool { return r.held() == n }, 30*time.Second, time.Millisecond, "held %d, want %d", r.held(), n)
}

// echo answers with the body it was sent, and counts how many run at once.
type echo struct {
	mu         sync.Mutex
	now, most  int
	total      int
	block      chan struct{}
	paths      []string
	disconnect int
}

func (e *echo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	e.mu.Lock()
	e.now++
	e.total++
	e.most = max(e.most, e.now)
	e.paths = append(e.paths, r.URL.Path)
	block := e.block
	e.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-r.Context().Done():
			e.mu.Lock()
			e.disconnect++
			e.mu.Unlock()
		}
	}
	e.mu.Lock()
	e.now--
	e.mu.Unlock()
	_, _ = w.Write(body)
}

func (e *echo) running() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now
}

func (e *echo) disconnects() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.disconnect
}

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

const ask = `{"model":"llama","messages":[{"role":"user","content":"hello"}]}`

func TestHeldUntilReadyThenAnsweredIntact(t *testing.T) {
	r := newRig(t, Options{})
	r.set(t, target(llama, nil))
	answer := r.async(t.Context())
	r.waitHeld(t, 1)
	engine := &echo{}
	r.set(t, target(llama, nil, podAt(t, "a", serve(t, engine))))
	got := <-answer
	require.NoError(t, got.err)
	require.Equal(t, http.StatusOK, got.status)
	require.Equal(t, ask, got.body)
	require.Zero(t, r.held())
	d := r.Snapshot()[0]
	require.Equal(t, uint64(1), d.GetArrivalsTotal())
	require.Eventually(t, func() bool { return r.Snapshot()[0].GetCompletedTotal() == 1 }, 30*time.Second, time.Millisecond)
}

func TestNeverMoreThanTheTargetOnOnePod(t *testing.T) {
	r := newRig(t, Options{})
	one, two := &echo{block: make(chan struct{})}, &echo{block: make(chan struct{})}
	r.set(t, target(llama, nil, podAt(t, "one", serve(t, one)), podAt(t, "two", serve(t, two))))
	var answers []<-chan reply
	for range 7 {
		answers = append(answers, r.async(t.Context()))
	}
	r.waitHeld(t, 3)
	require.Equal(t, uint64(4), r.Snapshot()[0].GetInFlight())
	require.Eventually(t, func() bool { return one.running() == 2 && two.running() == 2 }, 30*time.Second, time.Millisecond)
	close(one.block)
	close(two.block)
	for _, c := range answers {
		require.Equal(t, http.StatusOK, (<-c).status)
	}
	require.Equal(t, 2, one.most)
	require.Equal(t, 2, two.most)
	require.Equal(t, 7, one.total+two.total)
}

// A pod that is Ready before it listens costs the client nothing.
func TestRefusedDialIsRetried(t *testing.T) {
	r := newRig(t, Options{})
	addr, err := freeport.Addr(t.Context())
	require.NoError(t, err)
	r.set(t, target(llama, nil, podAt(t, "a", addr)))
	answer := r.async(t.Context())
	require.Eventually(t, func() bool { return r.Snapshot()[0].GetArrivalsTotal() == 1 }, 30*time.Second, time.Millisecond)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", addr)
	require.NoError(t, err)
	srv := &http.Server{Handler: &echo{}, ReadHeaderTimeout: time.Second}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	got := <-answer
	require.Equal(t, http.StatusOK, got.status, got.body)
	require.Equal(t, ask, got.body, "the body is sent again whole")
	require.Equal(t, uint64(1), r.Snapshot()[0].GetArrivalsTotal(), "a retry is not another arrival")
}

// An engine that has taken the request and then breaks is not asked again.
func TestNothingIsSentTwice(t *testing.T) {
	r := newRig(t, Options{})
	var calls atomic.Int32
	addr := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		conn, _, _ := http.NewResponseController(w).Hijack()
		_ = conn.Close()
	}))
	r.set(t, target(llama, nil, podAt(t, "a", addr)))
	got := r.post(t.Context(), "/v1/chat/completions", ask)
	require.Equal(t, http.StatusBadGateway, got.status)
	require.NotContains(t, got.body, addr, "addresses of pods are not for clients")
	require.Equal(t, int32(1), calls.Load())
	require.Zero(t, r.Snapshot()[0].GetInFlight())
}

func TestClientGoneFreesThePlace(t *testing.T) {
	r := newRig(t, Options{})
	r.set(t, target(llama, nil))
	ctx, cancel := context.WithCancel(t.Context())
	answer := r.async(ctx)
	r.waitHeld(t, 1)
	cancel()
	require.Error(t, (<-answer).err)
	r.waitHeld(t, 0)

	engine := &echo{block: make(chan struct{})}
	r.set(t, target(llama, nil, podAt(t, "a", serve(t, engine))))
	ctx, cancel = context.WithCancel(t.Context())
	answer = r.async(ctx)
	require.Eventually(t, func() bool { return engine.running() == 1 }, 30*time.Second, time.Millisecond)
	cancel()
	<-answer
	require.Eventually(t, func() bool { return r.Snapshot()[0].GetInFlight() == 0 }, 30*time.Second, time.Millisecond)
	require.Eventually(t, func() bool { return engine.disconnects() == 1 },
		30*time.Second, time.Millisecond, "the engine is told, and stops generating")
}

func TestRefusals(t *testing.T) {
	served := target(llama, map[string]string{"modelAliases": "chat", "pathPrefix": "/team/llama"})
	mixtral := workload.Ref{Namespace: "ai", Name: "mixtral"}
	rival := workload.Ref{Namespace: "other", Name: "mixtral"}
	cases := map[string]struct {
		path, body string
		status     int
		says       string
	}{
		"UnknownModel":     {"/v1/chat/completions", `{"model":"gpt-9"}`, 404, "gpt-9"},
		"OtherCase":        {"/v1/chat/completions", `{"Model":"llama"}`, 404, "names no model"},
		"Twice":            {"/v1/chat/completions", `{"model":"llama","model":"gpt-9"}`, 400, "twice"},
		"NoBody":           {"/v1/chat/completions", "", 400, "JSON"},
		"NotJSON":          {"/v1/chat/completions", "model=llama", 400, "JSON"},
		"NotAName":         {"/v1/chat/completions", `{"model":7}`, 400, "model"},
		"Ambiguous":        {"/v1/chat/completions", `{"model":"mixtral"}`, 409, "more than one"},
		"LoRALoading":      {"/v1/load_lora_adapter", ask, 404, "not served"},
		"Invocations":      {"/invocations", ask, 404, "not served"},
		"PrefixDevPath":    {"/team/llama/sleep", ask, 404, "not served"},
		"TooLarge":         {"/v1/chat/completions", `{"model":"llama","x":"` + strings.Repeat("y", 2000) + `"}`, 413, "larger"},
		"HoldDeadline":     {"/v1/chat/completions", ask, 503, "ready in time"},
		"HoldByAlias":      {"/v1/chat/completions", `{"model":"chat"}`, 503, "ready in time"},
		"HoldByPrefix":     {"/team/llama/v1/chat/completions", `{"model":"anything"}`, 503, "ready in time"},
		"HoldByQuery":      {"/v1/embeddings?model=llama", "{}", 503, "ready in time"},
		"QueryTwice":       {"/v1/embeddings?model=llama&model=chat", "{}", 400, "twice"},
		"BodyBeforeQuery":  {"/v1/embeddings?model=gpt-9", `{"model":"llama"}`, 503, "ready in time"},
		"GarbageByQuery":   {"/v1/embeddings?model=llama", "total garbage", 400, "JSON"},
		"Cut":              {"/v1/chat/completions", `{"model":"llama"`, 400, "JSON"},
		"TwoObjects":       {"/v1/chat/completions", `{"model":"llama"}{"x":1}`, 400, "JSON"},
		"GarbageByPrefix":  {"/team/llama/v1/chat/completions", `{"model":`, 400, "JSON"},
		"NestedPrefix":     {"/team/llama/deep/v1/chat/completions", `{}`, 404, "not served"},
		"DoublePrefix":     {"/both/v1/chat/completions", `{"model":"llama"}`, 409, "more than one"},
		"DoubleSlash":      {"//v1/chat/completions", ask, 404, "not served"},
		"NestedModelField": {"/v1/chat/completions", `{"a":{"model":"x"},"model":"llama"}`, 503, "ready in time"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Options{MaxHold: 5 * time.Millisecond, MaxBody: 1000})
			both := map[string]string{"pathPrefix": "/both"}
			r.set(t, served, target(mixtral, both), target(rival, both))
			got := r.post(t.Context(), tc.path, tc.body)
			require.NoError(t, got.err)
			require.Equal(t, tc.status, got.status, got.body)
			var shape struct {
				Error struct{ Message, Type, Code string }
			}
			require.NoError(t, json.Unmarshal([]byte(got.body), &shape), "OpenAI's error shape")
			require.Contains(t, shape.Error.Message, tc.says)
			require.Equal(t, tc.status == 503, got.header.Get("Retry-After") != "")
		})
	}
}

// The longest prefix wins, every time.
func TestNestedPrefixes(t *testing.T) {
	r := newRig(t, Options{})
	outer, inner := &echo{}, &echo{}
	r.set(t, target(workload.Ref{Namespace: "ai", Name: "outer"}, map[string]string{"pathPrefix": "/ai"}, podAt(t, "a", serve(t, outer))),
		target(llama, map[string]string{"pathPrefix": "/ai/llama/"}, podAt(t, "b", serve(t, inner))))
	for range 20 {
		require.Equal(t, http.StatusOK, r.post(t.Context(), "/ai/llama/v1/chat/completions", "{}").status)
	}
	require.Equal(t, http.StatusOK, r.post(t.Context(), "/ai/v1/chat/completions", "{}").status)
	require.Equal(t, 20, inner.total)
	require.Equal(t, []string{"/v1/chat/completions"}, outer.paths, "the prefix is taken off")
}

func TestFormsAreRoutedByTheirField(t *testing.T) {
	r := newRig(t, Options{})
	r.set(t, target(llama, nil, podAt(t, "a", serve(t, &echo{}))))
	send := func(fields ...string) int {
		var body bytes.Buffer
		form := multipart.NewWriter(&body)
		file, err := form.CreateFormFile("file", "speech.wav")
		require.NoError(t, err)
		_, err = file.Write([]byte("RIFF"))
		require.NoError(t, err)
		for _, f := range fields {
			require.NoError(t, form.WriteField("model", f))
		}
		require.NoError(t, form.Close())
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/v1/audio/transcriptions", &body)
		require.NoError(t, err)
		req.Header.Set("Content-Type", form.FormDataContentType())
		resp, err := http.DefaultTransport.RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	require.Equal(t, http.StatusOK, send("llama"))
	require.Equal(t, http.StatusNotFound, send("whisper"))
	require.Equal(t, http.StatusBadRequest, send("llama", "llama"), "given twice")
	require.Equal(t, http.StatusNotFound, send())
}

// Nothing is read of a request that is not served, and all bodies together
// stay within their bound.
func TestMemoryIsBounded(t *testing.T) {
	r := newRig(t, Options{MaxTotal: 64 << 10})
	r.set(t, target(llama, nil))
	big := `{"model":"llama","x":"` + strings.Repeat("y", 40<<10) + `"}`
	first := r.async(t.Context())
	r.waitHeld(t, 1)
	got := r.post(t.Context(), "/v1/chat/completions", big)
	require.Equal(t, http.StatusServiceUnavailable, got.status)
	require.NotEmpty(t, got.header.Get("Retry-After"))
	require.Equal(t, http.StatusNotFound, r.post(t.Context(), "/does/not/exist", big).status)
	r.set(t, target(llama, nil, podAt(t, "a", serve(t, &echo{}))))
	require.Equal(t, http.StatusOK, (<-first).status)
	require.Eventually(t, func() bool { return r.memory.used.Load() == 0 }, 30*time.Second, time.Millisecond, "memory is given back")
}

// A client that stops sending is not waited for.
func TestSlowUploadEnds(t *testing.T) {
	r := newRig(t, Options{Pause: 20 * time.Millisecond})
	r.set(t, target(llama, nil))
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(r.url, "http://"))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = conn.Write([]byte("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"))
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(5*time.Second)))
	status, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, status, "408")
	require.Zero(t, r.memory.used.Load())
}

// A replica that goes away answers those it holds, and still serves whom a
// place is free for.
func TestDrain(t *testing.T) {
	r := newRig(t, Options{})
	engine := &echo{block: make(chan struct{})}
	r.set(t, target(llama, nil, podAt(t, "a", serve(t, engine))))
	running := []<-chan reply{r.async(t.Context()), r.async(t.Context())}
	require.Eventually(t, func() bool { return engine.running() == 2 }, 30*time.Second, time.Millisecond)
	held := r.async(t.Context())
	r.waitHeld(t, 1)
	r.Drain(t.Context(), 0)
	got := <-held
	require.Equal(t, http.StatusServiceUnavailable, got.status)
	require.NotEmpty(t, got.header.Get("Retry-After"))
	require.Equal(t, http.StatusServiceUnavailable, r.post(t.Context(), "/v1/chat/completions", ask).status)
	close(engine.block)
	for _, c := range running {
		require.Equal(t, http.StatusOK, (<-c).status, "what runs goes on")
	}
	require.Eventually(t, func() bool { return r.Snapshot()[0].GetInFlight() == 0 }, 30*time.Second, time.Millisecond)
	require.Equal(t, http.StatusOK, r.post(t.Context(), "/v1/chat/completions", ask).status)
}

func TestHoldIsBounded(t *testing.T) {
	cases := map[string]Options{
		"ByCount": {MaxHeld: 1},
		"ByBytes": {MaxBytes: int64(len(ask)) + 10},
	}
	for name, opts := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, opts)
			r.set(t, target(llama, nil))
			ctx, cancel := context.WithCancel(t.Context())
			first := r.async(ctx)
			r.waitHeld(t, 1)
			got := r.post(t.Context(), "/v1/chat/completions", ask)
			require.Equal(t, http.StatusTooManyRequests, got.status)
			require.NotEmpty(t, got.header.Get("Retry-After"))
			cancel()
			<-first
		})
	}
}

func TestFailedStartEndsTheWait(t *testing.T) {
	r := newRig(t, Options{Linger: 1})
	r.set(t, target(llama, nil))
	answer := r.async(t.Context())
	r.waitHeld(t, 1)
	state := &demandpb.TargetState{Namespace: "ai", ScaledObject: "llama", State: demandpb.State_STATE_FAILED, Reason: "unschedulable"}
	r.Learn([]*demandpb.TargetState{state})
	require.Equal(t, uint64(1), r.held(), "capacity may still come")
	state.Reason = "pointer"
	r.Learn([]*demandpb.TargetState{state})
	got := <-answer
	require.Equal(t, http.StatusServiceUnavailable, got.status)
	require.Contains(t, got.body, "pointer")
	require.Equal(t, http.StatusServiceUnavailable, r.post(t.Context(), "/v1/chat/completions", ask).status, "fails fast")
	r.Learn([]*demandpb.TargetState{{Namespace: "ai", ScaledObject: "llama", State: demandpb.State_STATE_ASLEEP}})
	again := r.async(t.Context())
	r.waitHeld(t, 1)
	r.set(t)
	require.Equal(t, uint64(1), r.held(), "a target that is missing once may be back")
	r.set(t)
	require.Equal(t, http.StatusServiceUnavailable, (<-again).status, "the target is gone")
}

func TestOnlyInferenceWakes(t *testing.T) {
	r := newRig(t, Options{})
	r.set(t, target(llama, map[string]string{"modelAliases": "chat"}))
	for _, path := range []string{"/v1/models", "/health"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+path, nil)
		require.NoError(t, err)
		resp, err := http.DefaultTransport.RoundTrip(req)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusOK, resp.StatusCode)
		if path == "/v1/models" {
			require.Contains(t, string(body), `"id":"llama"`, "sleeping models are listed")
			require.Contains(t, string(body), `"id":"chat"`)
		}
	}
	require.Zero(t, r.Snapshot()[0].GetArrivalsTotal())
}

// Tokens arrive one by one, not all at the end.
func TestStreamsPassThrough(t *testing.T) {
	r := newRig(t, Options{})
	next := make(chan struct{})
	addr := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
			_ = http.NewResponseController(w).Flush()
			<-next
		}
	}))
	r.set(t, target(llama, nil, podAt(t, "a", addr)))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/v1/chat/completions", strings.NewReader(ask))
	require.NoError(t, err)
	resp, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	for i := range 3 {
		require.True(t, lines.Scan())
		require.Equal(t, fmt.Sprintf("data: %d", i), lines.Text())
		require.True(t, lines.Scan())
		require.Equal(t, uint64(1), r.Snapshot()[0].GetInFlight())
		next <- struct{}{}
	}
	require.False(t, lines.Scan())
}

// A pod that leaves finishes what it has and gets nothing new.
func TestLeavingPodFinishes(t *testing.T) {
	r := newRig(t, Options{})
	old, fresh := &echo{block: make(chan struct{})}, &echo{}
	r.set(t, target(llama, nil, podAt(t, "old", serve(t, old))))
	answer := r.async(t.Context())
	require.Eventually(t, func() bool { return old.running() == 1 }, 30*time.Second, time.Millisecond)
	r.set(t, target(llama, nil, podAt(t, "fresh", serve(t, fresh))))
	require.Equal(t, http.StatusOK, r.post(t.Context(), "/v1/chat/completions", ask).status)
	require.Equal(t, 1, fresh.total)
	close(old.block)
	require.Equal(t, http.StatusOK, (<-answer).status)
	require.Equal(t, 1, old.total)
}

// An edit with a slip in it does not take away what is being served, and is said.
func TestABadEditKeepsTheRoute(t *testing.T) {
	var log bytes.Buffer // written by refresh only, which the test calls
	r := newRig(t, Options{Linger: time.Nanosecond, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	good := target(llama, nil, podAt(t, "a", serve(t, &echo{})))
	r.set(t, good)
	require.Equal(t, http.StatusOK, r.post(t.Context(), "/v1/chat/completions", ask).status)
	bad := target(llama, map[string]string{"targetRequests": "many"}, podAt(t, "b", serve(t, &echo{})))
	r.set(t, bad)
	time.Sleep(10 * time.Millisecond)
	r.set(t, bad) // it would be gone by now
	require.Equal(t, http.StatusOK, r.post(t.Context(), "/v1/chat/completions", ask).status, "at the pods that there are now")
	require.Contains(t, log.String(), "ai/llama: served on by its former trigger")
	require.Contains(t, log.String(), "targetRequests")
	r.set(t, good)
	r.set(t)
	time.Sleep(10 * time.Millisecond)
	r.set(t)
	require.Equal(t, http.StatusNotFound, r.post(t.Context(), "/v1/chat/completions", ask).status, "that there is none any more is another matter")
}

// A name that a trigger which cannot be read any more still serves is anybody's who
// claims it with one that can, and comes back when the other goes.
func TestABadEditGivesItsNamesAway(t *testing.T) {
	r := newRig(t, Options{Linger: time.Nanosecond})
	model := func(name string) workload.Ref { return workload.Ref{Namespace: "ai", Name: name} }
	a, b := podAt(t, "a", serve(t, &echo{})), podAt(t, "b", serve(t, &echo{}))
	good := target(llama, nil, a)
	bad := target(llama, map[string]string{"modelName": "old", "targetRequests": "many"}, a)
	heir := target(model("heir"), map[string]string{"modelName": "llama"}, b)
	other := target(model("other"), map[string]string{"modelName": "llama"}, b)
	status := func(all ...workload.Workload) int {
		r.set(t, all...)
		time.Sleep(time.Millisecond) // longer than it lingers
		r.set(t, all...)
		return r.post(t.Context(), "/v1/chat/completions", ask).status
	}
	require.Equal(t, http.StatusOK, status(good))
	require.Equal(t, http.StatusOK, status(bad))
	require.Equal(t, http.StatusOK, status(bad, heir))
	require.Same(t, r.pools[heir.Ref], r.routes.Load().models["llama"])
	require.Equal(t, http.StatusConflict, status(bad, heir, other), "two that can be read")
	require.Equal(t, http.StatusOK, status(bad))
	require.Equal(t, http.StatusConflict, status(good, heir))
	none := target(llama, nil, a)
	none.Metadata = nil
	require.Equal(t, http.StatusNotFound, status(none), "without any trigger there is no target")
}

func TestBrokenSourceKeepsTheTargets(t *testing.T) {
	r := newRig(t, Options{Refresh: time.Millisecond})
	r.set(t, target(llama, nil, podAt(t, "a", serve(t, &echo{}))))
	r.mu2(func() { r.err = context.DeadlineExceeded })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	r.Run(ctx)
	require.Equal(t, http.StatusOK, r.post(t.Context(), "/v1/chat/completions", ask).status)
}
