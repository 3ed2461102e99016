package scalercmd

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pilotlight-dev/pilotlight/internal/workload"
	"github.com/pilotlight-dev/pilotlight/scaler"
	"github.com/pilotlight-dev/pilotlight/warmup/coldstart"
)

// startBuckets go up to an hour, closest where large models are.
var startBuckets = []float64{1, 2.5, 5, 10, 20, 30, 45, 60, 90, 120, 180, 240, 300, 450, 600, 900, 1800, 3600}

// coldstarts is the collector of what is known of start times: every start
// that was seen, and what was learned from them. It has series of live targets
// only.
type coldstarts struct {
	learner *coldstart.Learner
	targets func() []scaler.TargetStatus
	learned *prometheus.Desc

	mu      sync.Mutex
	seconds *prometheus.HistogramVec
	seen    map[workload.Ref]bool // those with series in seconds
}

// newColdstarts returns a collector with the Learner it tells of. Its targets
// must be set before it is registered.
func newColdstarts() *coldstarts {
	c := &coldstarts{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "pilotlight_coldstart_seconds",
			Help:    "Time from a pod's creation to Ready, by slice: schedule, fetch, load, and their total.",
			Buckets: startBuckets,
		}, []string{"namespace", "scaled_object", "slice"}),
		learned: prometheus.NewDesc("pilotlight_coldstart_learned_seconds",
			"Time to ready that is expected of the next start, once enough were seen.",
			[]string{"namespace", "scaled_object", "trigger", "quantile"}, nil),
		seen: map[workload.Ref]bool{},
	}
	c.learner = &coldstart.Learner{OnStart: c.started}
	return c
}

func (c *coldstarts) started(k coldstart.Key, s coldstart.Start) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[workload.Ref{Namespace: k.Namespace, Name: k.Name}] = true
	slices := map[string]float64{"total": s.Total().Seconds()}
	if s.Schedule > 0 || s.Fetch > 0 { // else the source knows only when it became Ready
		slices["schedule"], slices["fetch"], slices["load"] = s.Schedule, s.Fetch, s.Load
	}
	for slice, v := range slices {
		c.seconds.WithLabelValues(k.Namespace, k.Name, slice).Observe(v)
	}
}

// Describe implements prometheus.Collector.
func (c *coldstarts) Describe(ch chan<- *prometheus.Desc) {
	c.seconds.Describe(ch)
	ch <- c.learned
}

// Collect implements prometheus.Collector.
func (c *coldstarts) Collect(ch chan<- prometheus.Metric) {
	for _, t := range c.forget() {
		q, ok := c.learner.Learned(coldstart.Key{Namespace: t.Namespace, Name: t.ScaledObject, Trigger: t.Trigger})
		if !ok {
			continue // what the user said was not learned
		}
		ch <- prometheus.MustNewConstMetric(c.learned, prometheus.GaugeValue, q.P50.Seconds(), t.Namespace, t.ScaledObject, t.Trigger, "0.5")
		ch <- prometheus.MustNewConstMetric(c.learned, prometheus.GaugeValue, q.P95.Seconds(), t.Namespace, t.ScaledObject, t.Trigger, "0.95")
	}
	c.seconds.Collect(ch)
}

// forget removes the series of targets that have ended, and returns the
// others. A target is listed before its first start is seen, so that with
// started kept out meanwhile no new series is taken for an old one.
func (c *coldstarts) forget() []scaler.TargetStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	targets := c.targets()
	live := make(map[workload.Ref]bool, len(targets))
	for _, t := range targets {
		live[workload.Ref{Namespace: t.Namespace, Name: t.ScaledObject}] = true
	}
	for ref := range c.seen {
		if !live[ref] {
			c.seconds.DeletePartialMatch(prometheus.Labels{"namespace": ref.Namespace, "scaled_object": ref.Name})
			delete(c.seen, ref)
		}
	}
	return targets
}
