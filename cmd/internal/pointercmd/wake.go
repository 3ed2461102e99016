package pointercmd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/pilotlight-dev/pilotlight/registry"
)

// keyVariable holds the key that the activator asks for, if it does.
const keyVariable = "PILOTLIGHT_API_KEY"

// newWaker returns what sends the request that wakes a replica, once, and how
// to end it. The activator holds the request while the replica starts, so it is
// sent beside the wait; woken returns the refusal once there is one.
func (a *app) newWaker(ctx context.Context, ref registry.Ref) (woken func() error, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var refused chan error
	var sending sync.WaitGroup
	woken = func() error {
		if refused == nil {
			refused = make(chan error, 1)
			sending.Go(func() { refused <- a.sendWake(ctx, ref) })
			return nil
		}
		select {
		case err := <-refused:
			refused <- err // for the next round
			return err
		default:
			return nil
		}
	}
	return woken, func() {
		cancel()
		sending.Wait()
	}
}

// sendWake asks for one token. An answer of any version will do: it is the
// agents that say which one serves.
func (a *app) sendWake(ctx context.Context, ref registry.Ref) error {
	model := a.wakeModel
	if model == "" {
		model = ref.Name
	}
	base, err := url.Parse(a.activator)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return fmt.Errorf("--activator: want a URL such as http://pilotlight-activator:8000") // which may hold a password
	}
	body, err := json.Marshal(map[string]any{"model": model, "prompt": "hi", "max_tokens": 1})
	if err != nil {
		return fmt.Errorf("waking %s: %w", model, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(base.String(), "/")+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("waking %s: %w", model, err)
	}
	req.Header.Set("Content-Type", "application/json")
	if key := a.Getenv(keyVariable); key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := a.HTTP.Do(req)
	if err != nil {
		return fmt.Errorf("waking %s through %s: %w", model, base.Redacted(), err)
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 300)) // for the message only
	_ = resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("waking %s through %s: it answers %d: %s", model, base.Redacted(), resp.StatusCode, clean(string(text)))
	}
	return nil
}
