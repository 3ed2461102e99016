package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/pilotlight-dev/pilotlight/fetcher"
)

// Defaults of Options' zero values, and times that are not for choosing.
const (
	DefaultPoll = 30 * time.Second

	// NudgeEvery bounds how often nudges make the agent ask, whoever sends them.
	NudgeEvery = 5 * time.Second
	// maxBackoff is the longest wait after failures. A pull that fails after
	// downloading everything (a wrong checksum) is repeated no oftener.
	maxBackoff   = 15 * time.Minute
	lookTimeout  = time.Minute
	collectEvery = 5 * time.Minute
)

// ErrRestart ends Run when OnChange asks for a restart of the pod's containers.
var ErrRestart = errors.New("another version is published: the pod's containers have to start anew")

// Puller asks the pointer and brings what it names.
type Puller interface {
	// Look says what the pointer names now, and touches no object store.
	Look(ctx context.Context) (fetcher.Pointer, error)
	// Pull publishes what the pointer names now.
	Pull(ctx context.Context) (fetcher.Result, error)
}

// Observer is told what concerns the warmth of an engine and of the files that
// it loads. Its methods must not block.
type Observer interface {
	// Published is called with a link to what an engine loads: at the beginning,
	// if something was published before, and after each publication. written says
	// that this process has just written all of its files through the page cache.
	Published(dir string, written bool)
	// EngineDown is called when the engine's port begins to refuse connections,
	// with a link to what an engine would load that starts now, or "".
	EngineDown(dir string)
	// EngineUp is called when the engine is healthy: after a start, or, with
	// started false, because it was before the agent looked for the first time.
	EngineUp(started bool)
}

// Options says what to follow. Ref and Store are required.
type Options struct {
	// Ref is the reference as the status names it.
	Ref   string
	Store *fetcher.Store
	// Puller publishes; nil makes the agent a reader of what others publish.
	Puller Puller
	// Pinned says that a rollout fixed this pod's version: nothing that is
	// published later concerns its engine, and OnChange never acts.
	Pinned bool
	// Prefetcher, in a pinned pod that fetches for itself, looks at the pointer
	// and brings what it names to the disk without publishing it, so that the pod
	// of the next rollout finds it there. nil prefetches nothing.
	Prefetcher Puller
	// Link is the pod's own, nil if it has none, and Reader the pod's name in
	// the root.
	Link   *fetcher.Frozen
	Reader string
	// Collector removes old versions; nil removes none.
	Collector *fetcher.Collector
	// Poll is how often the pointer is asked, within 10 % either way; 0 means
	// DefaultPoll.
	Poll time.Duration
	// MaxFailures ends Run with the last error after so many failures in a
	// row; 0 means never.
	MaxFailures int
	// OnChange acts when another version than the engine's is published.
	OnChange OnChange
	// EngineHealth is the URL of the engine's health check; empty means that
	// nothing is known about the engine.
	EngineHealth string
	// Observer is told of publications and of the engine; nil tells nobody.
	Observer Observer
	// ErrorFile holds {code, reason, ref, at} of the last failure while it
	// lasts; TouchFile is rewritten after each change. Empty means none.
	ErrorFile, TouchFile string
	// Code classes an error for status and ErrorFile; nil makes it always 1.
	Code func(error) int
	// Registerer gets the metrics; nil keeps them to ourselves.
	Registerer prometheus.Registerer
	// Logger is written to; nil discards.
	Logger *slog.Logger
}

func (o Options) withDefaults() (Options, error) {
	switch {
	case o.Store == nil || o.Ref == "":
		return o, fmt.Errorf("%w: no model or no root given", fetcher.ErrUsage)
	case o.Poll < 0 || o.MaxFailures < 0:
		return o, fmt.Errorf("%w: poll every %v, %d failures: neither may be negative", fetcher.ErrUsage, o.Poll, o.MaxFailures)
	}
	if o.EngineHealth != "" {
		u, err := url.Parse(o.EngineHealth)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return o, fmt.Errorf("%w: the engine's health check: want a URL such as http://127.0.0.1:8000/health", fetcher.ErrUsage)
		}
	}
	if o.Poll == 0 {
		o.Poll = DefaultPoll
	}
	if o.Code == nil {
		o.Code = func(error) int { return 1 }
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Pinned {
		o.OnChange = OnChange{}
	}
	return o, o.OnChange.check()
}

func (o Options) removed() float64 {
	if o.Collector == nil {
		return 0
	}
	return float64(o.Collector.Removed())
}

// Agent follows one pointer. Run it once.
type Agent struct {
	opts    Options
	metrics *metrics
	log     *slog.Logger

	nudged chan struct{} // holds one
	sweep  chan struct{} // holds one: time to collect
	hooks  chan event    // holds one, the latest

	// manifests is the loop's alone.
	manifests fetcher.ManifestReader

	mu    sync.Mutex
	known knowledge
}

// New prepares an agent; it does nothing yet. Errors wrap fetcher.ErrUsage.
func New(opts Options) (*Agent, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	a := &Agent{
		opts: opts, log: opts.Logger, manifests: fetcher.ManifestReader{Store: opts.Store},
		nudged: make(chan struct{}, 1), sweep: make(chan struct{}, 1), hooks: make(chan event, 1),
	}
	if a.metrics, err = newMetrics(opts.Registerer, opts.removed, opts.Puller != nil); err != nil {
		return nil, fmt.Errorf("registering the agent's metrics: %w", err)
	}
	return a, nil
}

// Nudge makes the agent ask the pointer soon: at once, or NudgeEvery after it
// asked last. It never blocks; nudges that come together count as one.
func (a *Agent) Nudge() {
	a.metrics.nudges.Inc()
	offer(a.nudged)
}

// offer fills a channel that holds one, unless it is full.
func offer(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run follows the pointer until the context ends (then it returns nil, after
// ending a download under way), OnChange asks for a restart (ErrRestart), or
// MaxFailures is reached.
func (a *Agent) Run(ctx context.Context) error {
	if err := a.recall(ctx); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	if a.opts.Puller != nil {
		group.Go(func() error { return a.follow(ctx) })
	} else {
		group.Go(func() error { return a.watch(ctx) })
	}
	group.Go(func() error { return a.runHooks(ctx) })
	if a.opts.Prefetcher != nil {
		group.Go(func() error { return a.prefetch(ctx) })
	}
	if a.opts.EngineHealth != "" {
		group.Go(func() error { return a.probeEngine(ctx) })
	}
	if a.opts.Link != nil {
		group.Go(func() error { return a.hold(ctx) })
	}
	if a.opts.Collector != nil {
		group.Go(func() error { return a.collect(ctx) })
	}
	return group.Wait() // each names itself
}

// recall takes over what the root has from before: the pod is ready if its
// version is there.
func (a *Agent) recall(ctx context.Context) error {
	m, ok, err := a.current()
	if err != nil || !ok {
		return err
	}
	whole, err := a.opts.Store.Complete(ctx, m)
	if err != nil || !whole {
		return err
	}
	a.learnPublished(m, false)
	return nil
}

// current returns the manifest of the published version; ok is false while
// there is none that can be read.
func (a *Agent) current() (m fetcher.Manifest, ok bool, err error) {
	short, err := a.opts.Store.Current()
	if err != nil || short == "" {
		return fetcher.Manifest{}, false, err
	}
	m, err = a.manifests.Manifest(short)
	return m, err == nil, nil
}

// hold renews the pod's reader file, and sets the pod's link if no init
// container has.
func (a *Agent) hold(ctx context.Context) error {
	failing := false
	for {
		err := a.holdOnce(ctx)
		if err != nil && ctx.Err() == nil && !failing { // once: a volume may be mounted read-only
			a.log.WarnContext(ctx, "could not renew this pod's hold on its version: it stays only as long as retention keeps it", "error", err)
		}
		failing = err != nil
		wait := fetcher.ReaderBeat
		if short, err := a.opts.Link.Version(); err == nil && short == "" {
			wait = time.Second // nothing is published yet
		}
		if !sleep(ctx, wait) {
			return nil
		}
	}
}

func (a *Agent) holdOnce(ctx context.Context) error {
	short, err := a.opts.Link.Version()
	if err != nil {
		return err
	}
	if short != "" {
		return a.opts.Store.Hold(a.opts.Reader, short, a.opts.Link.Path(), fetcher.HoldWithAgent)
	}
	published := a.published()
	if published == nil {
		return nil
	}
	_, err = a.opts.Link.Freeze(ctx, a.opts.Reader, fetcher.Manifest{Digest: published.Digest}.Short(), fetcher.HoldWithAgent)
	return err
}

// collect removes old versions after each change and every few minutes.
func (a *Agent) collect(ctx context.Context) error {
	for {
		timer := time.NewTimer(collectEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-a.sweep:
		case <-timer.C:
		}
		timer.Stop()
		if _, err := a.opts.Collector.Collect(ctx, a.prefetched()...); err != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "could not remove old versions", "error", err)
		}
	}
}

// jitter spreads agents that started together: within 10 % of d either way.
func jitter(d time.Duration) time.Duration {
	tenth := d / 10
	return d - tenth + rand.N(2*tenth+1) //nolint:gosec // jitter needs no secrecy
}

// sleep waits and reports whether the context still lives.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
