package fetchercmd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/fetcher/agent"
	"github.com/pilotlight-dev/pilotlight/warmup/prime"
)

// shutdownGrace is how long answers of the agent's port may take at the end.
const shutdownGrace = 2 * time.Second

type agentFlags struct {
	writer               bool
	listen               string
	poll                 time.Duration
	maxFailures          int
	onChange             string
	command              []string
	webhook              string
	hookTimeout          time.Duration
	engineHealth         string
	errorFile, touchFile string
}

func (a *app) agentCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agent --model REF --root DIR",
		Short: "Follow a reference while the pod runs: fetch, publish, report",
		Long: `Ask every --poll what REF means (and after SIGHUP, and after POST /nudge, at most
every 5 seconds). When it moved, bring that version into DIR, make DIR/current
name it, and do what --on-change says. While REF is broken, or its registry or
store is down, everything stays as it is.

Three roles:
  (default)    beside one engine, on a volume of the pod: fetches and publishes
  --writer     alone, on a volume that many pods share: the one that publishes
  --read-only  beside an engine on such a volume: watches, publishes nothing

` + pathHelp + ` The agent
sets --link if init has not. With --on-change exit it ends with code 88 when a
version other than that of --link is published; a container with a restart rule
RestartAllContainers for that code then runs init again, which moves the link.

What is published is read into the page cache (--warm-cache), and the engine of
--engine-url gets a few requests after each start (--warm-requests), since its
first ones are slow. Whatever fails of that is reported and ends nothing.

The port: GET /readyz (503 until a version is published), /readyz/engine (503
until the engine was warmed up), /healthz, /status, /metrics, POST /nudge.

` + refHelp + `

` + exitCodesHelp,
		Example: `  pilotlight-fetcher agent --model llama@champion --root /models --link /pod/model --on-change exit
  pilotlight-fetcher agent --model llama@champion --root /shared --writer
  pilotlight-fetcher agent --model llama@champion --root /shared --read-only --link /pod/model`,
		Args: usageArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runAgent(cmd.Context()) },
	}
	a.addRunFlags(cmd, "bound of one attempt to bring a version")
	f := cmd.Flags()
	f.BoolVar(&a.agent.writer, "writer", false, "be the one writer of a shared volume: no engine, no link")
	f.StringVar(&a.agent.listen, "listen", ":9400", "address of the port")
	f.DurationVar(&a.agent.poll, "poll", agent.DefaultPoll, "how often to ask what the reference means, within 10 % either way")
	f.IntVar(&a.agent.maxFailures, "max-failures", 0, "end, with the code of the last error, after so many failures in a row; 0 means never")
	f.StringVar(&a.agent.onChange, "on-change", string(agent.None), "none, exec, webhook or exit, when another version than the engine's is published")
	f.StringArrayVar(&a.agent.command, "exec", nil, "program for --on-change exec, and by repetition its arguments; it gets PILOTLIGHT_REF, _DIGEST, _VERSION, _PREVIOUS_DIGEST and _PATH")
	f.StringVar(&a.agent.webhook, "webhook-url", "", "where --on-change webhook posts {ref, digest, version, previousDigest}")
	f.DurationVar(&a.agent.hookTimeout, "hook-timeout", agent.DefaultHookTimeout, "bound of one attempt of exec and webhook; a failed one is repeated a few times")
	f.StringVar(&a.agent.engineHealth, "engine-health", "", "URL of the engine's health check, such as http://127.0.0.1:8000/health, to report what it serves")
	a.addPrimeFlags(cmd)
	f.StringVar(&a.agent.errorFile, "error-file", "", "file for {code, reason, ref, at} of the last failure, while it lasts")
	f.StringVar(&a.agent.touchFile, "touch-file", "", "file to write after each change")
	return cmd
}

func (a *app) checkRole() error {
	g := a.agent
	switch {
	case g.writer && a.flags.readOnly:
		return fmt.Errorf("%w: --writer and --read-only exclude each other", fetcher.ErrUsage)
	case g.writer && (a.flags.link != "" || g.engineHealth != "" || g.onChange == string(agent.Exit)):
		return fmt.Errorf("%w: a --writer has no engine: --link, --engine-health and --on-change exit belong to the pods that read", fetcher.ErrUsage)
	case g.poll < time.Second || g.maxFailures < 0 || g.hookTimeout <= 0:
		return fmt.Errorf("%w: --poll must be at least 1s, --max-failures not negative, --hook-timeout positive", fetcher.ErrUsage)
	}
	return a.checkPrime()
}

func (a *app) runAgent(ctx context.Context) (err error) {
	out := newProgress(a.stderr, false)
	if err := a.setLogger(isTerminal(a.stderr), out); err != nil {
		return err
	}
	if err := a.checkRole(); err != nil {
		return err
	}
	opts, err := a.options()
	if err != nil {
		return err
	}
	store, err := fetcher.OpenStore(opts.Root, a.log)
	if err != nil {
		return err // the package's errors name action and thing
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	store.SetVerify(opts.Verify)
	var link *fetcher.Frozen
	if opts.Link != "" {
		if link, err = fetcher.OpenFrozen(store, opts.Link); err != nil {
			return err // as above
		}
		defer func() { err = errors.Join(err, link.Close()) }()
	}
	metrics := prometheus.NewRegistry()
	agentOpts, err := a.agentOptions(ctx, opts, store, link)
	if err != nil {
		return err
	}
	keeper, err := a.keeper(metrics)
	if err != nil {
		return err // as above
	}
	agentOpts.Registerer, agentOpts.Observer = metrics, keeper
	follower, err := agent.New(agentOpts)
	if err != nil {
		return err // as above
	}
	return a.serveAgent(ctx, follower, keeper, metrics)
}

// agentOptions wires the agent to the fetcher; link may be nil.
func (a *app) agentOptions(ctx context.Context, opts fetcher.Options, store *fetcher.Store, link *fetcher.Frozen) (agent.Options, error) {
	g := a.agent
	out := agent.Options{
		Ref: opts.Ref.String(), Store: store, Link: link, Reader: opts.Reader, Pinned: opts.Pin != "",
		Poll: g.poll, MaxFailures: g.maxFailures, EngineHealth: g.engineHealth,
		OnChange:  agent.OnChange{Action: agent.Action(g.onChange), Command: g.command, URL: g.webhook, Timeout: g.hookTimeout},
		ErrorFile: g.errorFile, TouchFile: g.touchFile,
		Code:   func(err error) int { return exitCode(ctx, err) },
		Logger: a.log,
	}
	if out.Reader == "" {
		out.Reader = fetcher.DefaultReader()
	}
	if opts.ReadOnly {
		return out, nil
	}
	collector, err := fetcher.NewCollector(store, opts.Retention, link)
	if err != nil {
		return agent.Options{}, err // as above
	}
	out.Collector, opts.Collector = collector, collector
	opts.Link = "" // the agent's to set, when the engine is not up
	out.Puller = &puller{app: a, opts: opts}
	if opts.Pin != "" {
		opts.Pin, opts.Prefetch = "", true
		out.Prefetcher = &puller{app: a, opts: opts}
	}
	return out, nil
}

// serveAgent runs the agent and its port until one of them ends.
func (a *app) serveAgent(ctx context.Context, follower *agent.Agent, keeper *prime.Keeper, metrics *prometheus.Registry) error {
	listener, err := cli.Listen(ctx, "--listen", a.agent.listen)
	if err != nil {
		return fmt.Errorf("%w: %w", fetcher.ErrUsage, err)
	}
	for _, c := range []prometheus.Collector{collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		if err := metrics.Register(c); err != nil {
			return fmt.Errorf("registering the metrics of the process: %w", err)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/", follower.Handler())
	mux.Handle("GET /readyz/engine", a.engineGate(keeper))
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	a.log.InfoContext(ctx, "the agent listens", "address", listener.Addr().String())

	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group errgroup.Group
	group.Go(func() error {
		defer cancel() // whichever ends first ends the other
		return follower.Run(ctx)
	})
	group.Go(func() error {
		defer cancel()
		return keeper.Run(ctx)
	})
	group.Go(func() error {
		defer cancel()
		return cli.ServeHTTP(ctx, listener, mux, shutdownGrace)
	})
	group.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-hangup:
				follower.Nudge()
			}
		}
	})
	return group.Wait() // each names itself
}

// puller is the fetcher as the agent uses it.
type puller struct {
	app  *app
	opts fetcher.Options
}

// Look implements agent.Puller.
func (p *puller) Look(ctx context.Context) (fetcher.Pointer, error) {
	p.app.effort.rest()              // whatever was on disk has been looked at
	return fetcher.Look(ctx, p.opts) // names the reference
}

// Pull implements agent.Puller.
func (p *puller) Pull(ctx context.Context) (res fetcher.Result, err error) {
	p.app.effort.work(func() { res, err = p.pull(ctx) })
	return res, err
}

func (p *puller) pull(ctx context.Context) (fetcher.Result, error) {
	opts := p.opts
	lines := newProgress(p.app.stderr, false)
	opts.Progress = lines
	stop := lines.start(ctx, p.app.log)
	res, err := fetcher.Init(ctx, opts)
	stop()
	if err != nil {
		return res, err // the package's errors name action and thing
	}
	p.app.summary(ctx, res, opts.Prefetch)
	return res, nil
}
