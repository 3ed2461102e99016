package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pilotlight-dev/pilotlight/internal/demandpb"
)

// reportEvery is the pace of an activator while its counts change, and with
// busy models they always do.
const reportEvery = 100 * time.Millisecond

// An activator plays the demand protocol of one replica in front of the whole
// fleet: what passes through to the objects that are awake, and what is held
// for those that sleep.
type activator struct {
	fleet fleet
	began time.Time
	edge  chan struct{} // something begins to be held

	mu      sync.Mutex
	holding int // the object that a request is held for, -1 = none
	heard   uint64
}

func newActivator(f fleet) *activator {
	return &activator{fleet: f, began: time.Now(), edge: make(chan struct{}, 1), holding: -1}
}

// hold holds one request for object i, and no other any more.
func (a *activator) hold(i int) {
	a.mu.Lock()
	a.holding = i
	a.mu.Unlock()
	select {
	case a.edge <- struct{}{}:
	default:
	}
}

// answered is how many snapshots the scaler has answered.
func (a *activator) answered() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.heard
}

func (a *activator) targets() []*demandpb.TargetDemand {
	a.mu.Lock()
	holding := a.holding
	a.mu.Unlock()
	after := time.Since(a.began)
	out := make([]*demandpb.TargetDemand, a.fleet.objects)
	for i := range out {
		ref := a.fleet.ref(i)
		d := &demandpb.TargetDemand{Namespace: ref.Namespace, ScaledObject: ref.Name}
		for first, end := a.fleet.podsOf(i); first < end; first++ {
			running, waiting, _, _, finished := numbers(first, after)
			d.InFlight += running + waiting
			d.CompletedTotal += finished
			d.ArrivalsTotal += finished + running + waiting
			d.ServiceSecondsTotal += 12 * float64(finished)
		}
		if i == holding {
			d.Held, d.ArrivalsTotal = 1, 1
		}
		out[i] = d
	}
	return out
}

// run reports until ctx ends.
func (a *activator) run(ctx context.Context, addr string) error {
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // nothing to lose
	stream, err := demandpb.NewDemandClient(conn).Report(ctx)
	if err != nil {
		return fmt.Errorf("reporting: %w", err)
	}
	answers := make(chan error, 1)
	go func() { answers <- a.listen(stream) }() // ends with ctx
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for seq := uint64(1); ; seq++ {
		err := stream.Send(&demandpb.Snapshot{ActivatorId: "bench", BootId: "1", Seq: seq, Targets: a.targets()})
		if err != nil && !errors.Is(err, io.EOF) { // the answer says why it is the end
			return fmt.Errorf("reporting: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-answers:
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("reporting: %w", err)
		case <-tick.C:
		case <-a.edge:
		}
	}
}

func (a *activator) listen(stream grpc.BidiStreamingClient[demandpb.Snapshot, demandpb.Ack]) error {
	for {
		ack, err := stream.Recv()
		if err != nil {
			return err
		}
		a.mu.Lock()
		a.heard = ack.GetSeq()
		a.mu.Unlock()
	}
}
