package scaler

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pilotlight-dev/pilotlight/internal/trigger"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
	"github.com/pilotlight-dev/pilotlight/warmup/coldstart"
)

// Options configures a Scaler. Workloads, Engines and Demands are required.
type Options struct {
	Workloads Workloads
	Engines   Engines
	Demands   Demands
	Memory    Memory  // default: one that forgets with the process
	Sources   Sources // default: none beside the activators
	Events    Events  // default: none are written
	Costs     Costs   // default: victims of a scale-in are not marked

	Triggers  Triggers  // to find model names that are claimed twice; default: they are not looked for
	NameScope NameScope // default NamesCluster

	Interval   time.Duration         // between samples of a target; default 1 s
	Patience   time.Duration         // how long an RPC may wait for a target's first decision; default 1.5 s
	Resend     time.Duration         // between repeats of `true` on a stream while still at zero; default 10 s
	IdleAfter  time.Duration         // a target nobody asks about ends after this; default 15 min
	Superseded time.Duration         // and after this, or three of its usual pauses, while its ScaledObject is asked about by another trigger; default 2 min
	Scrapes    int                   // concurrent scrapes per target; default 16
	MaxTargets int                   // targets at a time; default 10,000
	PerObject  int                   // targets of one ScaledObject at a time; default 16
	GaugeLag   time.Duration         // how late an engine's gauges may be; default policy.DefaultGaugeLag
	Logger     *slog.Logger          // default: discard
	Registerer prometheus.Registerer // default: none
}

func (o Options) withDefaults() Options {
	if o.Interval <= 0 {
		o.Interval = time.Second
	}
	if o.Patience <= 0 {
		o.Patience = 1500 * time.Millisecond
	}
	if o.Resend <= 0 {
		o.Resend = 10 * time.Second
	}
	if o.IdleAfter <= 0 {
		o.IdleAfter = 15 * time.Minute
	}
	if o.Superseded <= 0 {
		o.Superseded = 2 * time.Minute
	}
	if o.PerObject <= 0 {
		o.PerObject = 16
	}
	if o.Scrapes <= 0 {
		o.Scrapes = 16
	}
	if o.NameScope == "" {
		o.NameScope = NamesCluster
	}
	if o.MaxTargets <= 0 {
		o.MaxTargets = 10_000
	}
	if o.Memory == nil {
		o.Memory = &coldstart.Learner{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	return o
}

// Scaler serves KEDA's ExternalScaler. Close it to end every loop and stream.
type Scaler struct {
	externalscaler.UnimplementedExternalScalerServer

	opts    Options
	metrics *metrics
	stop    context.CancelFunc
	done    <-chan struct{} // closed when the scaler shuts down
	ctx     context.Context //nolint:containedctx // the life of the target loops, which outlive the RPC that starts them
	loops   sync.WaitGroup

	names *names      // nil: not looked for
	costs *costWriter // nil: victims are not marked

	// Nearly everybody only reads, thousands of times a second: with a plain
	// lock each call would wait in line behind loops that were interrupted while
	// they held it.
	mu      sync.RWMutex
	targets map[workload.Ref]map[string]*target // by name and hash of the metadata
	count   int
}

// A key tells targets apart: two triggers of one ScaledObject differ only by
// their metadata.
type key struct {
	workload.Ref
	hash string
}

// memory is the key under which the target is remembered.
func (k key) memory() coldstart.Key {
	return coldstart.Key{Namespace: k.Namespace, Name: k.Name, Trigger: k.hash}
}

// New returns a Scaler that serves until Close. Its error is that of
// registering the metrics.
func New(opts Options) (*Scaler, error) {
	opts = opts.withDefaults()
	m, err := newMetrics(opts.Registerer)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Scaler{opts: opts, metrics: m, stop: stop, done: ctx.Done(), ctx: ctx, targets: map[workload.Ref]map[string]*target{}}
	if opts.Costs != nil {
		s.costs = &costWriter{costs: opts.Costs, log: opts.Logger}
	}
	if opts.Triggers != nil {
		s.names = &names{triggers: opts.Triggers, scope: opts.NameScope, log: opts.Logger}
		s.loops.Go(func() { s.names.run(ctx) })
	}
	return s, nil
}

// Close ends every stream without an error, so that KEDA redials soon, and
// waits for the loops to end.
func (s *Scaler) Close() {
	s.stop()
	s.loops.Wait()
}

// parse reads a trigger of ref and refuses what this scaler has no source for.
// Its error is a *trigger.Faults.
func (s *Scaler) parse(ref workload.Ref, metadata map[string]string) (trigger.Trigger, error) {
	t, err := trigger.Parse(metadata)
	if err != nil || !fromSource(t) {
		return t, err
	}
	var faults []trigger.Fault
	if s.opts.Sources == nil {
		faults = []trigger.Fault{{Key: "demandFrom", Problem: fmt.Sprintf("%q is not a demand source of this scaler: it has %s and %s",
			t.DemandFrom, trigger.DemandActivator, trigger.DemandNone)}}
	} else {
		faults = s.opts.Sources.Check(ref, t)
	}
	if len(faults) > 0 {
		return t, &trigger.Faults{List: faults}
	}
	return t, nil
}

// fromSource reports whether t names a demand source of the operator's file.
func fromSource(t trigger.Trigger) bool {
	return t.DemandFrom != trigger.DemandActivator && t.DemandFrom != trigger.DemandNone
}
