package pointercmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/cmd/internal/exits"
	"github.com/pilotlight-dev/pilotlight/cmd/internal/modelsource"
	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// Bounds of a command, unless --timeout says otherwise.
const (
	defaultTimeout = 2 * time.Minute
	// waitTimeout is for --wait: a large model takes many minutes to load.
	waitTimeout = 30 * time.Minute
	// glanceTimeout bounds a look at the cluster that is good to have only.
	glanceTimeout = 5 * time.Second
	// promptTimeout bounds the wait for somebody's answer.
	promptTimeout = 10 * time.Minute
)

// app is one command and its flags.
type app struct {
	Deps
	out, err io.Writer // set when the command runs

	output  string
	timeout time.Duration

	endpoint, subPath       string
	allow, include, exclude []string
	anyLayout               bool

	agents          []string
	noAgents        bool
	agentPort       int
	cluster         ClusterFlags
	scalerNamespace string
	scaler          string
	scalerPort      int

	dryRun, yes bool
	message     string

	to, location         string
	wait, restart, wake  bool
	activator, wakeModel string

	noList bool // of resolve

	// artifacts reads what lies behind the registry's proxy, if it has one.
	artifacts fetcher.Artifacts
}

// Commands returns the commands, ready to be added to the root.
func Commands(deps Deps) []*cobra.Command {
	deps = deps.withDefaults()
	return []*cobra.Command{
		resolveCommand(deps), historyCommand(deps), promoteCommand(deps), rollbackCommand(deps), statusCommand(deps), doctorCommand(deps), pointerCommand(deps),
		explainCommand(deps),
	}
}

const refHelp = `REF is models:/name@alias (or name@alias), or pointer+s3://bucket/key. The
registry is named by MLFLOW_TRACKING_URI (and MLFLOW_REGISTRY_URI), with the
credentials that MLflow's own client reads. The store's come from the AWS default
chain, its endpoint from --s3-endpoint, MLFLOW_S3_ENDPOINT_URL,
AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL.`

// command sets what all commands have in common; run gets the signal's context.
func (a *app) command(cmd *cobra.Command, run func(ctx context.Context, args []string) error) *cobra.Command {
	f := cmd.Flags()
	f.StringVarP(&a.output, "output", "o", "table", "table, json or yaml")
	f.DurationVar(&a.timeout, "timeout", 0, "bound of the command, time for an answer at the prompt not counted (default 2m); with --wait, of the wait (default 30m)")
	complete(cmd, "output", []string{"table", "json", "yaml"})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		a.out, a.err = cmd.OutOrStdout(), cmd.ErrOrStderr()
		// The cluster's client logs what went wrong, which comes back as an error as
		// well: the zero Logger discards it.
		ctx := klog.NewContext(cmd.Context(), klog.Logger{})
		err := a.check()
		if err == nil {
			err = run(ctx, args)
		}
		if err != nil && ctx.Err() != nil && !errors.Is(err, context.Canceled) {
			err = fmt.Errorf("interrupted: %w: %w", context.Canceled, err)
		}
		if err != nil {
			err = cleaned{err}
		}
		return exits.With(err)
	}
	return cmd
}

// cleaned is an error that may quote agents, registries and stores, fit for a
// terminal.
type cleaned struct{ error }

func (e cleaned) Error() string { return clean(e.error.Error()) }
func (e cleaned) Unwrap() error { return e.error }

func (a *app) check() error {
	if !slices.Contains([]string{"table", "json", "yaml"}, a.output) {
		return cli.Usage("--output: %q must be table, json or yaml", a.output)
	}
	if a.timeout < 0 {
		return cli.Usage("--timeout must not be negative")
	}
	if a.timeout == 0 {
		if a.timeout = defaultTimeout; a.wait {
			a.timeout = waitTimeout
		}
	}
	return nil
}

// storeFlags are those of commands that look into the store.
func (a *app) storeFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&a.endpoint, "s3-endpoint", "", "URL of the object store, without a bucket")
	f.StringArrayVar(&a.allow, "allow-location", nil, "s3://bucket/prefix that a version may lie in, or mlflow-artifacts:/path; may be repeated (default any)")
	f.StringVar(&a.subPath, "sub-path", "", "folder of the version that the pods fetch: the digest is of what they have")
	f.StringArrayVar(&a.include, "include", nil, "glob of the files that the pods fetch, for the same reason; may be repeated (default all)")
	f.StringArrayVar(&a.exclude, "exclude", nil, "glob of files that the pods leave out; may be repeated, and beats --include")
	f.BoolVar(&a.anyLayout, "any-layout", false, "accept a version in which no model is found (an adapter, a data set)")
}

// agentFlags are those of commands that ask agents.
func (a *app) agentFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&a.agents, "agents", nil, "ask the agents at these host:port instead of finding pods in the cluster")
	f.IntVar(&a.agentPort, "agent-port", 0, "port of the agents in the cluster (default 9400)")
	a.clusterFlags(cmd, "namespace to look in (default: all)")
}

// clusterFlags say which cluster; help is that of --namespace.
func (a *app) clusterFlags(cmd *cobra.Command, help string) {
	f := cmd.Flags()
	f.StringVar(&a.cluster.Kubeconfig, "kubeconfig", "", "kubeconfig file (default: $KUBECONFIG, else the pod's service account, else ~/.kube/config)")
	f.StringVar(&a.cluster.Context, "context", "", "context of the kubeconfig (default: the current one)")
	f.StringVarP(&a.cluster.Namespace, "namespace", "n", "", help)
}

// sightFlags are those of commands that want to know of moves that nobody
// recorded; help is that of --no-agents.
func (a *app) sightFlags(cmd *cobra.Command, help string) {
	cmd.Flags().BoolVar(&a.noAgents, "no-agents", false, help)
	a.scalerFlag(cmd)
}

func (a *app) scalerFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.scalerNamespace, "scaler-namespace", "", "namespace of pilotlight-scaler, which remembers what agents have seen (default: $PILOTLIGHT_SCALER_NAMESPACE, else "+defaultScalerNamespace+")")
}

// writeFlags are those of commands that write.
func (a *app) writeFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&a.dryRun, "dry-run", false, "do everything but write")
	f.BoolVarP(&a.yes, "yes", "y", false, "do not ask; required where there is no terminal to ask on")
	f.StringVarP(&a.message, "message", "m", "", "why, for the history")
}

// oneRef demands one positional argument.
func oneRef(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return cli.Usage("want one REF, such as llama@champion, got %d arguments (see %s --help)", len(args), cmd.CommandPath())
	}
	return nil
}

func parseRef(text string) (registry.Ref, error) {
	ref, err := registry.ParseModel(text)
	if err != nil {
		return registry.Ref{}, cli.Usage("%w", err)
	}
	return ref, nil
}

// bounded gives a step the command's time, counted from now. With --wait that
// time is for the wait: what comes before it gets no more than it would without.
func (a *app) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	d := a.timeout
	if a.wait {
		d = min(d, defaultTimeout)
	}
	return within(ctx, d)
}

func within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, classify(context.DeadlineExceeded, "the time for it (%v, see --timeout) was up", d))
}

// asking gives an error of the registry its class when it is only that the time
// was up.
func asking(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && exits.Code(err) == 1 && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w: %w", registry.ErrUnreachable, errors.Join(err, context.Cause(ctx)))
	}
	return err
}

// reach returns the resolver of ref and how to reach stores.
func (a *app) reach(ref registry.Ref) (fetcher.Resolver, modelsource.Connect, error) {
	connect, err := a.Connect(a.endpoint)
	if err != nil {
		return nil, nil, err
	}
	r, err := a.Open(ref, connect)
	return r, connect, err // names the variable
}

// open is reach for the one reference of a command that looks into versions.
func (a *app) open(ref registry.Ref) (fetcher.Resolver, modelsource.Connect, error) {
	r, connect, err := a.reach(ref)
	a.artifacts, _ = r.(fetcher.Artifacts)
	return r, connect, err
}

// backend is open for commands that need a pointer.
func (a *app) backend(ref registry.Ref) (Backend, modelsource.Connect, error) {
	if err := movable(ref); err != nil {
		return nil, nil, err
	}
	r, connect, err := a.open(ref)
	if err != nil {
		return nil, nil, err
	}
	b, err := asBackend(ref, r)
	return b, connect, err
}

// fetchOptions are how the fetcher would see a version.
func (a *app) fetchOptions(ctx context.Context, ref registry.Ref, r fetcher.Resolver, connect modelsource.Connect) (fetcher.Options, error) {
	opts := fetcher.Options{Ref: ref, Resolver: r, Connect: connect, Artifacts: a.artifacts, SubPath: a.subPath, Include: a.include, Exclude: a.exclude, AnyLayout: a.anyLayout, Deadline: a.timeout}
	if at, ok := ctx.Deadline(); ok {
		opts.Deadline = max(time.Until(at), time.Millisecond)
	}
	for _, text := range a.allow {
		loc, err := registry.ParseLocation(text)
		if err != nil {
			return fetcher.Options{}, cli.Usage("--allow-location: %w", err)
		}
		opts.AllowLocations = append(opts.AllowLocations, loc)
	}
	return opts, nil
}

// who moves the pointer, for the history: user@host.
func (a *app) who() string {
	user := a.Getenv("USER")
	if user == "" {
		user = a.Getenv("LOGNAME")
	}
	if user == "" {
		user = "pilotlight"
	}
	if a.Hostname != nil {
		if host, err := a.Hostname(); err == nil && host != "" {
			user += "@" + host
		}
	}
	return user
}

// note says something on stderr that is not the result.
func (a *app) note(format string, args ...any) {
	_, _ = fmt.Fprintf(a.err, "note: %s\n", clean(fmt.Sprintf(format, args...))) // nowhere left to say so
}

// clean makes foreign text fit for a terminal and one line.
func clean(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7f && r < 0xa0 || unicode.Is(unicode.Bidi_Control, r) {
			return '?'
		}
		return r
	}, s)
}

// clip is clean for what should not fill a screen either.
func clip(s string) string {
	const most = 300 // bytes: a name, a state and two reasons
	if s = clean(s); len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}
