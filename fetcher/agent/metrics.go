package agent

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are written here and never read.
type metrics struct {
	polls     *prometheus.CounterVec
	nudges    prometheus.Counter
	ok        prometheus.Gauge
	failures  prometheus.Gauge
	published *prometheus.GaugeVec
	at        prometheus.Gauge
	engine    *prometheus.GaugeVec
	hooks     *prometheus.CounterVec

	prefetches *prometheus.CounterVec

	pulls   *prometheus.CounterVec
	bytes   prometheus.Counter
	retries prometheus.Counter
	seconds prometheus.Histogram
}

// newMetrics registers the metrics; removed says how many versions have been
// collected. An agent that asks no pointer has no gauge that calls it good or bad.
func newMetrics(r prometheus.Registerer, removed func() float64, asks bool) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "pilotlight_" + name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "pilotlight_" + name, Help: help})
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pilotlight_" + name, Help: help}, labels)
	}
	gauges := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "pilotlight_" + name, Help: help}, labels)
	}
	m := &metrics{
		polls:      counters("agent_polls_total", "Times the pointer was asked, by what came of it: unchanged, changed or failed.", "result"),
		nudges:     counter("agent_nudges_total", "Nudges received."),
		ok:         gauge("agent_pointer_ok", "1 while the pointer answers and what it names is published or coming, else 0."),
		failures:   gauge("agent_consecutive_failures", "Failures in a row."),
		published:  gauges("agent_published_info", "1 for the version that is published.", "ref", "digest", "version"),
		at:         gauge("agent_published_timestamp_seconds", "When that version was published, in Unix seconds."),
		engine:     gauges("agent_engine_state", "1 for the state that the engine is in: ready, loading or unknown.", "state"),
		hooks:      counters("agent_hooks_total", "Actions on a change, by action and result.", "action", "result"),
		prefetches: counters("agent_prefetches_total", "Times a pinned agent looked whether the disk has what the pointer names, by result: ok or failed.", "result"),

		pulls:   counters("fetcher_runs_total", "Runs to bring a version, by result: fetched, reused, failed or dropped.", "result"),
		bytes:   counter("fetcher_downloaded_bytes_total", "Bytes downloaded, without attempts that failed."),
		retries: counter("fetcher_retries_total", "Requests that were repeated."),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "pilotlight_fetcher_run_duration_seconds", Help: "Time to bring a version, from listing to publication.",
			Buckets: prometheus.ExponentialBuckets(0.05, 3, 10), // to 16 minutes
		}),
	}
	var errs []error
	if asks {
		errs = append(errs, r.Register(m.ok))
	}
	for _, c := range []prometheus.Collector{
		m.polls, m.nudges, m.failures, m.prefetches, m.published, m.at, m.engine, m.hooks,
		m.pulls, m.bytes, m.retries, m.seconds,
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "pilotlight_fetcher_collected_versions_total", Help: "Old versions removed."}, removed),
	} {
		errs = append(errs, r.Register(c))
	}
	return m, errors.Join(errs...)
}

func (m *metrics) setOK(ok bool) {
	m.ok.Set(map[bool]float64{true: 1}[ok])
}

func (m *metrics) publishedNow(ref string, p *Published) {
	m.published.Reset()
	m.published.WithLabelValues(ref, shortOf(p.Digest), p.Version).Set(1)
	m.at.Set(float64(p.At.UnixMilli()) / 1e3)
}

func (m *metrics) engineNow(state EngineState) {
	for _, s := range []EngineState{EngineReady, EngineLoading, EngineUnknown} {
		m.engine.WithLabelValues(string(s)).Set(map[bool]float64{true: 1}[s == state])
	}
}

func (m *metrics) pulled(job *pull) {
	result := "fetched"
	switch {
	case job.err != nil && job.dropped:
		result = "dropped"
	case job.err != nil:
		result = "failed"
	case job.result.Reused:
		result = "reused"
	}
	m.pulls.WithLabelValues(result).Inc()
	m.bytes.Add(float64(job.result.Downloaded))
	m.retries.Add(float64(job.result.Retries))
	m.seconds.Observe(time.Since(job.began).Seconds())
}
