package prime

import (
	"errors"
	"math"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are written here and never read.
type metrics struct {
	ready    prometheus.Gauge
	size     prometheus.Gauge
	resident prometheus.Gauge
	read     prometheus.Counter
	caches   *prometheus.CounterVec
	cache    prometheus.Histogram
	engines  *prometheus.CounterVec
	requests *prometheus.CounterVec
	engine   prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "pilotlight_prime_" + name, Help: help})
	}
	counters := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pilotlight_prime_" + name, Help: help}, []string{"result"})
	}
	seconds := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "pilotlight_prime_" + name, Help: help,
			Buckets: prometheus.ExponentialBuckets(0.1, 3, 9), // to 11 minutes
		})
	}
	m := &metrics{
		ready:    gauge("engine_ready", "1 while the engine runs and was warmed up, or was tried to be, else 0."),
		size:     gauge("cache_size_bytes", "Size of the version that was warmed last; NaN before."),
		resident: gauge("cache_resident_bytes", "How much of it the page cache had then; NaN where that cannot be told."),
		read:     prometheus.NewCounter(prometheus.CounterOpts{Name: "pilotlight_prime_cache_read_bytes_total", Help: "Bytes read into the page cache."}),
		caches:   counters("cache_runs_total", "Folders warmed, by result: warm, or why not all was read: memory, cancelled or error."),
		cache:    seconds("cache_seconds", "Time to warm a folder."),
		engines:  counters("engine_runs_total", "Engines warmed up, by result: ok or failed."),
		requests: counters("engine_requests_total", "Requests sent to warm engines up, by result: ok or failed."),
		engine:   seconds("engine_seconds", "Time that warm-up requests took, without the wait for the engine."),
	}
	m.size.Set(math.NaN())
	m.resident.Set(math.NaN())
	var errs []error
	for _, c := range []prometheus.Collector{m.ready, m.size, m.resident, m.read, m.caches, m.cache, m.engines, m.requests, m.engine} {
		errs = append(errs, r.Register(c))
	}
	return m, errors.Join(errs...)
}

func (m *metrics) open(ready bool) { m.ready.Set(map[bool]float64{true: 1}[ready]) }

func (m *metrics) cached(r CacheReport) {
	result := r.Stopped
	if result == "" {
		result = "warm"
	}
	m.caches.WithLabelValues(result).Inc()
	m.cache.Observe(r.Took.Seconds())
	m.read.Add(float64(r.Read))
	m.size.Set(float64(r.Size))
	m.resident.Set(float64(r.After))
	if r.After < 0 {
		m.resident.Set(math.NaN())
	}
}

func (m *metrics) warmed(r EngineReport) {
	result := "ok"
	if r.Failed > 0 || !r.Healthy {
		result = "failed"
	}
	m.engines.WithLabelValues(result).Inc()
	m.requests.WithLabelValues("ok").Add(float64(max(r.Requests-r.Failed, 0)))
	m.requests.WithLabelValues("failed").Add(float64(r.Failed))
	m.engine.Observe((r.Short + r.Long + r.Burst).Seconds())
}
