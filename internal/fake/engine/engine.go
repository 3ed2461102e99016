package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// keepAlive is vLLM's VLLM_HTTP_TIMEOUT_KEEP_ALIVE.
	keepAlive = 5 * time.Second
	// lastWords is how long aborted requests may take to send their last bytes.
	lastWords = 2 * time.Second
)

// Engine is one simulated engine. New makes it; Run gives it a whole life, or
// Load and Handler put it behind a server of the caller's.
type Engine struct {
	config  Config
	slots   *slots
	metrics *metrics
	ready   chan struct{}
	nextID  atomic.Uint64

	// aborted is closed, once, when whatever still runs must stop.
	aborted   chan struct{}
	abortOnce sync.Once

	mu       sync.Mutex
	model    Model
	loaded   bool
	addr     string
	inFlight int
	draining bool
	idle     chan struct{} // closed when draining and nothing is in flight
}

// New makes an engine that has not started.
func New(c Config) *Engine {
	c = c.withDefaults()
	e := &Engine{
		config:  c,
		slots:   &slots{free: c.Slots, lag: c.GaugeLag},
		ready:   make(chan struct{}),
		idle:    make(chan struct{}),
		aborted: make(chan struct{}),
		loaded:  c.ModelDir == "",
	}
	e.metrics = newMetrics(c.Model, c.Slots, e.slots.load)
	return e
}

// Load does what comes before listening: it reads the model and lets the start
// delay pass. Afterwards Handler serves. Errors: those of ReadModel,
// ErrStartFailed, and the context's.
func (e *Engine) Load(ctx context.Context) error {
	c := e.config
	delay := c.StartDelay + time.Duration(c.Rand()*float64(c.StartJitter))
	begin := time.Now()
	pace := func(ctx context.Context, done, all int) error {
		part := time.Duration(float64(delay) * float64(done) / float64(all))
		return sleep(ctx, nil, time.Until(begin.Add(part)))
	}
	c.Logger.InfoContext(ctx, "engine starting", "model", c.Model, "dir", c.ModelDir, "delay", delay)
	var m Model
	var err error
	if c.ModelDir == "" {
		err = pace(ctx, 1, 1)
	} else {
		m, err = readModel(ctx, c.ModelDir, pace)
	}
	switch {
	case err != nil:
		return fmt.Errorf("starting engine: %w", err)
	case c.FailStart:
		return ErrStartFailed
	case c.HangStart:
		<-ctx.Done()
		return fmt.Errorf("starting engine: %w", ctx.Err())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.model, e.loaded = m, true
	return nil
}

// Run gives the engine its whole life: it loads, listens on addr (host:port,
// port 0 for any), serves, and drains when ctx ends. It returns nil when ctx
// ended it, whenever that was, and otherwise why the engine could not start or
// go on. Call it once.
func (e *Engine) Run(ctx context.Context, addr string) error {
	defer e.abort()
	if err := e.Load(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("listening on %s: %w", addr, err)
	}
	e.mu.Lock()
	e.addr = l.Addr().String()
	e.mu.Unlock()
	close(e.ready)
	e.config.Logger.InfoContext(ctx, "engine ready", "address", e.Addr(), "version", e.LoadedVersion(), "digest", e.LoadedDigest())

	srv := &http.Server{Handler: e.Handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: keepAlive}
	served := make(chan struct{})
	var serveErr error // set when served is closed
	go func() {
		defer close(served)
		serveErr = srv.Serve(l)
	}()

	var exit <-chan time.Time
	if e.config.ExitAfter > 0 {
		t := time.NewTimer(e.config.ExitAfter)
		defer t.Stop()
		exit = t.C
	}
	select {
	case <-served:
		return fmt.Errorf("serving on %s: %w", e.Addr(), serveErr)
	case <-exit:
		err := srv.Close()
		<-served
		return errors.Join(ErrExited, err)
	case <-ctx.Done():
		err := e.stop(context.WithoutCancel(ctx), srv)
		<-served
		return err
	}
}

// stop drains, aborts what is left, and closes the server.
func (e *Engine) stop(ctx context.Context, srv *http.Server) error {
	e.config.Logger.InfoContext(ctx, "engine stopping", "timeout", e.config.ShutdownTimeout)
	e.Drain(ctx)
	ctx, cancel := context.WithTimeout(ctx, lastWords)
	defer cancel()
	if err := srv.Shutdown(ctx); err != nil {
		if err := srv.Close(); err != nil {
			return fmt.Errorf("closing engine: %w", err)
		}
	}
	return nil
}

// Drain is what vLLM does on SIGTERM: from now on new requests are answered
// with finish_reason "abort"; what runs may go on for ShutdownTimeout (or until
// ctx ends) and is then aborted. Drain returns when nothing is left running or
// the abort was given; it cannot be undone.
func (e *Engine) Drain(ctx context.Context) {
	e.mu.Lock()
	if !e.draining {
		e.draining = true
		if e.inFlight == 0 {
			close(e.idle)
		}
	}
	e.mu.Unlock()
	defer e.abort()
	if e.config.ShutdownTimeout <= 0 {
		return
	}
	t := time.NewTimer(e.config.ShutdownTimeout)
	defer t.Stop()
	select {
	case <-e.idle:
	case <-t.C:
	case <-ctx.Done():
	}
}

// Ready is closed when Run listens.
func (e *Engine) Ready() <-chan struct{} { return e.ready }

// Addr is where Run listens, host:port; "" before it is ready.
func (e *Engine) Addr() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.addr
}

// LoadedVersion is the version the weights name; "" before the load and when
// they name none.
func (e *Engine) LoadedVersion() string { return e.loadedModel().Version }

// LoadedDigest is Model.Digest of what was loaded; "" before the load and
// without a ModelDir.
func (e *Engine) LoadedDigest() string { return e.loadedModel().Digest }

func (e *Engine) loadedModel() Model {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.model
}

func (e *Engine) abort() { e.abortOnce.Do(func() { close(e.aborted) }) }

// enter counts a request in; false means that the engine is draining.
func (e *Engine) enter() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.draining {
		e.inFlight++
	}
	return !e.draining
}

func (e *Engine) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inFlight--
	if e.draining && e.inFlight == 0 {
		close(e.idle)
	}
}
