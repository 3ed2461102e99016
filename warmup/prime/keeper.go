package prime

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

// warmFor is how long a folder that was warmed, or written through the page
// cache, is not looked at again.
const warmFor = 5 * time.Minute

// KeeperOptions says what a Keeper warms.
type KeeperOptions struct {
	// Cache warms a folder, as Cache.Warm does; nil warms none.
	Cache func(ctx context.Context, dir string) (CacheReport, error)
	// Engine warms the engine up, as Engine.Warm does; nil sends it nothing.
	Engine func(ctx context.Context) (EngineReport, error)
	// Registerer gets the metrics; nil keeps them to ourselves.
	Registerer prometheus.Registerer
	Logger     *slog.Logger // nil discards
}

// Keeper warms as things happen, and answers the engine's readiness probe. It is
// told by [Keeper.Published], [Keeper.EngineDown] and [Keeper.EngineUp], none of
// which blocks; the work is done in Run. What is told before Run is not lost.
type Keeper struct {
	opts    KeeperOptions
	metrics *metrics
	folders chan folder // holds one, the latest
	starts  chan start  // holds one, the latest

	mu      sync.Mutex
	status  Status
	changes int // of the engine's state, seen so far
}

// start is an engine to warm up, or that has gone.
type start struct {
	up     bool
	change int // that told so
}

// Status is what the readiness probe's answer says.
type Status struct {
	Ready  bool          `json:"ready"`
	Cache  *CacheReport  `json:"cache"`  // the last; null before
	Engine *EngineReport `json:"engine"` // of this start; null before
}

// folder is a version to warm.
type folder struct {
	dir     string
	written bool
}

// NewKeeper prepares a keeper; it does nothing yet. The only error is that the
// metrics cannot be registered.
func NewKeeper(opts KeeperOptions) (*Keeper, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Registerer == nil {
		opts.Registerer = prometheus.NewRegistry()
	}
	k := &Keeper{opts: opts, folders: make(chan folder, 1), starts: make(chan start, 1)}
	var err error
	if k.metrics, err = newMetrics(opts.Registerer); err != nil {
		return nil, fmt.Errorf("registering the metrics of warming: %w", err)
	}
	return k, nil
}

// Published says which folder, or link to one, the engine loads that starts
// next. written says that its files were just written through the page cache:
// then they are warm already.
func (k *Keeper) Published(dir string, written bool) { latest(k.folders, folder{dir, written}) }

// EngineDown says that no engine listens, and what one would load that starts
// now ("" if that is not known). It shuts the gate.
func (k *Keeper) EngineDown(dir string) {
	k.changed(false)
	if dir != "" {
		latest(k.folders, folder{dir, false})
	}
}

// EngineUp says that the engine is healthy. One that was so before anybody
// looked (started is false) serves already, and is left alone.
func (k *Keeper) EngineUp(started bool) {
	if !started {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.status.Ready = true
		k.metrics.open(true)
		return
	}
	k.changed(true)
}

// changed shuts the gate and has the engine warmed up, if it is up.
func (k *Keeper) changed(up bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.changes++
	k.status.Ready, k.status.Engine = false, nil
	k.metrics.open(false)
	latest(k.starts, start{up, k.changes})
}

// latest puts v into a channel that holds one, in place of what is there.
func latest[T any](c chan T, v T) {
	for {
		select {
		case c <- v:
			return
		default:
		}
		select {
		case <-c:
		default:
		}
	}
}

// Status returns what is known now.
func (k *Keeper) Status() Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.status
}

// ServeHTTP answers a readiness probe: 200 once the engine that runs now was
// warmed up, or was tried to be; 503 before. The body is Status.
func (k *Keeper) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	status := k.Status()
	body, err := json.Marshal(status)
	if err != nil {
		http.Error(w, "encoding the status failed", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if !status.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = w.Write(append(body, '\n')) // the prober has gone if this fails
}

// Run warms until the context ends; then it returns nil, after ending what was
// under way. What fails is reported, and ends nothing.
func (k *Keeper) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { k.runCache(ctx); return nil })
	group.Go(func() error { k.runEngine(ctx); return nil })
	return group.Wait()
}

// task is work under way; the zero value is none.
type task struct {
	dir  string
	stop context.CancelFunc
	over chan struct{}
}

func begin(ctx context.Context, dir string, work func(context.Context)) task {
	ctx, stop := context.WithCancel(ctx)
	t := task{dir, stop, make(chan struct{})}
	go func() {
		defer close(t.over)
		defer stop()
		work(ctx)
	}()
	return t
}

// end ends the work and waits for it.
func (t *task) end() {
	if t.over != nil {
		t.stop()
		<-t.over
	}
	*t = task{}
}

// runCache warms the latest folder; one that is named meanwhile takes its place.
func (k *Keeper) runCache(ctx context.Context) {
	var work, last task
	var warm time.Time // when last's folder was warm
	defer work.end()
	for {
		select {
		case <-ctx.Done():
			return
		case <-work.over:
			last, warm, work = work, time.Now(), task{}
		case f := <-k.folders:
			dir, err := filepath.EvalSymlinks(f.dir)
			switch {
			case k.opts.Cache == nil:
			case err != nil:
				k.opts.Logger.WarnContext(ctx, "could not warm the page cache", "error", err)
			case dir == work.dir, dir == last.dir && time.Since(warm) < warmFor:
			case f.written:
				work.end()
				last, warm = task{dir: dir}, time.Now()
			default:
				work.end()
				work = begin(ctx, dir, func(ctx context.Context) { k.warmCache(ctx, dir) })
			}
		}
	}
}

func (k *Keeper) warmCache(ctx context.Context, dir string) {
	report, err := k.opts.Cache(ctx, dir)
	k.metrics.cached(report)
	k.mu.Lock()
	k.status.Cache = &report
	k.mu.Unlock()
	args := []any{
		"dir", dir, "files", report.Files, "size", report.Size, "before", report.Before, "after", report.After,
		"read", report.Read, "stopped", report.Stopped, "took", report.Took.String(),
	}
	if err != nil { // a cold cache is slow, not broken
		k.opts.Logger.WarnContext(ctx, "could not warm the page cache", append(args, "error", err)...)
		return
	}
	k.opts.Logger.InfoContext(ctx, "the page cache was warmed", args...)
}

// runEngine warms each engine that starts.
func (k *Keeper) runEngine(ctx context.Context) {
	var work task
	defer work.end()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-k.starts:
			work.end()
			if now.up {
				work = begin(ctx, "", func(ctx context.Context) { k.warmEngine(ctx, now.change) })
			}
		}
	}
}

// warmEngine opens the gate when the engine was warmed up, unless its state has
// changed since. Its end by ctx means that the engine has gone, or that we go.
func (k *Keeper) warmEngine(ctx context.Context, change int) {
	report := EngineReport{Healthy: true}
	var err error
	if k.opts.Engine != nil {
		report, err = k.opts.Engine(ctx)
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil && report.Problem == "" {
		report.Problem = err.Error()
	}
	k.metrics.warmed(report)
	level := slog.LevelInfo
	if report.Problem != "" {
		level = slog.LevelWarn
	}
	k.opts.Logger.Log(ctx, level, "the engine was warmed up", "requests", report.Requests, "failed", report.Failed, "problem", report.Problem,
		"waited", report.Waited.String(), "short", report.Short.String(), "long", report.Long.String(), "burst", report.Burst.String())
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.changes == change {
		k.status.Ready, k.status.Engine = true, &report
		k.metrics.open(true)
	}
}
