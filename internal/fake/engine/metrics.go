package engine

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are vLLM's, as far as this engine has anything to say; names, labels
// and the pre-created reasons are the real ones.
type metrics struct {
	registry  *prometheus.Registry
	prompt    prometheus.Counter
	generated prometheus.Counter
	success   *prometheus.CounterVec

	firstToken prometheus.Observer
	latency    prometheus.Observer
	queue      prometheus.Observer
	inference  prometheus.Observer
}

func newMetrics(model string, slots int, load func() (running, waiting int)) *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	auto := promauto.With(m.registry)
	labels := prometheus.Labels{"model_name": model, "engine": "0"}
	gauge := func(name, help string, value func() float64) {
		auto.NewGaugeFunc(prometheus.GaugeOpts{Name: "vllm:" + name, Help: help, ConstLabels: labels}, value)
	}
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: "vllm:" + name, Help: help, ConstLabels: labels})
	}
	histogram := func(name, help string) prometheus.Histogram {
		return auto.NewHistogram(prometheus.HistogramOpts{
			Name: "vllm:" + name, Help: help, ConstLabels: labels,
			Buckets: []float64{0.01, 0.05, 0.1, 0.3, 0.5, 1, 2, 5, 10, 30, 60, 120, 300},
		})
	}
	gauge("num_requests_running", "Number of requests in model execution batches.", func() float64 {
		running, _ := load()
		return float64(running)
	})
	gauge("num_requests_waiting", "Number of requests waiting to be processed.", func() float64 {
		_, waiting := load()
		return float64(waiting)
	})
	gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", func() float64 {
		running, _ := load()
		return float64(running) / float64(slots)
	})
	m.prompt = counter("prompt_tokens_total", "Number of prefill tokens processed.")
	m.generated = counter("generation_tokens_total", "Number of generation tokens processed.")
	m.success = auto.NewCounterVec(prometheus.CounterOpts{
		Name: "vllm:request_success_total", Help: "Count of successfully processed requests.", ConstLabels: labels,
	}, []string{"finished_reason"})
	for _, reason := range []string{"stop", finishLength, finishAbort, "error", "repetition"} {
		m.success.WithLabelValues(reason)
	}
	m.firstToken = histogram("time_to_first_token_seconds", "Histogram of time to first token in seconds.")
	m.latency = histogram("e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.")
	m.queue = histogram("request_queue_time_seconds", "Histogram of time spent in WAITING phase for request.")
	m.inference = histogram("request_inference_time_seconds", "Histogram of time spent in RUNNING phase for request.")
	auto.NewGauge(prometheus.GaugeOpts{
		Name: "process_start_time_seconds", Help: "Start time of the process since unix epoch in seconds.",
	}).Set(float64(time.Now().UnixMilli()) / 1000)
	return m
}

// finished records a request that ended by itself or was aborted by the engine.
func (m *metrics) finished(reason string, arrived, started time.Time) {
	now := time.Now()
	m.success.WithLabelValues(reason).Inc()
	m.latency.Observe(now.Sub(arrived).Seconds())
	m.queue.Observe(started.Sub(arrived).Seconds())
	m.inference.Observe(now.Sub(started).Seconds())
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
