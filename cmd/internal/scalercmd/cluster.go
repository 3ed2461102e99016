package scalercmd

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/internal/events"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
	"github.com/pilotlight-dev/pilotlight/internal/workload/kube"
	"github.com/pilotlight-dev/pilotlight/scaler"
)

// connection is what the scaler writes to the cluster with.
type connection struct {
	recorder *events.Recorder // nil: no events
	costs    scaler.Costs     // nil: victims of a scale-in are not marked
}

// connect makes a client of its own, so that a flood of pod lists delays no
// write and no flood of writes delays a list. It returns nil without a cluster.
func connect(f flags, getenv func(string) string, log *slog.Logger) (*connection, error) {
	if f.cluster.Static != "" {
		if f.deletionCost {
			return nil, cli.Usage("--pod-deletion-cost needs a cluster")
		}
		return nil, nil
	}
	config, err := f.cluster.Config(getenv)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, cli.Usage("--kubeconfig: %w", err)
	}
	c := &connection{}
	if f.events {
		c.recorder = events.New(client, "pilotlight-scaler", log)
	}
	if f.deletionCost {
		c.costs = kube.DeletionCosts{Client: client}
	}
	return c, nil
}

// events is nil where none are written.
func (c *connection) events() scaler.Events {
	if c == nil || c.recorder == nil {
		return nil
	}
	return c.recorder
}

// deletionCosts is nil where none are written.
func (c *connection) deletionCosts() scaler.Costs {
	if c == nil {
		return nil
	}
	return c.costs
}

// denials is 1 for each right that the API server is seen to deny.
type denials struct {
	source interface{ Denied() []workload.Denial }
}

var deniedDesc = prometheus.NewDesc("pilotlight_scaler_denied", "1 while the API server denies what the scaler has to read: a right is missing.", []string{"resource", "namespace"}, nil)

// Describe implements prometheus.Collector.
func (d denials) Describe(c chan<- *prometheus.Desc) { c <- deniedDesc }

// Collect implements prometheus.Collector.
func (d denials) Collect(c chan<- prometheus.Metric) {
	for _, one := range d.source.Denied() {
		c <- prometheus.MustNewConstMetric(deniedDesc, prometheus.GaugeValue, 1, one.Resource, one.Namespace)
	}
}

func (c *connection) run(ctx context.Context) {
	if c != nil && c.recorder != nil {
		c.recorder.Run(ctx)
	}
}
