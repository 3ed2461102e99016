package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pilotlight-dev/pilotlight/test/internal/figures"
)

const streams = 1000

// measureStreams reads a thousand streams at once and looks for the token that
// was longest on its way; through the activator, through the bare proxy, and
// straight from the engine.
func measureStreams(ctx context.Context, c config) ([]figures.Figure, error) {
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
	targets := filepath.Join(c.dir, "stream.yaml")
	if err := writeTargets(targets, target{"warm", streams, engineAt}); err != nil {
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
	var ours, bare, direct []float64
	for range 3 {
		for addr, all := range map[string]*[]float64{engineAt: &direct, bareAt: &bare, act.clients: &ours} {
			worst, err := readStreams(ctx, addr)
			if err != nil {
				return nil, err
			}
			*all = append(*all, worst)
		}
	}
	note := func(all []float64) string {
		return fmt.Sprintf("the slowest of %d tokens, median of %d runs (worst %.1f)", streams*tokens, len(all), slices.Max(all))
	}
	return []figures.Figure{
		{Name: "sse_max_stall_ms", Value: median(ours), Unit: "ms", Goal: figures.AtMost(50), Note: note(ours) + fmt.Sprintf("; engine itself %.1f", median(direct))},
		{Name: "sse_bare_stall_ms", Value: median(bare), Unit: "ms", Note: note(bare)},
	}, nil
}

func readStreams(ctx context.Context, addr string) (float64, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: streams, DisableCompression: true}
	defer transport.CloseIdleConnections()
	body := strings.Replace(question, `"max_tokens"`, `"stream":true,"max_tokens"`, 1)
	worst := make([]time.Duration, streams)
	group, ctx := errgroup.WithContext(ctx)
	for i := range worst {
		group.Go(func() (err error) {
			time.Sleep(time.Duration(i) * time.Second / streams) // users do not come all at once
			worst[i], err = readStream(ctx, transport, addr, body)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	return milliseconds(slices.Max(worst)), nil
}

// readStream returns the longest way of a token.
func readStream(ctx context.Context, transport http.RoundTripper, addr, body string) (worst time.Duration, err error) {
	resp, err := post(ctx, transport, addr, body)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	lines := bufio.NewScanner(resp.Body)
	n := 0
	for lines.Scan() {
		_, rest, ok := strings.Cut(lines.Text(), `"content":"`)
		if !ok {
			continue
		}
		now := time.Now()
		text, _, _ := strings.Cut(rest, `"`)
		sent, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, err
		}
		if n++; n > tokens/4 { // once all streams run
			worst = max(worst, now.Sub(time.Unix(0, sent)))
		}
	}
	if n != tokens {
		err = fmt.Errorf("%d tokens came, not %d", n, tokens)
	}
	return worst, errors.Join(err, lines.Err())
}
