package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pilotlight-dev/pilotlight/test/internal/figures"
)

const (
	holds    = 10000
	heldSize = 8 << 10
	releases = 1000
	repeats  = 5
)

// measureHold fills the activator with requests to a sleeping model and reads
// its memory; and that of a server that does nothing but hold.
func measureHold(ctx context.Context, c config) ([]figures.Figure, error) {
	targets := filepath.Join(c.dir, "hold.yaml")
	if err := writeTargets(targets, target{"asleep", 1000, ""}); err != nil {
		return nil, err
	}
	act, err := startActivator(ctx, c, targets, "127.0.0.1:1", "--max-held=20000", "--max-held-total=20000")
	if err != nil {
		return nil, err
	}
	defer act.stop()
	body := `{"model":"asleep","prompt":"` + strings.Repeat("x", heldSize-30) + `"}`
	now, peak, err := fill(ctx, act.child, act.clients, body, func() error { return act.awaitHeld(ctx, "asleep", holds) })
	if err != nil {
		return nil, err
	}
	holder, holderAt, err := self(ctx, c, "holder")
	if err != nil {
		return nil, err
	}
	defer holder.stop()
	bareNow, barePeak, err := fill(ctx, holder, holderAt, body, func() error { time.Sleep(time.Second); return nil })
	if err != nil {
		return nil, err
	}
	return []figures.Figure{{
		Name: "held_10k_rss_mib", Value: peak, Unit: "MiB", Goal: figures.AtMost(350),
		Note: fmt.Sprintf("%d requests of %d KiB, at most (then %.0f); a server that only holds: %.0f, then %.0f", holds, heldSize>>10, now, barePeak, bareNow),
	}}, nil
}

// fill sends the requests, each on its own connection, and reads the memory
// once they are all there.
func fill(ctx context.Context, p *child, addr, body string, full func() error) (now, peak float64, err error) {
	conns := make([]net.Conn, holds)
	defer func() {
		for _, conn := range conns {
			if conn != nil {
				_ = conn.Close()
			}
		}
	}()
	request := fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAuthorization: Bearer sk-something\r\nContent-Length: %d\r\n\r\n%s", addr, len(body), body)
	var group errgroup.Group
	group.SetLimit(64)
	for i := range conns {
		group.Go(func() (err error) {
			if conns[i], err = (&net.Dialer{}).DialContext(ctx, "tcp", addr); err == nil {
				_, err = conns[i].Write([]byte(request))
			}
			return err
		})
	}
	if err := errors.Join(group.Wait(), full()); err != nil {
		return 0, 0, err
	}
	time.Sleep(2 * time.Second) // what a minute would show, too
	return p.memory()
}

// measureRelease holds a thousand requests, makes a pod Ready, and waits for
// the last answer.
func measureRelease(ctx context.Context, c config) ([]figures.Figure, error) {
	eng, engineAt, err := self(ctx, c, "engine")
	if err != nil {
		return nil, err
	}
	defer eng.stop()
	targets := filepath.Join(c.dir, "release.yaml")
	if err := writeTargets(targets, target{"warm", releases, ""}); err != nil {
		return nil, err
	}
	act, err := startActivator(ctx, c, targets, "127.0.0.1:1", "--max-held=2000")
	if err != nil {
		return nil, err
	}
	defer act.stop()
	var took []float64
	for range repeats {
		ms, err := releaseOnce(ctx, act, targets, engineAt)
		if err != nil {
			return nil, err
		}
		took = append(took, ms)
	}
	return []figures.Figure{{
		Name: "release_1000_ms", Value: median(took), Unit: "ms", Goal: figures.AtMost(250),
		Note: fmt.Sprintf("from Ready to the last of %d answers, median of %d; worst %.0f", releases, repeats, slices.Max(took)),
	}}, nil
}

func releaseOnce(ctx context.Context, act *activator, targets, engineAt string) (float64, error) {
	if err := writeTargets(targets, target{"warm", releases, ""}); err != nil {
		return 0, err
	}
	time.Sleep(time.Second) // it is seen to sleep
	transport := &http.Transport{MaxIdleConnsPerHost: releases, DisableCompression: true}
	defer transport.CloseIdleConnections()
	var group errgroup.Group
	ends := make([]time.Time, releases)
	for i := range ends {
		group.Go(func() error {
			err := askOnce(ctx, transport, act.clients, question)
			ends[i] = time.Now()
			return err
		})
	}
	if err := act.awaitHeld(ctx, "warm", releases); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := writeTargets(targets, target{"warm", releases, engineAt}); err != nil {
		return 0, err
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	return milliseconds(slices.MaxFunc(ends, time.Time.Compare).Sub(began)), nil
}
