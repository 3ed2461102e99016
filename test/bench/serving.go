package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"time"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pilotlight-dev/pilotlight/scaler"
	"github.com/pilotlight-dev/pilotlight/scaler/demand"
	"github.com/pilotlight-dev/pilotlight/test/internal/figures"
)

const (
	targets = 1000
	edges   = 200 // of the targets sleep, and are woken one after the other
	calls   = 20000
	clients = 4

	// The rate at which the goal is measured: 2,000 calls a second, ten times
	// what KEDA asks about a thousand targets (two calls each every ten
	// seconds), so that the calls meet ten looks at each target. Targets
	// become known over a second, as they do when KEDA starts.
	callGap  = 2 * time.Millisecond // between the calls of one client
	firstGap = 4 * time.Millisecond // between its first calls

	edgeGap   = 13 * time.Millisecond // between two edges: they then fall anywhere within a second's looks
	edgeLimit = 10 * time.Second      // an edge that takes longer is a failure
)

// measureServing runs a scaler with all targets and measures its RPCs.
func measureServing(ctx context.Context, page []byte) (list []figures.Figure, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if os.Getenv("GOGC") == "" {
		defer debug.SetGCPercent(debug.SetGCPercent(scaler.MostGCPercent)) // as pilotlight-scaler does with so few targets
	}
	tracker := demand.NewTracker()
	c := newCluster(targets, edges, page)
	s, err := scaler.New(scaler.Options{Workloads: c, Engines: c, Demands: tracker})
	if err != nil {
		return nil, err
	}
	addr, shutdown, err := serve(ctx, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, shutdown()) }()

	a := &activator{tracker: tracker, targets: targets, holding: -1}
	a.report(-1)
	var reporting errgroup.Group
	reporting.Go(func() error { a.run(ctx); return nil })
	defer func() { stop(); err = errors.Join(err, reporting.Wait()) }()

	if _, err := measureCalls(ctx, addr, targets, firstGap); err != nil {
		return nil, fmt.Errorf("GetMetrics, first calls: %w", err)
	}
	paced, err := measureCalls(ctx, addr, calls, callGap)
	if err != nil {
		return nil, fmt.Errorf("GetMetrics: %w", err)
	}
	flatOut, err := measureCalls(ctx, addr, calls, time.Nanosecond)
	if err != nil {
		return nil, fmt.Errorf("GetMetrics, flat out: %w", err)
	}
	bare, err := measureBare(ctx)
	if err != nil {
		return nil, fmt.Errorf("a server that does nothing: %w", err)
	}
	waits, err := measureEdges(ctx, addr, a)
	if err != nil {
		return nil, fmt.Errorf("StreamIsActive: %w", err)
	}
	return []figures.Figure{
		callFigure("getmetrics_p99_ms", paced, figures.Below(1), fmt.Sprintf("%d targets, %d clients, %d calls/s", targets, clients, clients*time.Second/callGap)),
		callFigure("bare_grpc_p99_ms", bare, figures.Goal{}, "the same calls to a server that does nothing, in the same process"),
		callFigure("getmetrics_flatout_p99_ms", flatOut, figures.Goal{}, "the same, each client as fast as it can"),
		{
			Name: "edge_ms", Value: milliseconds(figures.Quantile(waits, 0.99)), Unit: "ms", Goal: figures.Below(100),
			Note: fmt.Sprintf("p99 (median %.3g ms) of %d held requests until KEDA is told", milliseconds(figures.Quantile(waits, 0.5)), len(waits)),
		},
	}, nil
}

// measureBare makes the paced calls to a server without targets that answers
// with a constant: what gRPC and this machine take by themselves.
func measureBare(ctx context.Context) (took []time.Duration, err error) {
	addr, shutdown, err := serveOn(ctx, constant{}, func() {})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, shutdown()) }()
	return measureCalls(ctx, addr, calls, callGap)
}

// constant answers every GetMetrics alike.
type constant struct {
	pb.UnimplementedExternalScalerServer
}

// GetMetrics implements externalscaler.ExternalScalerServer.
func (constant) GetMetrics(_ context.Context, req *pb.GetMetricsRequest) (*pb.GetMetricsResponse, error) {
	return &pb.GetMetricsResponse{MetricValues: []*pb.MetricValue{{MetricName: req.GetMetricName(), MetricValueFloat: 1}}}, nil
}

func callFigure(name string, took []time.Duration, goal figures.Goal, note string) figures.Figure {
	return figures.Figure{
		Name: name, Value: milliseconds(figures.Quantile(took, 0.99)), Unit: "ms", Goal: goal,
		Note: fmt.Sprintf("median %.3g ms of %d; %s", milliseconds(figures.Quantile(took, 0.5)), len(took), note),
	}
}

// serve serves s on loopback. shutdown ends everything and returns what went
// wrong.
func serve(ctx context.Context, s *scaler.Scaler) (addr string, shutdown func() error, err error) {
	return serveOn(ctx, s, s.Close)
}

func serveOn(ctx context.Context, s pb.ExternalScalerServer, end func()) (addr string, shutdown func() error, err error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		end()
		return "", nil, err
	}
	server := grpc.NewServer()
	pb.RegisterExternalScalerServer(server, s)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	return l.Addr().String(), func() error {
		end()
		server.Stop()
		return <-served
	}, nil
}

func dial(addr string) (pb.ExternalScalerClient, func() error, error) {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, nil, err
	}
	return pb.NewExternalScalerClient(conn), conn.Close, nil
}

// measureCalls asks for the targets' metrics in turn, from several clients with
// a connection each that pause between calls.
func measureCalls(ctx context.Context, addr string, n int, gap time.Duration) ([]time.Duration, error) {
	took := make([]time.Duration, n)
	group, ctx := errgroup.WithContext(ctx)
	for first := range clients {
		group.Go(func() (err error) {
			client, hangUp, err := dial(addr)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, hangUp()) }()
			pause := time.NewTicker(gap)
			defer pause.Stop()
			for i := first; i < n; i += clients {
				<-pause.C
				if took[i], err = ask(ctx, client, i%targets); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return took, group.Wait()
}

func ask(ctx context.Context, client pb.ExternalScalerClient, i int) (time.Duration, error) {
	req := &pb.GetMetricsRequest{ScaledObjectRef: object(i), MetricName: "s0-" + scaler.MetricName}
	began := time.Now()
	resp, err := client.GetMetrics(ctx, req)
	took := time.Since(began)
	if err == nil && len(resp.GetMetricValues()) != 1 {
		err = fmt.Errorf("%d values for %s", len(resp.GetMetricValues()), ref(i))
	}
	return took, err
}

// measureEdges wakes the sleeping targets one after the other and times how
// long their streams take to say so.
func measureEdges(ctx context.Context, addr string, a *activator) (took []time.Duration, err error) {
	client, hangUp, err := dial(addr)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, hangUp()) }()
	streams := make([]grpc.ServerStreamingClient[pb.IsActiveResponse], edges)
	for i := range streams {
		if streams[i], err = client.StreamIsActive(ctx, object(i)); err != nil {
			return nil, err
		}
		if first, err := streams[i].Recv(); err != nil || first.GetResult() {
			return nil, fmt.Errorf("%s should begin asleep (active %v): %w", ref(i), first.GetResult(), err)
		}
	}
	pause := time.NewTicker(edgeGap)
	defer pause.Stop()
	for i, stream := range streams {
		<-pause.C
		wait, err := edge(stream, func() { a.report(i) })
		if err != nil {
			return nil, fmt.Errorf("waking %s: %w", ref(i), err)
		}
		took = append(took, wait)
	}
	return took, nil
}

// edge times from hold to `true` on the stream.
func edge(stream grpc.ServerStreamingClient[pb.IsActiveResponse], hold func()) (time.Duration, error) {
	type answer struct {
		at     time.Time
		active bool
		err    error
	}
	answers := make(chan answer, 1)
	go func() {
		r, err := stream.Recv()
		answers <- answer{time.Now(), r.GetResult(), err}
	}()
	limit := time.NewTimer(edgeLimit)
	defer limit.Stop()
	began := time.Now()
	hold()
	select {
	case got := <-answers:
		if got.err == nil && !got.active {
			got.err = errors.New("told that it sleeps")
		}
		return got.at.Sub(began), got.err
	case <-limit.C:
		return 0, fmt.Errorf("KEDA was not told within %v", edgeLimit)
	}
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }
