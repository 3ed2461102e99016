// Package activatorcmd is the program pilotlight-activator without its
// process: flags, wiring and exit codes. It lives apart from main so that
// tests and the demo run the same code.
package activatorcmd

import (
	"context"
	"errors"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/cmd/internal/clusterflags"
	"github.com/pilotlight-dev/pilotlight/internal/tlsconf"
	"github.com/pilotlight-dev/pilotlight/warmup/activator"
)

const long = `Proxy for the OpenAI API in front of engines that scale to zero.

It holds requests while no replica is ready, tells the scaler about them on
--scaler, and sends them on when one is. Targets are the ScaledObjects with a
Pilotlight trigger, or those of --static-targets.

Exit codes: 0 stopped by a signal, 1 unexpected, 2 a flag or file is wrong, or
a port is in use.`

// Main runs the program and returns its exit code.
func Main(ctx context.Context, env cli.Env) int {
	var f flags
	cmd := command(&f)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), f, env) }
	return cli.Run(ctx, cmd, env)
}

func command(f *flags) *cobra.Command {
	cmd := &cobra.Command{Use: "pilotlight-activator", Short: "Proxy that holds requests while a model is asleep", Long: long, Args: cli.NoArgs}
	f.add(cmd)
	return cmd
}

func run(ctx context.Context, f flags, env cli.Env) error {
	log, err := f.log.Logger(env.Stderr)
	if err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	source, err := f.open(ctx, env, log)
	if err != nil {
		return err
	}
	limit := activator.MemoryLimit(f.opts.MaxTotal)
	if env.Getenv("GOGC") == "" {
		debug.SetGCPercent(activator.GCPercent)
		defer runtime.KeepAlive(make([]byte, activator.Ballast))
		limit += activator.Ballast
	}
	if env.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
	registry := prometheus.NewRegistry()
	f.opts.Logger, f.opts.Registerer = log, registry
	a, err := activator.New(f.opts)
	if err != nil {
		return err
	}
	for _, c := range []prometheus.Collector{collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		if err := registry.Register(c); err != nil {
			return err
		}
	}
	p := &program{flags: f, activator: a, registry: registry, source: source}
	if err := p.open(ctx); err != nil {
		return err
	}
	defer func() { _ = p.conn.Close() }()
	log.Info("serving", "clients", p.clients.Addr().String(), "probes", p.probes.Addr().String(), "scaler", f.scaler)
	err = p.serve(ctx)
	log.Info("stopped")
	return err
}

// program is the running activator with its servers.
type program struct {
	flags
	activator       *activator.Activator
	registry        *prometheus.Registry
	source          clusterflags.Source
	server          *http.Server
	clients, probes net.Listener
	conn            *grpc.ClientConn
}

// How soon the scaler is dialled again, and how a connection that swallows
// everything is found out. It answers every second, so pings are rare.
var (
	redial = grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
		MinConnectTimeout: 2 * time.Second,
	})
	keepAlive = grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 3 * time.Second})
)

func (p *program) open(ctx context.Context) (err error) {
	p.server = p.activator.Server(ctx)
	if p.listenTLS.Cert != "" {
		if p.server.TLSConfig, err = tlsconf.Server(p.listenTLS); err != nil {
			return err
		}
	}
	creds, err := p.scalerCredentials()
	if err != nil {
		return err
	}
	if p.clients, err = cli.Listen(ctx, "--listen", p.listen); err != nil {
		return err
	}
	if p.probes, err = cli.Listen(ctx, "--http-listen", p.httpListen); err != nil {
		return err
	}
	if p.conn, err = grpc.NewClient(p.scaler, grpc.WithTransportCredentials(creds), redial, keepAlive); err != nil {
		return cli.Usage("--scaler %s: %w", p.scaler, err)
	}
	return nil
}

func (p *program) serve(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	serving, served := context.WithCancel(context.WithoutCancel(ctx)) // targets and reports outlive the last request
	defer served()
	group.Go(func() error { p.activator.Run(serving); return nil })
	group.Go(func() error { p.activator.Tidy(serving, runtime.GC); return nil })
	group.Go(func() error {
		activator.Reporter{ID: p.id, Conn: p.conn, Logger: p.opts.Logger}.Run(serving, p.activator)
		return nil
	})
	group.Go(func() error { return cli.ServeHTTP(serving, p.probes, p.handler(ctx), 0) })
	group.Go(func() error {
		var err error
		if p.server.TLSConfig != nil {
			err = p.server.ServeTLS(p.clients, "", "")
		} else {
			err = p.server.Serve(p.clients)
		}
		if errors.Is(err, http.ErrServerClosed) {
			return nil
		}
		return err
	})
	group.Go(func() error {
		defer served()
		<-ctx.Done()
		return p.leave(context.WithoutCancel(ctx))
	})
	return group.Wait()
}

// leave takes leave in order: unready but still accepting until the load
// balancers have heard, with each answer asking its client to connect anew
// (ending keep-alive in the server would close idle connections at once, under
// clients that are about to use them); then no new connections, a last chance
// for those that are held, and time for the requests that run.
func (p *program) leave(ctx context.Context) error {
	p.activator.Leave()
	timer := time.NewTimer(p.delay)
	defer timer.Stop()
	<-timer.C
	ctx, cancel := context.WithTimeout(ctx, p.grace)
	defer cancel()
	var group errgroup.Group
	group.Go(func() error { p.activator.Drain(ctx, p.drainHold); return nil })
	group.Go(func() error {
		if err := p.server.Shutdown(ctx); err != nil {
			return p.cut(context.WithoutCancel(ctx))
		}
		p.activator.Idle(ctx) // connections that were upgraded
		return nil
	})
	return group.Wait()
}

// cutWithin bounds how long the answers to requests that are cut may take.
const cutWithin = 2 * time.Second

// cut ends what --grace was not enough for, and lets the answers that say so
// out before the connections are closed.
func (p *program) cut(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cutWithin)
	defer cancel()
	p.activator.Cut()
	_ = p.server.Shutdown(ctx) // Close ends whatever this leaves
	p.activator.Idle(ctx)
	return p.server.Close()
}

// handler serves probes, metrics and debugging; stopping ends readiness.
func (p *program) handler(stopping context.Context) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		switch {
		case stopping.Err() != nil:
			http.Error(w, "going away", http.StatusServiceUnavailable)
		case !p.source.Synced() || !p.activator.Listed():
			http.Error(w, clusterflags.NotListed(p.source), http.StatusServiceUnavailable)
		}
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /debug/targets", p.activator.ServeTargets)
	return mux
}
