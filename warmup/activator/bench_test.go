package activator

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

// rivals are a bare ReverseProxy and an activator in front of one engine.
func rivals(b *testing.B, engine http.Handler) map[string]func(b *testing.B) *httptest.Server {
	b.Helper()
	srv := httptest.NewServer(engine)
	b.Cleanup(srv.Close)
	to, err := url.Parse(srv.URL)
	require.NoError(b, err)
	port := 0
	for _, c := range to.Port() {
		port = 10*port + int(c-'0')
	}
	w := &world{all: []workload.Workload{target(llama, map[string]string{"targetRequests": "100"}, workload.Pod{Name: "a", Host: to.Hostname(), Port: port, ReadyAt: time.Now()})}}
	ours, err := New(Options{Source: w, Registerer: prometheus.NewRegistry()})
	require.NoError(b, err)
	require.NoError(b, ours.refresh(b.Context()))
	return map[string]func(b *testing.B) *httptest.Server{
		"Bare": func(b *testing.B) *httptest.Server {
			b.Helper()
			return httptest.NewServer(&httputil.ReverseProxy{
				Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to); r.SetXForwarded() },
				Transport: &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true},
			})
		},
		"Activator": func(b *testing.B) *httptest.Server {
			b.Helper()
			srv := httptest.NewUnstartedServer(ours)
			srv.Config = ours.Server(b.Context())
			srv.Start()
			return srv
		},
	}
}

// BenchmarkStream is the same for an event of a stream.
func BenchmarkStream(b *testing.B) {
	const events = 2000 // of a stream
	event := []byte("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word\"}}]}\n\n")
	took := make(chan struct{})
	var running sync.WaitGroup // streams, at the engine
	all := rivals(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer running.Done()
		_, _ = io.Copy(io.Discard, r.Body)
		time.Sleep(5 * time.Millisecond) // a bare proxy that gets an answer before it has seen the end of the request's body breaks off
		w.Header().Set("Content-Type", "text/event-stream")
		flush := http.NewResponseController(w)
		for range events {
			if _, err := w.Write(event); err != nil || flush.Flush() != nil {
				return
			}
			select { // one at a time, as engines make them
			case <-took:
			case <-r.Context().Done():
				return
			}
		}
	}))
	for name, start := range all {
		b.Run(name, func(b *testing.B) {
			srv := start(b)
			defer srv.Close()
			b.ReportAllocs()
			var body io.ReadCloser
			left, buf := 0, make([]byte, 4096)
			for b.Loop() {
				if left == 0 {
					if body != nil {
						_, _ = io.Copy(io.Discard, body)
						_ = body.Close()
					}
					running.Add(1)
					req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, srv.URL+"/v1/chat/completions", strings.NewReader(`{"model":"llama","stream":true}`))
					require.NoError(b, err)
					resp, err := srv.Client().Do(req) //nolint:bodyclose // closed above, or below
					require.NoError(b, err)
					body, left = resp.Body, events
				}
				if _, err := body.Read(buf); err != nil {
					b.Fatal(err)
				}
				took <- struct{}{}
				left--
			}
			_ = body.Close()
			running.Wait()
		})
	}
}

// BenchmarkProxy compares what a request costs here with what it costs in a
// bare ReverseProxy, client and engine included.
func BenchmarkProxy(b *testing.B) {
	answer := []byte(`{"choices":[{"message":{"role":"assistant","content":"` + strings.Repeat("word ", 60) + `"},"finish_reason":"stop"}]}`)
	all := rivals(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer)
	}))
	body := `{"messages":[{"role":"user","content":"` + strings.Repeat("words ", 160) + `"}],"model":"llama"}`
	for name, start := range all {
		b.Run(name, func(b *testing.B) {
			srv := start(b)
			defer srv.Close()
			b.ReportAllocs()
			for b.Loop() {
				req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, srv.URL+"/v1/chat/completions", strings.NewReader(body))
				require.NoError(b, err)
				resp, err := srv.Client().Do(req)
				if err != nil || resp.StatusCode != http.StatusOK {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		})
	}
}
