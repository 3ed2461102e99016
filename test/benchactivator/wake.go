package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pilotlight-dev/pilotlight/internal/freeport"
	"github.com/pilotlight-dev/pilotlight/test/internal/figures"
)

const (
	wakes     = 150
	wakeGap   = 37 * time.Millisecond // they then fall anywhere within a second's looks
	wakeLimit = 10 * time.Second
)

// measureWake sends a request to each of many sleeping models, one after the
// other, and times how long KEDA's stream takes to say so: client, activator,
// scaler, KEDA.
func measureWake(ctx context.Context, c config) ([]figures.Figure, error) {
	var all []target
	for i := range wakes {
		all = append(all, target{fmt.Sprint("m", i), 8, ""})
	}
	targets := filepath.Join(c.dir, "wake.yaml")
	if err := writeTargets(targets, all...); err != nil {
		return nil, err
	}
	keda, demand, scaler, err := startScaler(ctx, c, targets)
	if err != nil {
		return nil, err
	}
	defer scaler.stop()
	act, err := startActivator(ctx, c, targets, demand)
	if err != nil {
		return nil, err
	}
	defer act.stop()
	took, err := wakeAll(ctx, keda, act.clients, all)
	if err != nil {
		return nil, err
	}
	return []figures.Figure{{
		Name: "wake_p99_ms", Value: figures.Quantile(took, 0.99), Unit: "ms", Goal: figures.AtMost(50),
		Note: fmt.Sprintf("from the client's request to true on KEDA's stream, %d models, median %.2f", wakes, median(took)),
	}}, nil
}

func startScaler(ctx context.Context, c config, targets string) (keda, demand string, p *child, err error) {
	var addrs [3]string
	for i := range addrs {
		if addrs[i], err = freeport.Addr(ctx); err != nil {
			return "", "", nil, err
		}
	}
	p, err = start(ctx, c, "scaler", c.scaler, "--listen", addrs[0], "--demand-listen", addrs[1], "--http-listen", addrs[2], "--static-targets", targets)
	if err != nil {
		return "", "", nil, err
	}
	return addrs[0], addrs[1], p, p.await(ctx, "http://"+addrs[2]+"/readyz")
}

func wakeAll(ctx context.Context, keda, clients string, all []target) (took []float64, err error) {
	conn, err := grpc.NewClient(keda, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	client := pb.NewExternalScalerClient(conn)
	streams := make([]grpc.ServerStreamingClient[pb.IsActiveResponse], len(all))
	for i, t := range all {
		ref := &pb.ScaledObjectRef{Namespace: "bench", Name: t.name, ScalerMetadata: map[string]string{"targetRequests": fmt.Sprint(t.requests), "modelName": t.name}}
		if streams[i], err = client.StreamIsActive(ctx, ref); err != nil {
			return nil, err
		}
		if first, err := streams[i].Recv(); err != nil || first.GetResult() {
			return nil, fmt.Errorf("%s should begin asleep (active %v): %w", t.name, first.GetResult(), err)
		}
	}
	time.Sleep(2 * time.Second) // the activator has reported
	transport := &http.Transport{MaxIdleConnsPerHost: len(all), DisableCompression: true}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the held requests
	for i, t := range all {
		wait, err := wake(ctx, streams[i], transport, clients, t.name)
		if err != nil {
			return nil, fmt.Errorf("waking %s: %w", t.name, err)
		}
		took = append(took, milliseconds(wait))
		time.Sleep(wakeGap)
	}
	return took, nil
}

// wake times from a request to `true` on the stream.
func wake(ctx context.Context, stream grpc.ServerStreamingClient[pb.IsActiveResponse], transport http.RoundTripper, addr, model string) (time.Duration, error) {
	told := make(chan error, 1)
	go func() {
		r, err := stream.Recv()
		if err == nil && !r.GetResult() {
			err = errors.New("told that it sleeps")
		}
		told <- err
	}()
	began := time.Now()
	go func() {
		_ = askOnce(ctx, transport, addr, strings.Replace(question, `"warm"`, `"`+model+`"`, 1)) // it is held until the end
	}()
	select {
	case err := <-told:
		return time.Since(began), err
	case <-time.After(wakeLimit):
		return 0, fmt.Errorf("KEDA was not told within %v", wakeLimit)
	}
}
