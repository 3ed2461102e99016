package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pilotlight-dev/pilotlight/scaler/simulate"
)

// A loop is KEDA with its HPA: the model of package simulate, driven by the
// real clock, asking the real scaler through KEDA's own stubs.
type loop struct {
	client pb.ExternalScalerClient
	object *pb.ScaledObjectRef
	keda   simulate.KEDA
	hpa    simulate.HPA
	node   *node
	onMove func(move)

	polls atomic.Int64 // that have ended

	mu    sync.Mutex
	state simulate.KEDAState
}

// A move is one change of the replicas, and what made it.
type move struct {
	from, to int
	by       string // push, poll or hpa
}

// dialScaler connects as KEDA does.
func dialScaler(addr string) (*grpc.ClientConn, error) {
	return grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// run drives the three loops until ctx ends.
func (l *loop) run(ctx context.Context) error {
	l.state.Created = time.Now()
	spec, err := l.client.GetMetricSpec(ctx, l.object)
	if err != nil {
		return fmt.Errorf("GetMetricSpec: %w", err)
	}
	if len(spec.GetMetricSpecs()) != 1 {
		return fmt.Errorf("GetMetricSpec: %d specs, want 1", len(spec.GetMetricSpecs()))
	}
	metric := spec.GetMetricSpecs()[0]
	l.hpa.Target = metric.GetTargetSizeFloat()
	name := "s0-" + metric.GetMetricName()

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return every(ctx, l.keda.PollingInterval, func() { l.poll(ctx, name) }) })
	group.Go(func() error { return every(ctx, pace.hpaSync, l.hpaSync(ctx, name)) })
	group.Go(func() error { return l.push(ctx) })
	return group.Wait()
}

func every(ctx context.Context, d time.Duration, do func()) error {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		do()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// poll is one round of KEDA's scale loop: GetMetrics, then IsActive.
func (l *loop) poll(ctx context.Context, name string) {
	_, errMetrics := l.metric(ctx, name)
	active, errActive := l.client.IsActive(ctx, l.object)
	l.scale(ctx, simulate.Answer{Active: active.GetResult(), Failed: errors.Join(errMetrics, errActive) != nil}, "poll")
	l.polls.Add(1)
}

// push listens to the scaler's stream; only `true` counts, as in KEDA.
func (l *loop) push(ctx context.Context) error {
	for ctx.Err() == nil {
		stream, err := l.client.StreamIsActive(ctx, l.object)
		for err == nil {
			var m *pb.IsActiveResponse
			if m, err = stream.Recv(); err == nil && m.GetResult() {
				l.scale(ctx, simulate.Answer{Active: true}, "push")
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		if !errors.Is(err, io.EOF) {
			return fmt.Errorf("StreamIsActive: %w", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Second): // KEDA's first back-off
		}
	}
	return nil
}

func (l *loop) scale(ctx context.Context, a simulate.Answer, by string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from, _ := l.node.spec()
	to, state := l.keda.Scale(l.state, from, a, time.Now())
	l.state = state
	l.move(ctx, from, to, by)
}

// hpaSync returns one sync of the HPA, which remembers.
func (l *loop) hpaSync(ctx context.Context, name string) func() {
	var state simulate.HPAState
	return func() {
		value, err := l.metric(ctx, name)
		l.mu.Lock()
		defer l.mu.Unlock()
		from, present := l.node.spec()
		var to int
		to, state = l.hpa.Sync(state, from, present, value, err == nil, time.Now())
		l.move(ctx, from, to, "hpa")
	}
}

func (l *loop) move(ctx context.Context, from, to int, by string) {
	if from == to || ctx.Err() != nil {
		return
	}
	l.node.Scale(ctx, to)
	l.onMove(move{from, to, by})
}

func (l *loop) metric(ctx context.Context, name string) (float64, error) {
	resp, err := l.client.GetMetrics(ctx, &pb.GetMetricsRequest{ScaledObjectRef: l.object, MetricName: name})
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for _, v := range resp.GetMetricValues() { // KEDA relabels and sums whatever comes
		sum += v.GetMetricValueFloat()
	}
	return sum, nil
}
