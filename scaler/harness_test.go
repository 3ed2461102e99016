package scaler

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pilotlight-dev/pilotlight/internal/demandpb"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
	"github.com/pilotlight-dev/pilotlight/scaler/demand"
	"github.com/pilotlight-dev/pilotlight/scaler/engine"
)

var llama = workload.Ref{Namespace: "ai", Name: "llama"}

// cluster is a cluster of one's own making: workloads and what their engines
// say.
type cluster struct {
	mu        sync.Mutex
	workloads map[workload.Ref]workload.Workload
	err       error
	readings  map[string]engine.Reading // by host
	scrapes   int
	block     chan struct{} // when set, scrapes wait for it
}

func newCluster() *cluster {
	return &cluster{
		workloads: map[workload.Ref]workload.Workload{llama: {Ref: llama, MaxReplicas: 4}},
		readings:  map[string]engine.Reading{},
	}
}

func (c *cluster) Workload(_ context.Context, ref workload.Ref, _ string) (workload.Workload, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return workload.Workload{}, c.err
	}
	w, ok := c.workloads[ref]
	if !ok {
		return workload.Workload{}, workload.ErrNotFound
	}
	return w, nil
}

func (c *cluster) Scrape(ctx context.Context, t engine.Target) (engine.Reading, error) {
	c.mu.Lock()
	c.scrapes++
	block := c.block
	host, _, _ := net.SplitHostPort(t.URL[len("http://") : len(t.URL)-len("/metrics")])
	r, ok := c.readings[host]
	c.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			return engine.Reading{}, ctx.Err()
		}
	}
	if !ok {
		return engine.Reading{}, engine.ErrRefused
	}
	return r, nil
}

// set changes the cluster.
func (c *cluster) set(change func(*cluster)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
}

// pods gives llama n Ready pods at 10.0.0.1, 10.0.0.2, ... with running
// requests on the first.
func (c *cluster) pods(n int, running float64) {
	c.set(func(c *cluster) { c.give(n, running) })
}

// blind gives llama n Ready pods that cannot be read.
func (c *cluster) blind(n int) {
	c.set(func(c *cluster) {
		c.give(n, 0)
		clear(c.readings)
	})
}

func (c *cluster) give(n int, running float64) {
	w := c.workloads[llama]
	w.Pods, w.Replicas = nil, n
	for i := range n {
		host := net.IPv4(10, 0, 0, byte(i+1)).String()
		w.Pods = append(w.Pods, workload.Pod{Name: host, Host: host, Created: time.Now().Add(-time.Hour), ReadyAt: time.Now().Add(-time.Hour)})
		c.readings[host] = engine.Reading{}
	}
	if n > 0 {
		c.readings["10.0.0.1"] = engine.Reading{Running: running}
	}
	c.workloads[llama] = w
}

type rig struct {
	*cluster
	tracker *demand.Tracker
	scaler  *Scaler
	client  pb.ExternalScalerClient
	server  *grpc.Server
	addr    string

	reports sync.Mutex
	seq     uint64
	held    uint64 // as last reported
}

// hold reports n requests held for llama, as an activator would.
func (r *rig) hold(n uint64) {
	r.reports.Lock()
	defer r.reports.Unlock()
	r.held = n
	r.report()
}

// report sends what is held. The caller holds the lock.
func (r *rig) report() {
	r.seq++
	r.tracker.Report(&demandpb.Snapshot{ActivatorId: "a", BootId: "b", Seq: r.seq, Targets: []*demandpb.TargetDemand{
		{Namespace: "ai", ScaledObject: "llama", Held: r.held},
	}}, time.Now())
}

// repeat says once more every second what was reported last, as an activator
// does: one that is silent makes the demand unknown.
func (r *rig) repeat(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		r.reports.Lock()
		if r.seq > 0 {
			r.report()
		}
		r.reports.Unlock()
	}
}

// newRig serves a scaler on a real socket and dials it as KEDA does.
func newRig(t *testing.T, opts Options) *rig {
	t.Helper()
	r := &rig{cluster: newCluster(), tracker: demand.NewTracker()}
	opts.Workloads, opts.Engines, opts.Demands = r.cluster, r.cluster, r.tracker
	if opts.Interval == 0 {
		opts.Interval = 5 * time.Millisecond
	}
	s, err := New(opts)
	require.NoError(t, err)
	r.scaler = s
	r.server = grpc.NewServer()
	pb.RegisterExternalScalerServer(r.server, s)
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r.addr = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- r.server.Serve(l) }()
	go r.repeat(t.Context())
	conn, err := grpc.NewClient(r.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	r.client = pb.NewExternalScalerClient(conn)
	t.Cleanup(func() {
		s.Close()
		_ = conn.Close()
		r.server.GracefulStop()
		require.NoError(t, <-served)
	})
	return r
}

// brief is a staleAfter that a test can wait for.
const brief = 3 * time.Second

// soonStale is llama whose last answer stands for no longer than brief.
func soonStale() *pb.ScaledObjectRef { return object(map[string]string{"staleAfter": brief.String()}) }

func object(metadata map[string]string) *pb.ScaledObjectRef {
	m := map[string]string{
		"scalerAddress": "pilotlight:6000", "targetRequests": "4", "modelName": "llama",
		"keepAlive": "0s", "scaleDownWindow": "0s", "staleAfter": "30s",
	}
	for k, v := range metadata {
		if v == "" {
			delete(m, k)
			continue
		}
		m[k] = v
	}
	return &pb.ScaledObjectRef{Namespace: "ai", Name: "llama", ScalerMetadata: m}
}

func (r *rig) value(t *testing.T, so *pb.ScaledObjectRef) (float64, error) {
	t.Helper()
	resp, err := r.client.GetMetrics(t.Context(), &pb.GetMetricsRequest{ScaledObjectRef: so, MetricName: "s0-pilotlight-requests"})
	if err != nil {
		return 0, err
	}
	require.Len(t, resp.GetMetricValues(), 1, "KEDA sums whatever comes")
	return resp.GetMetricValues()[0].GetMetricValueFloat(), nil
}
