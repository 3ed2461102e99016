package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pilotlight-dev/pilotlight/test/internal/figures"
)

const (
	rate    = 2000 // requests per second
	workers = 16   // connections
	slice   = 2 * time.Second
)

// question is a chat request of about 1 KiB.
var question = `{"messages":[{"role":"system","content":"You are terse."},{"role":"user","content":"` +
	strings.Repeat("How does one keep a model warm? ", 30) + `"}],"max_tokens":80,"model":"warm"}`

// measureLatency compares the activator with a bare proxy, and both with the
// engine, in turn and at the same rate.
func measureLatency(ctx context.Context, c config) ([]figures.Figure, error) {
	eng, engineAt, err := self(ctx, c, "engine")
	if err != nil {
		return nil, err
	}
	defer eng.stop()
	proxy, bareAt, err := self(ctx, c, "bare", engineAt)
	if err != nil {
		return nil, err
	}
	defer proxy.stop()
	targets := filepath.Join(c.dir, "latency.yaml")
	if err := writeTargets(targets, target{"warm", 1000, engineAt}); err != nil {
		return nil, err
	}
	_, demand, scaler, err := startScaler(ctx, c, targets)
	if err != nil {
		return nil, err
	}
	defer scaler.stop()
	act, err := startActivator(ctx, c, targets, demand)
	if err != nil {
		return nil, err
	}
	defer act.stop()

	all := map[string][]sample{}
	order := []string{engineAt, bareAt, act.clients}
	for round := range c.rounds + 1 {
		for _, addr := range order {
			s, err := pace(ctx, addr)
			if err != nil {
				return nil, err
			}
			if round > 0 { // the first warms up
				all[addr] = append(all[addr], s)
			}
		}
		slices.Reverse(order)
	}
	bareCPU, err := proxy.cpu()
	if err != nil {
		return nil, err
	}
	ourCPU, err := act.cpu()
	if err != nil {
		return nil, err
	}
	n := time.Duration((c.rounds + 1) * rate * int(slice/time.Second))
	list := compare(all[engineAt], all[bareAt], all[act.clients])
	list[0].Note += fmt.Sprintf("; CPU for a request: bare proxy %v, activator %v", (bareCPU / n).Round(time.Microsecond), (ourCPU / n).Round(time.Microsecond))
	return list, nil
}

// A sample is what one slice has shown, in ms.
type sample struct{ p50, p99 float64 }

func compare(direct, bare, ours []sample) []figures.Figure {
	var d50, d99 []float64
	for i := range ours {
		d50, d99 = append(d50, ours[i].p50-bare[i].p50), append(d99, ours[i].p99-bare[i].p99)
	}
	note := func(of func(sample) float64) string {
		m := func(all []sample) float64 {
			var xs []float64
			for _, s := range all {
				xs = append(xs, of(s))
			}
			return median(xs)
		}
		return fmt.Sprintf("at %d/s, median of %d rounds; engine %.3f, bare proxy %.3f, activator %.3f ms", rate, len(ours), m(direct), m(bare), m(ours))
	}
	return []figures.Figure{
		{Name: "activator_over_bare_p50_ms", Value: median(d50), Unit: "ms", Goal: figures.AtMost(0.05), Note: note(func(s sample) float64 { return s.p50 })},
		{Name: "activator_over_bare_p99_ms", Value: median(d99), Unit: "ms", Goal: figures.AtMost(0.3), Note: note(func(s sample) float64 { return s.p99 })},
	}
}

// pace asks an address for one slice of time at the rate, from workers that
// take turns.
func pace(ctx context.Context, addr string) (sample, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: workers, DisableCompression: true}
	defer transport.CloseIdleConnections()
	each := make([][]float64, workers)
	group, ctx := errgroup.WithContext(ctx)
	begin := time.Now()
	for w := range workers {
		group.Go(func() error {
			gap := time.Second * workers / rate
			next := begin.Add(gap * time.Duration(w) / workers)
			for ; next.Sub(begin) < slice; next = next.Add(gap) {
				time.Sleep(time.Until(next))
				sent := time.Now()
				if err := askOnce(ctx, transport, addr, question); err != nil {
					return err
				}
				if sent.Sub(begin) > slice/10 { // connections are made by then
					each[w] = append(each[w], milliseconds(time.Since(sent)))
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return sample{}, err
	}
	all := slices.Concat(each...)
	return sample{figures.Quantile(all, 0.5), figures.Quantile(all, 0.99)}, nil
}

func askOnce(ctx context.Context, transport http.RoundTripper, addr, body string) error {
	resp, err := post(ctx, transport, addr, body)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		err = errors.Join(err, fmt.Errorf("status %d: %s", resp.StatusCode, text))
	}
	return errors.Join(err, resp.Body.Close())
}

func post(ctx context.Context, transport http.RoundTripper, addr, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return transport.RoundTrip(req)
}

func median(all []float64) float64 { return figures.Quantile(all, 0.5) }

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }
