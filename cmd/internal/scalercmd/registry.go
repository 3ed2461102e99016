package scalercmd

import "github.com/prometheus/client_golang/prometheus"

// A registry keeps each collector apart, so that they can be asked one after the
// other. A prometheus.Registry asks all of its collectors at once: with thousands
// of targets a dozen goroutines that compute then stand before every call of
// KEDA, for a fifth of a second at each scrape.
type registry struct {
	// Registerer refuses what is there already; nothing is gathered from it.
	prometheus.Registerer
	// parts are gathered in order.
	parts prometheus.Gatherers
}

func newRegistry() *registry { return &registry{Registerer: prometheus.NewRegistry()} }

// Register implements prometheus.Registerer. It is not for concurrent use.
func (r *registry) Register(c prometheus.Collector) error {
	if err := r.Registerer.Register(c); err != nil {
		return err
	}
	one := prometheus.NewRegistry()
	r.parts = append(r.parts, one)
	return one.Register(c)
}

// MustRegister implements prometheus.Registerer.
func (r *registry) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

// Unregister implements prometheus.Registerer: nothing is ever taken out.
func (r *registry) Unregister(prometheus.Collector) bool { return false }
