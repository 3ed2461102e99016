package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"google.golang.org/grpc"

	"github.com/pilotlight-dev/pilotlight/internal/freeport"
	"github.com/pilotlight-dev/pilotlight/test/e2e/plane"
)

// bare is a scaler that does nothing but answer GetMetrics with a constant. It
// runs in a process of its own beside the one that is measured and is asked as
// often: what it takes is the machine's, not the scaler's.
type bare struct {
	pb.UnimplementedExternalScalerServer
}

// GetMetrics implements externalscaler.ExternalScalerServer.
func (bare) GetMetrics(_ context.Context, req *pb.GetMetricsRequest) (*pb.GetMetricsResponse, error) {
	return &pb.GetMetricsResponse{MetricValues: []*pb.MetricValue{{MetricName: req.GetMetricName(), MetricValueFloat: 1}}}, nil
}

// serveBare serves until ctx ends.
func serveBare(ctx context.Context, l net.Listener) error {
	srv := grpc.NewServer()
	pb.RegisterExternalScalerServer(srv, bare{})
	defer context.AfterFunc(ctx, srv.Stop)()
	if err := srv.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serving %s: %w", l.Addr(), err)
	}
	return nil
}

// runBare is this program as the scaler that does nothing.
func runBare(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("usage: bare ADDRESS")
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", args[0])
	if err != nil {
		return err
	}
	return serveBare(ctx, l)
}

// startBare runs this program once more, as the scaler that does nothing.
func startBare(ctx context.Context, c config) (*plane.Process, string, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	addr, err := freeport.Addr(ctx)
	if err != nil {
		return nil, "", err
	}
	p, err := plane.Run(ctx, c.dir, "bare", nil, program, "bare", addr)
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err == nil {
			return p, addr, conn.Close()
		}
		if !sleep(ctx, 20*time.Millisecond) {
			return nil, "", fmt.Errorf("%s did not come up: %w: %s", p.Name, err, p.Tail())
		}
	}
}
