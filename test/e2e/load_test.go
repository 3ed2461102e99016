package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"
)

// answer is what a client got.
type answer struct {
	status int
	body   string
	took   time.Duration
}

func do(req *http.Request) (status int, body string) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	data, err := io.ReadAll(resp.Body)
	if cerr := resp.Body.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return 0, err.Error() // cut off: no answer
	}
	return resp.StatusCode, string(data)
}

// ask sends one completion of some tokens to the activator.
func (s *scenario) ask(ctx context.Context, tokens int) answer {
	return s.send(ctx, map[string]any{"model": "llama", "prompt": "Once upon a time", "max_tokens": tokens})
}

// stream is ask for an answer that comes token by token.
func (s *scenario) stream(ctx context.Context, tokens int) answer {
	return s.send(ctx, map[string]any{"model": "llama", "prompt": "Once upon a time", "max_tokens": tokens, "stream": true})
}

func (s *scenario) send(ctx context.Context, completion map[string]any) answer {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	body, err := json.Marshal(completion)
	require.NoError(s.t, err)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.clients+"/v1/completions", bytes.NewReader(body))
	require.NoError(s.t, err)
	req.Header.Set("Content-Type", "application/json")
	began := time.Now()
	status, text := do(req)
	return answer{status, text, time.Since(began)}
}

// load is a number of clients that ask, one request after the other.
type load struct {
	stop    context.CancelFunc
	clients sync.WaitGroup
	good    atomic.Int64
	mu      sync.Mutex
	bad     []string
	longest time.Duration
}

// press starts clients that ask for completions of some tokens (20 ms each).
func (s *scenario) press(clients, tokens int) *load {
	ctx, stop := context.WithCancel(context.WithoutCancel(s.t.Context()))
	l := &load{stop: stop}
	for range clients {
		l.clients.Go(func() {
			for ctx.Err() == nil {
				a := s.ask(ctx, tokens)
				if ctx.Err() != nil {
					return
				}
				l.count(a)
			}
		})
	}
	s.t.Cleanup(stop)
	return l
}

func (l *load) count(a answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.longest = max(l.longest, a.took)
	if a.status == http.StatusOK {
		l.good.Add(1)
		return
	}
	l.bad = append(l.bad, fmt.Sprintf("%d after %v: %.300s", a.status, a.took.Round(time.Millisecond), a.body))
}

// end stops the clients. What was under way is dropped by the client.
func (l *load) end() (good int64, bad []string) {
	l.stop()
	l.clients.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.good.Load(), l.bad
}

// all sends n requests at once and waits for their answers.
func (s *scenario) all(ctx context.Context, n, tokens int) []answer {
	out := make([]answer, n)
	var wg sync.WaitGroup
	for i := range out {
		wg.Go(func() { out[i] = s.ask(ctx, tokens) })
	}
	wg.Wait()
	return out
}

// good demands that every answer is 200.
func (s *scenario) good(answers ...answer) {
	s.t.Helper()
	for i, a := range answers {
		require.Equal(s.t, http.StatusOK, a.status, "answer %d after %v: %.500s", i, a.took, a.body)
	}
}
