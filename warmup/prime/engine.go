package prime

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Defaults of Engine's zero values.
const (
	// DefaultLongTokens is vLLM's usual largest batch of prompt tokens
	// (max_num_batched_tokens).
	DefaultLongTokens = 2048
	// DefaultRequests are a short one, a long one, and a burst of eight.
	DefaultRequests = 10
	// DefaultPatience bounds one request: compiling takes up to a quarter of a
	// minute on slow cards, and the burst waits for its turn.
	DefaultPatience = 2 * time.Minute

	askHealthEvery = 500 * time.Millisecond
	healthTimeout  = 2 * time.Second
	shortTokens    = 16
	leastTokens    = 64 // of a long prompt, when longer ones are refused
	answerTokens   = 4
	maxAnswer      = 1 << 20
)

// Secret is an API key. It prints as nothing.
type Secret string

// String hides the key from %v and %s.
func (Secret) String() string { return "(hidden)" }

// GoString hides it from %#v.
func (Secret) GoString() string { return "(hidden)" }

// Engine warms an engine up. Only URL is required.
type Engine struct {
	URL        string // its base, such as http://127.0.0.1:8000
	Model      string // served name; "": the first that the engine lists
	APIKey     Secret // sent as a bearer token if not empty
	LongTokens int    // of the long prompt, about; 0: DefaultLongTokens
	Requests   int    // in all: a short one, a long one, the rest at the same time; 0: DefaultRequests, negative: none
	Patience   time.Duration
	Client     *http.Client  // nil: one without proxy that follows no redirect
	Rand       func() uint64 // makes prompts unique; nil: math/rand/v2
}

// EngineReport says how the warm-up went.
type EngineReport struct {
	Healthy  bool          `json:"healthy"`
	Waited   time.Duration `json:"waited"` // for the engine's health, nanoseconds
	Requests int           `json:"requests"`
	Failed   int           `json:"failed"`
	Problem  string        `json:"problem,omitempty"` // the first failure
	Short    time.Duration `json:"short"`             // times of the three steps, nanoseconds
	Long     time.Duration `json:"long"`
	Burst    time.Duration `json:"burst"`
}

// Warm waits until the engine is healthy, however long that takes, and sends
// the requests. Its only error is ctx's; what the engine refuses is in the
// report.
func (e Engine) Warm(ctx context.Context) (EngineReport, error) {
	e = e.withDefaults()
	var report EngineReport
	base, err := url.Parse(e.URL)
	if err != nil || base.Host == "" {
		return report, fmt.Errorf("warming the engine up: its URL must look like http://127.0.0.1:8000")
	}
	began := time.Now()
	for !e.healthy(ctx, base) {
		if !pause(ctx, askHealthEvery) {
			return report, fmt.Errorf("warming the engine up: it has not become healthy: %w", ctx.Err())
		}
	}
	report.Healthy, report.Waited = true, time.Since(began)
	if e.Requests < 0 {
		return report, ctx.Err()
	}
	if e.Model == "" {
		if e.Model, err = e.firstModel(ctx, base); err != nil {
			report.Failed, report.Problem = 1, err.Error()
			return report, ctx.Err()
		}
	}
	note := func(step *time.Duration, work func() []error) {
		began := time.Now()
		for _, err := range work() {
			report.Requests++
			if err != nil {
				report.Failed++
				if report.Problem == "" {
					report.Problem = err.Error()
				}
			}
		}
		*step = time.Since(began)
	}
	note(&report.Short, func() []error { return []error{e.complete(ctx, base, shortTokens)} })
	if e.Requests > 1 {
		note(&report.Long, func() []error { return []error{e.long(ctx, base)} })
	}
	if e.Requests > 2 {
		note(&report.Burst, func() []error { return e.burst(ctx, base, e.Requests-2) })
	}
	return report, ctx.Err()
}

func (e Engine) withDefaults() Engine {
	if e.LongTokens <= 0 {
		e.LongTokens = DefaultLongTokens
	}
	if e.Requests == 0 {
		e.Requests = DefaultRequests
	}
	if e.Patience <= 0 {
		e.Patience = DefaultPatience
	}
	if e.Rand == nil {
		e.Rand = rand.Uint64
	}
	if e.Client == nil {
		e.Client = &http.Client{
			Transport:     &http.Transport{MaxIdleConnsPerHost: max(e.Requests, 1), IdleConnTimeout: 4 * time.Second},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	return e
}

// healthy asks /health, which needs no key.
func (e Engine) healthy(ctx context.Context, base *url.URL) bool {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	_, err := e.do(ctx, http.MethodGet, base.JoinPath("health"), nil)
	return err == nil
}

func (e Engine) firstModel(ctx context.Context, base *url.URL) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	body, err := e.do(ctx, http.MethodGet, base.JoinPath("v1/models"), nil)
	if err != nil {
		return "", fmt.Errorf("listing the engine's models: %w", err)
	}
	var models struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if json.Unmarshal(body, &models) != nil || len(models.Data) == 0 {
		return "", errors.New("listing the engine's models: it lists none")
	}
	return models.Data[0].ID, nil
}

// long sends the longest prompt that the engine takes.
func (e Engine) long(ctx context.Context, base *url.URL) error {
	for tokens := e.LongTokens; ; tokens /= 2 {
		err := e.complete(ctx, base, tokens)
		var refused *statusError
		if !errors.As(err, &refused) || refused.code != http.StatusBadRequest || tokens/2 < leastTokens {
			return err
		}
	}
}

func (e Engine) burst(ctx context.Context, base *url.URL, size int) []error {
	errs := make([]error, size)
	var group sync.WaitGroup
	for i := range errs {
		group.Go(func() { errs[i] = e.complete(ctx, base, shortTokens) })
	}
	group.Wait()
	return errs
}

// complete sends one request and reads its answer to the end.
func (e Engine) complete(ctx context.Context, base *url.URL, tokens int) error {
	body, err := json.Marshal(map[string]any{
		"model": e.Model, "prompt": prompt(e.Rand(), tokens), "max_tokens": answerTokens, "temperature": 1,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, e.Patience)
	defer cancel()
	if _, err := e.do(ctx, http.MethodPost, base.JoinPath("v1/completions"), body); err != nil {
		return fmt.Errorf("warm-up request of %d tokens: %w", tokens, err)
	}
	return nil
}

// prompt makes about so many tokens (a short word and a space each) that begin
// differently for every seed: prefix caches compare from the front.
func prompt(seed uint64, tokens int) string {
	words := [...]string{"blue", "river", "stone", "light", "north", "paper", "quiet", "seven"}
	var b strings.Builder
	fmt.Fprintf(&b, "%016x", seed)
	for i := range max(tokens-8, 1) { // the seed is some eight tokens
		b.WriteByte(' ')
		b.WriteString(words[(seed>>(uint(i)%61))%uint64(len(words))])
	}
	return b.String()
}

type statusError struct{ code int }

func (e *statusError) Error() string { return fmt.Sprintf("the engine answered HTTP %d", e.code) }

func (e Engine) do(ctx context.Context, method string, u *url.URL, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if e.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+string(e.APIKey))
	}
	resp, err := e.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // the body is only read
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode != http.StatusOK {
		return nil, &statusError{resp.StatusCode}
	}
	return answer, err
}

// pause waits and reports whether the context still lives.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
