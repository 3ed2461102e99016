package scaler

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pilotlight-dev/pilotlight/internal/workload"
	"github.com/pilotlight-dev/pilotlight/scaler/policy"
)

// metrics are written here and never read: decisions rest on values, not on
// gauges.
type metrics struct {
	replicas *prometheus.GaugeVec
	value    *prometheus.GaugeVec
	active   *prometheus.GaugeVec
	known    *prometheus.GaugeVec
	load     *prometheus.GaugeVec
	terms    *prometheus.GaugeVec
	reason   *prometheus.GaugeVec
	pods     *prometheus.GaugeVec
	wrong    *prometheus.GaugeVec
	failure  *prometheus.GaugeVec
	unreads  *prometheus.CounterVec
	seconds  prometheus.Histogram
}

var targetLabels = []string{"namespace", "scaled_object", "trigger"}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "pilotlight_scaler_" + name, Help: help}, append(targetLabels[:3:3], labels...))
	}
	m := &metrics{
		replicas: gauge("wanted_replicas", "Replicas that the policy wants."),
		value:    gauge("metric_value_requests", "Value that the HPA divides by targetRequests."),
		active:   gauge("active", "1 while at least one replica is wanted."),
		known:    gauge("known", "1 while the decision rests on readings, 0 while replicas are frozen for want of any, or there is no decision to serve."),
		load:     gauge("load_requests", "Requests by where they are: running, waiting, held or in_flight.", "where"),
		terms:    gauge("decision_term", "Intermediate numbers of the decision, by name; times in seconds.", "term"),
		reason:   gauge("decision_reason", "1 for the rule that settled the decision.", "reason"),
		pods:     gauge("pods", "Pods by state: ready, starting, unread or failing.", "state"),
		wrong:    gauge("condition", "1 for each thing that is wrong with the target, by the reason of its event.", "reason"),
		failure:  gauge("start_failure", "1 for the reason why no pod gets ready, or none did the last time.", "class"),
		unreads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pilotlight_scaler_unread_total", Help: "Scrapes that told nothing, by reason.",
		}, append(targetLabels[:3:3], "reason")),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "pilotlight_scaler_look_duration_seconds", Help: "Time to read a target's pods and decide.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 8),
		}),
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.replicas, m.value, m.active, m.known, m.load, m.terms, m.reason, m.pods, m.wrong, m.failure, m.unreads, m.seconds} {
		errs = append(errs, r.Register(c))
	}
	return m, errors.Join(errs...)
}

func (m *metrics) sampled(d time.Duration) { m.seconds.Observe(d.Seconds()) }

func (m *metrics) unread(k key, reason string) {
	m.unreads.WithLabelValues(k.Namespace, k.Name, k.hash, reason).Inc()
}

// decided sets what has changed since the outcome before: most targets stand
// still most of the time.
func (m *metrics) decided(k key, before, o *outcome) {
	if before != nil && before.same(o) {
		return
	}
	at := func(v *prometheus.GaugeVec, x float64, labels ...string) {
		v.WithLabelValues(append([]string{k.Namespace, k.Name, k.hash}, labels...)...).Set(x)
	}
	at(m.known, oneIf(o.Known && o.Err == nil && o.Reason != policy.ReasonUnknown))
	m.wrong.DeletePartialMatch(labels(k))
	for _, c := range o.conditions {
		at(m.wrong, 1, c.reason)
	}
	m.failure.DeletePartialMatch(labels(k))
	if o.failure != workload.FailureNone {
		at(m.failure, 1, string(o.failure))
	}
	if before != nil && before.Reason != o.Reason {
		m.reason.DeleteLabelValues(k.Namespace, k.Name, k.hash, string(before.Reason))
	}
	if o.Reason != "" { // also why there is no answer
		at(m.reason, 1, string(o.Reason))
	}
	if !o.Known { // unknown is not zero: no value is better than a wrong one
		for _, v := range []*prometheus.GaugeVec{m.replicas, m.value, m.active, m.load, m.terms} {
			v.DeletePartialMatch(labels(k))
		}
		return
	}
	for term, x := range map[string]float64{
		"load": o.Terms.Load, "arrivals_per_second": o.Terms.Arrivals, "residence_seconds": o.Terms.Residence, "offered": o.Terms.Offered,
		"projected": o.Terms.Projected, "backlog": o.Terms.Backlog, "drain_seconds": o.Terms.Drain, "need": float64(o.Terms.Need),
		"hold_left_seconds": time.Duration(o.Terms.HoldLeft).Seconds(), "lease_left_seconds": time.Duration(o.Terms.LeaseLeft).Seconds(),
		"backoff_left_seconds": time.Duration(o.Terms.BackoffLeft).Seconds(), "stalled": oneIf(o.Terms.Stalled), "expired": float64(o.Terms.Expired),
	} {
		at(m.terms, x, term)
	}
	at(m.replicas, float64(o.Replicas))
	at(m.value, o.Value)
	at(m.active, oneIf(o.Active))
	at(m.load, o.Terms.Running, "running")
	at(m.load, o.Terms.Waiting, "waiting")
	at(m.load, o.Terms.Held, "held")
	at(m.load, o.Terms.InFlight, "in_flight")
	at(m.pods, float64(o.Terms.Ready), "ready")
	at(m.pods, float64(o.Terms.Starting), "starting")
	at(m.pods, float64(o.Terms.Unread), "unread")
	at(m.pods, float64(o.Terms.Failing), "failing")
}

// forget removes every series of a target that is gone.
func (m *metrics) forget(k key) {
	for _, v := range []*prometheus.GaugeVec{m.replicas, m.value, m.active, m.known, m.load, m.terms, m.reason, m.pods, m.wrong, m.failure} {
		v.DeletePartialMatch(labels(k))
	}
	m.unreads.DeletePartialMatch(labels(k))
}

func labels(k key) prometheus.Labels {
	return prometheus.Labels{"namespace": k.Namespace, "scaled_object": k.Name, "trigger": k.hash}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
