package activator

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

// Why a request was sent again.
const (
	retryRefused = "refused" // the pod did not take the connection
	retryAbort   = "abort"   // the engine said that it goes down
)

// metrics are written here and never read: what is decided rests on values.
type metrics struct {
	requests *prometheus.CounterVec
	retries  *prometheus.CounterVec
	hold     *prometheus.HistogramVec
	received *prometheus.CounterVec
	sent     *prometheus.CounterVec
}

var targetLabels = []string{"namespace", "scaled_object"}

func newMetrics(a *Activator, r prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pilotlight_activator_" + name, Help: help}, append(targetLabels[:2:2], labels...))
	}
	m := &metrics{
		requests: counter("requests_total", "Requests that have ended, by how.", "class"),
		retries:  counter("retries_total", "Requests sent again, before any content, by reason: refused or abort.", "reason"),
		received: counter("received_bytes_total", "Bytes of requests' bodies."),
		sent:     counter("sent_bytes_total", "Bytes of answers' bodies."),
		hold: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "pilotlight_activator_hold_seconds", Help: "How long requests waited for a place, of those that had to.",
			Buckets: []float64{0.01, 0.05, 0.25, 1, 5, 15, 30, 60, 120, 240, 480, 900, 1800},
		}, targetLabels),
	}
	if r == nil {
		return m, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.requests, m.retries, m.received, m.sent, m.hold, newGauges(a)} {
		errs = append(errs, r.Register(c))
	}
	return m, errors.Join(errs...)
}

// labelled names a request's target; both are empty where it had none.
func labelled(way *passage) (namespace, name string) {
	if way.pool == nil {
		return "", ""
	}
	return way.pool.ref.Namespace, way.pool.ref.Name
}

func (m *metrics) ended(way *passage, w *writer) {
	namespace, name := labelled(way)
	m.requests.WithLabelValues(namespace, name, way.class).Inc()
	m.sent.WithLabelValues(namespace, name).Add(float64(w.sent))
	if way.payload != nil {
		m.received.WithLabelValues(namespace, name).Add(float64(way.payload.size))
	}
	if way.waited {
		m.hold.WithLabelValues(namespace, name).Observe(way.held.Seconds())
	}
}

func (m *metrics) retried(way *passage, reason string) {
	namespace, name := labelled(way)
	m.retries.WithLabelValues(namespace, name, reason).Inc()
}

// forget removes every series of a target that is gone.
func (m *metrics) forget(ref workload.Ref) {
	labels := prometheus.Labels{"namespace": ref.Namespace, "scaled_object": ref.Name}
	for _, v := range []interface {
		DeletePartialMatch(labels prometheus.Labels) int
	}{m.requests, m.retries, m.received, m.sent, m.hold} {
		v.DeletePartialMatch(labels)
	}
}

// gauges are read from the pools whenever somebody asks.
type gauges struct {
	a                                                *Activator
	held, heldBytes, inFlight, ready, memory, scaler *prometheus.Desc
}

func newGauges(a *Activator) *gauges {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("pilotlight_activator_"+name, help, labels, nil)
	}
	return &gauges{
		a:         a,
		held:      desc("held_requests", "Requests that wait for a place.", targetLabels...),
		heldBytes: desc("held_bytes", "Bytes of the requests that wait.", targetLabels...),
		inFlight:  desc("in_flight_requests", "Requests sent on that have not ended.", targetLabels...),
		ready:     desc("ready_pods", "Pods that requests are sent to.", targetLabels...),
		memory:    desc("body_bytes", "Memory that all requests' bodies take."),
		scaler:    desc("scaler_answered_timestamp_seconds", "When the scaler last answered a report, in seconds since 1970; 0 = never."),
	}
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.held, g.heldBytes, g.inFlight, g.ready, g.memory, g.scaler} {
		c <- d
	}
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(c chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, t := range g.a.Targets() {
		gauge(g.held, float64(t.Held), t.Namespace, t.ScaledObject)
		gauge(g.heldBytes, float64(t.HeldBytes), t.Namespace, t.ScaledObject)
		gauge(g.inFlight, float64(t.InFlight), t.Namespace, t.ScaledObject)
		gauge(g.ready, float64(len(t.Pods)), t.Namespace, t.ScaledObject)
	}
	gauge(g.memory, float64(g.a.memory.used.Load()))
	gauge(g.scaler, float64(g.a.reported.Load())/1e9)
}
