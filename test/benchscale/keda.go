package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pilotlight-dev/pilotlight/scaler"
)

const (
	hpaEvery  = 15 * time.Second // the HPA's sync period
	pollEvery = 30 * time.Second // KEDA's default pollingInterval
	callLimit = 10 * time.Second // a call that takes longer is a failure
)

// Keda asks a scaler what KEDA's operator asks about every ScaledObject, over
// one connection as it does: a stream each, and for each poll and each sync of
// the HPA GetMetricSpec, GetMetrics and IsActive. Calls are made when they are
// due, whether those before have come back or not.
type keda struct {
	fleet    fleet
	client   pb.ExternalScalerClient
	nothing  pb.ExternalScalerClient // a scaler that does nothing
	speed    int                     // how much faster than KEDA to ask
	awakened []chan time.Time

	mu       sync.Mutex
	known    map[int]bool // objects that have been answered about
	measures bool
	took     []time.Duration // of GetMetrics
	machine  []time.Duration // of the same call to the scaler that does nothing
	calls    int
	failures int
	failure  error // the first of them
}

func newKeda(f fleet, addr, bare string, speed int) (*keda, func() error, error) {
	conn, err := dial(addr)
	if err != nil {
		return nil, nil, err
	}
	other, err := dial(bare)
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	k := &keda{
		fleet: f, client: pb.NewExternalScalerClient(conn), nothing: pb.NewExternalScalerClient(other), speed: speed,
		known: map[int]bool{}, awakened: make([]chan time.Time, f.objects),
	}
	for i := range k.awakened {
		k.awakened[i] = make(chan time.Time, 1)
	}
	return k, func() error { return errors.Join(conn.Close(), other.Close()) }, nil
}

func dial(addr string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// run opens the streams over one HPA period and asks until ctx ends.
func (k *keda) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for i := range k.fleet.objects {
		group.Go(func() error {
			if !sleep(ctx, k.after(hpaEvery)*time.Duration(i)/time.Duration(k.fleet.objects)) {
				return nil
			}
			return k.listen(ctx, i)
		})
	}
	group.Go(func() error { k.each(ctx, hpaEvery); return nil })
	group.Go(func() error { k.each(ctx, pollEvery); return nil })
	return group.Wait()
}

func (k *keda) after(d time.Duration) time.Duration { return d / time.Duration(k.speed) }

// each asks about every object once a period, one after the other, evenly.
func (k *keda) each(ctx context.Context, period time.Duration) {
	var calls sync.WaitGroup
	defer calls.Wait()
	tick := time.NewTicker(k.after(period) / time.Duration(k.fleet.objects))
	defer tick.Stop()
	for i := 0; ; i = (i + 1) % k.fleet.objects {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		calls.Go(func() { k.ask(ctx, i) })
	}
}

func (k *keda) ask(ctx context.Context, i int) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	object := k.fleet.object(i)
	_, err := k.client.GetMetricSpec(ctx, object)
	var took, machine time.Duration
	if err == nil {
		took, err = getMetrics(ctx, k.client, object)
	}
	if err == nil {
		_, err = k.client.IsActive(ctx, object)
	}
	if err == nil {
		machine, err = getMetrics(ctx, k.nothing, object)
	}
	if context.Cause(ctx) == context.Canceled { //nolint:errorlint // the end of the bench, not of the call
		return
	}
	k.note(i, took, machine, err)
}

func getMetrics(ctx context.Context, client pb.ExternalScalerClient, object *pb.ScaledObjectRef) (time.Duration, error) {
	began := time.Now()
	resp, err := client.GetMetrics(ctx, &pb.GetMetricsRequest{ScaledObjectRef: object, MetricName: scaler.MetricName})
	took := time.Since(began)
	if err == nil && len(resp.GetMetricValues()) != 1 {
		err = fmt.Errorf("%d values", len(resp.GetMetricValues()))
	}
	return took, err
}

func (k *keda) note(i int, took, machine time.Duration, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil {
		k.known[i] = true
	}
	if !k.measures {
		return
	}
	k.calls++
	if err != nil {
		if k.failures++; k.failure == nil {
			k.failure = fmt.Errorf("asking about %s: %w", k.fleet.ref(i), err)
		}
		return
	}
	k.took, k.machine = append(k.took, took), append(k.machine, machine)
}

// listen holds the stream of object i open and tells when it says `true`.
func (k *keda) listen(ctx context.Context, i int) error {
	stream, err := k.client.StreamIsActive(ctx, k.fleet.object(i))
	for err == nil {
		var said *pb.IsActiveResponse
		if said, err = stream.Recv(); err == nil && said.GetResult() {
			select {
			case k.awakened[i] <- time.Now():
			default:
			}
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("the stream of %s has ended: %w", k.fleet.ref(i), err)
}

// unknown is how many objects have not been answered about yet.
func (k *keda) unknown() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.fleet.objects - len(k.known)
}

// measure begins to keep what calls take, or ends it.
func (k *keda) measure(on bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.measures = on
}

// sleep reports whether the time has passed before ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
