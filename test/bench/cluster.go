package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"

	"github.com/pilotlight-dev/pilotlight/internal/demandpb"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
	"github.com/pilotlight-dev/pilotlight/scaler/demand"
	"github.com/pilotlight-dev/pilotlight/scaler/engine"
)

const namespace = "bench"

func ref(i int) workload.Ref {
	return workload.Ref{Namespace: namespace, Name: fmt.Sprintf("model-%d", i)}
}

// object is how KEDA names target i.
func object(i int) *pb.ScaledObjectRef {
	return &pb.ScaledObjectRef{Namespace: namespace, Name: ref(i).Name, ScalerMetadata: map[string]string{
		"scalerAddress": "pilotlight:6000", "targetRequests": "12", "modelName": "model",
	}}
}

// A cluster is made of targets in memory. The first asleep of them have no
// pod; each other has one, whose metrics page is parsed anew at every look, as
// it would be after a scrape.
type cluster struct {
	asleep int
	page   []byte
	pods   map[workload.Ref][]workload.Pod
}

func newCluster(targets, asleep int, page []byte) *cluster {
	c := &cluster{asleep: asleep, page: page, pods: map[workload.Ref][]workload.Pod{}}
	born := time.Now().Add(-time.Hour)
	for i := asleep; i < targets; i++ {
		c.pods[ref(i)] = []workload.Pod{{Name: ref(i).Name + "-0", Host: "192.0.2.1", Created: born, ReadyAt: born}}
	}
	return c
}

// Workload implements scaler.Workloads.
func (c *cluster) Workload(_ context.Context, r workload.Ref, _ string) (workload.Workload, error) {
	pods := c.pods[r]
	return workload.Workload{Ref: r, MaxReplicas: 4, Replicas: len(pods), Pods: pods}, nil
}

// Scrape implements scaler.Engines.
func (c *cluster) Scrape(_ context.Context, t engine.Target) (engine.Reading, error) {
	return engine.Parse(t.Kind, c.page, "")
}

// An activator reports what it holds for every target, as a real one does:
// once a second, and at once when it begins to hold.
type activator struct {
	tracker *demand.Tracker
	targets int

	mu      sync.Mutex
	seq     uint64
	holding int // the target that requests are held for, -1 = none
}

// report sends a whole snapshot, holding a request for one target, -1 = none.
func (a *activator) report(holding int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.holding = holding
	a.send()
}

func (a *activator) repeat() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.send()
}

func (a *activator) send() {
	a.seq++
	s := &demandpb.Snapshot{ActivatorId: "bench", BootId: "1", Seq: a.seq, Targets: make([]*demandpb.TargetDemand, a.targets)}
	for i := range s.Targets {
		s.Targets[i] = &demandpb.TargetDemand{Namespace: namespace, ScaledObject: ref(i).Name}
	}
	if a.holding >= 0 {
		s.Targets[a.holding].Held = 1
	}
	a.tracker.Report(s, time.Now())
}

// run repeats the snapshot once a second until ctx ends.
func (a *activator) run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			a.repeat()
		}
	}
}
