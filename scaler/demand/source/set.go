package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pilotlight-dev/pilotlight/internal/trigger"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
	"github.com/pilotlight-dev/pilotlight/scaler/policy"
)

// Options configures a Set. The zero value works.
type Options struct {
	Logger     *slog.Logger          // default: discard
	Registerer prometheus.Registerer // default: none
}

// Set is the sources of one file. Run polls them.
type Set struct {
	pollers map[string]*poller
}

// New prepares the sources; entries are those of Parse. It fails, with
// ErrConfig, when a token or CA file cannot be read.
func New(entries []Entry, opts Options) (*Set, error) {
	return newSet(entries, opts, net.DefaultResolver)
}

func newSet(entries []Entry, opts Options, r resolver) (*Set, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Registerer == nil {
		opts.Registerer = prometheus.NewRegistry()
	}
	m, err := newSourceMetrics(opts.Registerer)
	if err != nil {
		return nil, err
	}
	s := &Set{pollers: map[string]*poller{}}
	var faults []error
	for _, e := range entries {
		f, err := newFetcher(e, r)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		s.pollers[e.Name] = &poller{
			entry: e, fetch: f, log: opts.Logger, metrics: m,
			begun: make(chan struct{}, 1), watches: map[question]*watch{},
		}
	}
	return s, errors.Join(faults...)
}

// Run polls every source that somebody asks, until ctx ends.
func (s *Set) Run(ctx context.Context) {
	var group sync.WaitGroup
	for _, p := range s.pollers {
		group.Go(func() { p.run(ctx) })
	}
	group.Wait()
}

// Names lists the sources, sorted.
func (s *Set) Names() []string {
	var out []string
	for name := range s.pollers {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// Check says, by key, why a trigger of ref cannot use the source that it
// names; nil if it can. It asks nobody.
func (s *Set) Check(ref workload.Ref, t trigger.Trigger) []trigger.Fault {
	fault := func(format string, args ...any) []trigger.Fault {
		return []trigger.Fault{{Key: "demandFrom", Problem: fmt.Sprintf(format, args...)}}
	}
	p := s.pollers[t.DemandFrom]
	if p == nil {
		known := append([]string{trigger.DemandActivator, trigger.DemandNone}, s.Names()...)
		return fault("%q is not a demand source of this scaler: it has %s", t.DemandFrom, strings.Join(known, ", "))
	}
	if !p.entry.allows(ref.Namespace) {
		return fault("demand source %s is not for namespace %s: the scaler's operator has to list it", p.entry.Name, ref.Namespace)
	}
	_, faults := p.entry.ask(ref, t)
	return faults
}

// Open returns what the source shows of ref. The trigger has passed Check. It
// is polled while a Wake is under way.
func (s *Set) Open(ref workload.Ref, t trigger.Trigger) *View {
	p := s.pollers[t.DemandFrom]
	q, _ := p.entry.ask(ref, t) // checked before
	return &View{poller: p, question: q}
}

// View is one target's view of a source.
type View struct {
	poller   *poller
	question question
}

// Wake asks the source, until stop is called, and signals on c when requests
// come where there were none. The signal is dropped while c is full.
func (v *View) Wake(_ workload.Ref, c chan<- struct{}) (stop func()) {
	v.poller.join(v.question, c)
	return func() { v.poller.leave(v.question, c) }
}

// Since returns what waits, by the last poll. A zero moment says that there is
// no Ready pod: then all that a source counts without telling waiting from
// running waits, else none of it does. It waits for the first poll only, a
// second at most.
func (v *View) Since(ctx context.Context, _ workload.Ref, moment time.Time) policy.Demand {
	w := v.watch()
	if w == nil {
		return policy.Demand{}
	}
	timer := time.NewTimer(min(time.Duration(v.poller.entry.Timeout), time.Second))
	defer timer.Stop()
	select {
	case <-w.first:
	case <-timer.C:
	case <-ctx.Done():
	}
	p := v.poller
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.at.IsZero() || time.Since(w.at) > p.entry.Stale() {
		return policy.Demand{}
	}
	d := policy.Demand{Known: true}
	switch sees := p.entry.Sees(); {
	case sees == SeesHeld, sees == SeesAll && moment.IsZero():
		d.Held = w.number
	case sees == SeesAll:
		d.InFlight = w.number
	}
	return d
}

// Traffic counts arrivals, where the source does. It knows of no completion.
func (v *View) Traffic(workload.Ref) policy.Traffic {
	w := v.watch()
	if w == nil {
		return policy.Traffic{}
	}
	v.poller.mu.Lock()
	defer v.poller.mu.Unlock()
	return policy.Traffic{Known: w.counter.known, Arrivals: w.counter.total}
}

// Says tells what the source cannot see and, while it is unknown, why. It names
// no address: tenants read it in their events.
func (v *View) Says() (blind, problem string) {
	blind = v.poller.entry.Blind()
	if w := v.watch(); w != nil {
		v.poller.mu.Lock()
		defer v.poller.mu.Unlock()
		var f *failure
		if errors.As(w.err, &f) {
			problem = f.text
		}
	}
	return blind, problem
}

func (v *View) watch() *watch {
	v.poller.mu.Lock()
	defer v.poller.mu.Unlock()
	return v.poller.watches[v.question]
}

// sourceMetrics are those of all sources.
type sourceMetrics struct {
	success *prometheus.GaugeVec
	errors  *prometheus.CounterVec
}

func newSourceMetrics(r prometheus.Registerer) (*sourceMetrics, error) {
	m := &sourceMetrics{
		success: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pilotlight_demand_source_last_success_timestamp_seconds", Help: "When every question to the demand source was last answered, Unix seconds.",
		}, []string{"source"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pilotlight_demand_source_errors_total", Help: "Polls of the demand source that left something unknown, by reason.",
		}, []string{"source", "reason"}),
	}
	return m, errors.Join(r.Register(m.success), r.Register(m.errors))
}

func (m *sourceMetrics) polled(source string, err error, now time.Time) {
	if err != nil {
		m.errors.WithLabelValues(source, reason(err)).Inc()
		return
	}
	m.success.WithLabelValues(source).Set(float64(now.UnixMilli()) / 1000)
}
