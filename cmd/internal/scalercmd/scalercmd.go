// Package scalercmd is the program pilotlight-scaler without its process:
// flags, wiring and exit codes. It lives apart from main so that tests and the
// demo run the same code.
package scalercmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/cmd/internal/clusterflags"
	"github.com/pilotlight-dev/pilotlight/internal/demandpb"
	"github.com/pilotlight-dev/pilotlight/internal/leader"
	"github.com/pilotlight-dev/pilotlight/internal/tlsconf"
	"github.com/pilotlight-dev/pilotlight/scaler"
	"github.com/pilotlight-dev/pilotlight/scaler/demand"
	"github.com/pilotlight-dev/pilotlight/scaler/engine"
	"github.com/pilotlight-dev/pilotlight/scaler/moves"
	"github.com/pilotlight-dev/pilotlight/scaler/policy"
	"github.com/pilotlight-dev/pilotlight/warmup/coldstart"
)

const long = `KEDA external scaler for LLM engines.

It serves KEDA's external and external-push triggers on --listen, hears from
activators on --demand-listen, and serves /healthz, /readyz, /metrics,
/debug/targets and, for MLflow, /webhook on --http-listen. Targets are the
ScaledObjects that KEDA asks about; their pods come from the cluster, or from
--static-targets without one.

How long models take to start, for how long replicas are to be held, and how
model pointers have moved as agents have seen it, is remembered across restarts in the ConfigMaps pilotlight-state-0 to -15 of
--state-namespace, or in --state-file.

Exit codes: 0 stopped by a signal, 1 unexpected, 2 a flag or file is wrong, or
a port is in use.`

type flags struct {
	listen, demandListen, httpListen string
	cluster                          clusterflags.Flags
	state                            stateFlags
	leader                           leaderFlags
	log                              cli.LogFlags
	interval, scrapeTimeout, lag     time.Duration
	tls                              tlsconf.Files
	demandCA, demandSources          string
	reflection, events, deletionCost bool
	modelNames, webhookSecret        string
	agentPoll                        time.Duration
}

// Main runs the program and returns its exit code.
func Main(ctx context.Context, env cli.Env) int { return cli.Run(ctx, command(env), env) }

func command(env cli.Env) *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use: "pilotlight-scaler", Short: "KEDA external scaler for LLM engines", Long: long, Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), f, env) },
	}
	fs := cmd.Flags()
	fs.StringVar(&f.listen, "listen", ":6000", "address for KEDA (gRPC)")
	fs.StringVar(&f.demandListen, "demand-listen", ":6001", "address for activators (gRPC)")
	fs.StringVar(&f.httpListen, "http-listen", ":8080", "address for probes, metrics and debugging")
	fs.DurationVar(&f.interval, "interval", time.Second, "time between looks at a target")
	fs.DurationVar(&f.scrapeTimeout, "scrape-timeout", time.Second, "longest wait for one engine's metrics")
	fs.DurationVar(&f.lag, "gauge-lag", policy.DefaultGaugeLag, "how long after its first request an engine's gauges may still read 0")
	fs.StringVar(&f.tls.Cert, "tls-cert-file", "", "serve gRPC over TLS with this certificate")
	fs.StringVar(&f.tls.Key, "tls-key-file", "", "its private key")
	fs.StringVar(&f.tls.CA, "tls-client-ca-file", "", "ask KEDA for a certificate signed by one of these (mTLS)")
	fs.StringVar(&f.demandCA, "demand-tls-client-ca-file", "", "ask activators for a certificate signed by one of these (default: as for KEDA)")
	fs.StringVar(&f.demandSources, "demand-sources", "", "file of demand sources that triggers may name in demandFrom, beside activator and none")
	fs.StringVar(&f.modelNames, "model-names", string(scaler.NamesCluster), "within what a model name may be claimed once only: cluster, or namespace where each has activators of its own")
	fs.StringVar(&f.webhookSecret, "mlflow-webhook-secret-file", "", "serve POST /webhook for MLflow, whose deliveries are signed with the secret in this file")
	fs.BoolVar(&f.events, "events", true, "write Kubernetes Events about ScaledObjects, where that is allowed")
	fs.BoolVar(&f.deletionCost, "pod-deletion-cost", false, "before a scale-in, mark the least busy pods to go first (needs the right to patch pods)")
	fs.BoolVar(&f.reflection, "grpc-reflection", false, "serve gRPC reflection, for debugging")
	fs.DurationVar(&f.agentPoll, "agent-poll", moves.DefaultEvery, "time between questions to the agents how their pointers stand; 0 asks none")
	f.leader.add(cmd)
	f.state.add(cmd)
	f.cluster.Add(cmd)
	f.log.Add(cmd)
	return cmd
}

// check refuses what would make no sense.
func (f flags) check() error {
	if f.interval < 10*time.Millisecond || f.scrapeTimeout <= 0 || f.lag <= 0 {
		return cli.Usage("--interval must be at least 10ms, --scrape-timeout and --gauge-lag above 0")
	}
	if f.agentPoll != 0 && f.agentPoll < time.Second {
		return cli.Usage("--agent-poll must be at least 1s, or 0")
	}
	if scope := scaler.NameScope(f.modelNames); scope != scaler.NamesCluster && scope != scaler.NamesNamespace {
		return cli.Usage("--model-names: %q must be cluster or namespace", f.modelNames)
	}
	return nil
}

// run wires the parts together and serves until ctx ends.
func run(ctx context.Context, f flags, env cli.Env) error {
	log, err := f.log.Logger(env.Stderr)
	if err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	kedaCreds, demandCreds, err := serverCredentials(f)
	if err != nil {
		return err
	}
	p := &program{log: log, tuneGC: env.Getenv("GOGC") == "", registry: newRegistry(), tracker: demand.NewTracker(), starts: newColdstarts(), book: &moves.Book{}}
	if err := p.open(ctx, f, env); err != nil {
		return err
	}
	store, err := f.state.open(f.cluster, env.Getenv, log)
	if err != nil {
		return err
	}
	if p.elector, err = f.leader.open(f.cluster, env.Getenv, log); err != nil {
		return err
	}
	listeners, err := listenAll(ctx, f)
	if err != nil {
		return err
	}
	if err := p.prepare(f); err != nil {
		return err
	}
	if store == nil {
		p.watcher = nil // nobody would ever read what it finds out
	} else {
		p.keeper = &coldstart.Keeper{Learner: p.starts.learner, Others: []coldstart.Memory{p.book}, Store: store, Logger: log}
		if p.elector == nil {
			p.keeper.Restore(ctx)
		}
	}
	return p.serve(ctx, listeners, kedaCreds, demandCreds, f.reflection)
}

// open finds what the flags name: cluster or file, sources, secret.
func (p *program) open(ctx context.Context, f flags, env cli.Env) (err error) {
	if p.source, err = f.cluster.Open(ctx, env.Getenv, p.log); err != nil {
		return err
	}
	if p.cluster, err = connect(f, env.Getenv, p.log); err != nil {
		return err
	}
	if p.sources, err = openSources(f.demandSources, p.log, p.registry); err != nil {
		return err
	}
	if p.hook, err = openWebhook(f.webhookSecret, p.source, p.log, p.registry); err != nil {
		return err
	}
	if agents, ok := p.source.(moves.Agents); ok && f.agentPoll > 0 {
		p.watcher, err = moves.New(moves.Options{Book: p.book, Agents: agents, Every: f.agentPoll, Logger: p.log, Registerer: p.registry, Swapped: p.swapped})
	}
	return err
}

// swapped is called while this replica leads, when the scaler is there.
func (p *program) swapped(s moves.Swap) bool {
	return p.scaler.Swapped(s.Namespace, s.Pods, s.String())
}

// prepare makes the scaler, whose goroutines run from now on.
func (p *program) prepare(f flags) (err error) {
	p.scaler, err = scaler.New(scaler.Options{
		Workloads: p.source, Engines: engine.NewScraper(engine.Options{Timeout: f.scrapeTimeout, Every: f.interval}), Demands: p.tracker, Memory: p.starts.learner,
		Sources: p.sources.forScaler(), Events: p.cluster.events(), Costs: p.cluster.deletionCosts(), Triggers: p.source,
		NameScope: scaler.NameScope(f.modelNames), Interval: f.interval, GaugeLag: f.lag, Logger: p.log, Registerer: p.registry,
	})
	if err != nil {
		return err
	}
	p.starts.targets = p.scaler.Targets
	for _, c := range []prometheus.Collector{p.starts, p.gate.collector(), denials{p.source}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		if err := p.registry.Register(c); err != nil {
			p.scaler.Close()
			return err
		}
	}
	return nil
}

// program is the running scaler with its servers.
type program struct {
	log      *slog.Logger
	scaler   *scaler.Scaler
	source   clusterflags.Source
	registry *registry
	tracker  *demand.Tracker
	starts   *coldstarts
	sources  sources
	cluster  *connection // nil without a cluster
	hook     *hook       // nil: no webhook
	book     *moves.Book
	watcher  *moves.Watcher    // nil: no agents are asked
	keeper   *coldstart.Keeper // nil: nothing is remembered across restarts
	elector  *leader.Elector   // nil: the only replica
	gate     gate
	tuneGC   bool // nobody else has said how
}

func (p *program) serve(ctx context.Context, l listeners, kedaCreds, demandCreds grpc.ServerOption, reflect bool) error {
	checks := health.NewServer()
	keda := grpc.NewServer(append(p.gate.options(), kedaCreds, keepAlive, grpc.MaxRecvMsgSize(maxAsked))...)
	pb.RegisterExternalScalerServer(keda, p.scaler)
	healthpb.RegisterHealthServer(keda, checks)
	checks.SetServingStatus(pb.ExternalScaler_ServiceDesc.ServiceName, healthpb.HealthCheckResponse_NOT_SERVING)
	if reflect {
		reflection.Register(keda)
	}
	if p.elector == nil { // there is nobody to stand by for, not even for a moment
		p.admit(checks)
	}
	done := make(chan struct{})
	activators := grpc.NewServer(append(p.gate.options(), demandCreds, keepAlive, grpc.MaxRecvMsgSize(maxReported))...)
	demandpb.RegisterDemandServer(activators, &demand.Server{Tracker: p.tracker, States: p.scaler, Done: done})

	group, ctx := errgroup.WithContext(ctx)
	if p.tuneGC {
		group.Go(func() error { scaler.Garbage(ctx); return nil })
	}
	group.Go(func() error { p.sources.run(ctx); return nil })
	group.Go(func() error { p.cluster.run(ctx); return nil })
	if p.hook != nil {
		group.Go(func() error { p.hook.nudger.Run(ctx); return nil })
	}
	group.Go(func() error { return serveGRPC(keda, l.keda) })
	group.Go(func() error { return serveGRPC(activators, l.demand) })
	group.Go(func() error { return cli.ServeHTTP(ctx, l.http, p.handler(), 5*time.Second) })
	group.Go(func() error {
		err := p.lead(ctx, checks)
		checks.Shutdown()
		close(done)
		p.scaler.Close() // a standby has targets as little as one that has led
		stopWithin(keda, 5*time.Second)
		stopWithin(activators, 5*time.Second)
		return err // the elector's
	})
	p.log.Info("serving", "keda", l.keda.Addr().String(), "demand", l.demand.Addr().String(), "http", l.http.Addr().String())
	err := group.Wait()
	p.log.Info("stopped")
	return err
}

// keepAlive finds peers that vanished without a word, and lets KEDA keep its
// connection: there is no MaxConnectionAge, which would cut the push streams.
var keepAlive = grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second})

// Bounds of one message, in bytes: of KEDA one trigger's metadata, certificates
// included; of activators the counts of every target, some 100 bytes each.
const (
	maxAsked    = 256 << 10
	maxReported = 2 << 20
)

// serveGRPC serves until s is stopped, which may have happened already.
func serveGRPC(s *grpc.Server, l net.Listener) error {
	if err := s.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serving %s: %w", l.Addr(), err)
	}
	return nil
}

// stopWithin lets calls finish, but not for ever.
func stopWithin(s *grpc.Server, grace time.Duration) {
	timer := time.AfterFunc(grace, s.Stop)
	defer timer.Stop()
	s.GracefulStop()
}

func (p *program) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !p.source.Synced() {
			http.Error(w, clusterflags.NotListed(p.source), http.StatusServiceUnavailable)
		}
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.registry.parts, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /debug/targets", func(w http.ResponseWriter, r *http.Request) {
		if !p.gate.open.Load() { // an empty list would look like a scaler that nobody asks
			http.Error(w, errStandby.Error(), http.StatusServiceUnavailable)
			return
		}
		p.scaler.DebugHandler().ServeHTTP(w, r)
	})
	if p.hook != nil {
		mux.Handle("POST /webhook", p.hook.handler)
	}
	return mux
}

func serverCredentials(f flags) (keda, activators grpc.ServerOption, err error) {
	if f.tls.Cert == "" && f.tls.Key == "" {
		if f.tls.CA != "" || f.demandCA != "" {
			return nil, nil, cli.Usage("a client CA needs --tls-cert-file and --tls-key-file")
		}
		return grpc.EmptyServerOption{}, grpc.EmptyServerOption{}, nil
	}
	kedaTLS, err := tlsconf.Server(f.tls)
	if err != nil {
		return nil, nil, err
	}
	if f.demandCA != "" {
		f.tls.CA = f.demandCA
	}
	demandTLS, err := tlsconf.Server(f.tls)
	if err != nil {
		return nil, nil, err
	}
	return grpc.Creds(credentials.NewTLS(kedaTLS)), grpc.Creds(credentials.NewTLS(demandTLS)), nil
}

type listeners struct{ keda, demand, http net.Listener }

func listenAll(ctx context.Context, f flags) (l listeners, err error) {
	for _, x := range []struct {
		flag, addr string
		to         *net.Listener
	}{{"--listen", f.listen, &l.keda}, {"--demand-listen", f.demandListen, &l.demand}, {"--http-listen", f.httpListen, &l.http}} {
		if *x.to, err = cli.Listen(ctx, x.flag, x.addr); err != nil {
			return l, fmt.Errorf("starting: %w", err)
		}
	}
	return l, nil
}
