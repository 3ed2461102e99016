package engine_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	fakeengine "github.com/pilotlight-dev/pilotlight/internal/fake/engine"
	"github.com/pilotlight-dev/pilotlight/scaler/engine"
)

// inProcess answers requests from a handler, without sockets.
type inProcess struct{ http.Handler }

func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w.Result(), nil
}

// The simulated engine must look to the Scraper as vLLM does.
func TestSimulatedEngineIsReadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := fakeengine.New(fakeengine.Config{Model: `odd "name" \ of one`, Slots: 2, DecodeInterval: time.Second, PrefillTokensPerSecond: 100})
		h := fake.Handler()
		s := engine.NewScraper(engine.Options{Client: &http.Client{Transport: inProcess{h}}})
		target := engine.Target{URL: "http://pod:8000/metrics", Kind: engine.VLLM, Model: `odd "name" \ of one`}
		born := float64(time.Now().Unix())

		got, err := s.Scrape(t.Context(), target)
		require.NoError(t, err)
		requireReading(t, engine.Reading{StartTime: born}, got) // everything exported, everything 0

		for range 5 { // 100 prompt tokens in 1 s, then 4 tokens in 4 s
			go h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/completions",
				strings.NewReader(`{"prompt":"`+strings.Repeat("four", 100)+`","max_tokens":4}`)))
		}
		time.Sleep(2500 * time.Millisecond)
		got, err = s.Scrape(t.Context(), target)
		require.NoError(t, err)
		requireReading(t, engine.Reading{Running: 2, Waiting: 3, PromptTokens: 200, GenerationTokens: 2, StartTime: born}, got)

		time.Sleep(time.Minute)
		got, err = s.Scrape(t.Context(), target)
		require.NoError(t, err)
		requireReading(t, engine.Reading{
			PromptTokens: 500, GenerationTokens: 20, Finished: 5,
			InferenceSeconds: 25, InferenceCount: 5,
			QueueSeconds: 0 + 0 + 5 + 5 + 10, QueueCount: 5, StartTime: born,
		}, got)

		target.Model = "another"
		_, err = s.Scrape(t.Context(), target)
		require.ErrorIs(t, err, engine.ErrModel)
	})
}

// And over real HTTP, with its life around it: refused, readable, refused.
func TestSimulatedEngineOverHTTP(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	fake := fakeengine.New(fakeengine.Config{})
	ended := make(chan error, 1)
	go func() { ended <- fake.Run(ctx, "127.0.0.1:0") }()
	<-fake.Ready()
	s := engine.NewScraper(engine.Options{Timeout: patient})
	t.Cleanup(s.Close)
	target := engine.Target{URL: "http://" + fake.Addr() + "/metrics", Model: "llama"}
	got, err := s.Scrape(t.Context(), target)
	require.NoError(t, err)
	require.Zero(t, got.Running+got.Waiting)
	require.Positive(t, got.StartTime)

	cancel()
	require.NoError(t, <-ended)
	_, err = s.Scrape(t.Context(), target)
	require.ErrorIs(t, err, engine.ErrRefused)
}
