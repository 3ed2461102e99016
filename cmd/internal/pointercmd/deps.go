package pointercmd

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/agentwatch"
	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/cmd/internal/modelsource"
	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// Backend reads and moves pointers of one kind.
type Backend interface {
	fetcher.Resolver
	// Read says where the pointer stands.
	Read(ctx context.Context, ref registry.Ref) (registry.Position, error)
	// Move moves it if it still stands at change.Expect; registry.ErrConflict if
	// not.
	Move(ctx context.Context, ref registry.Ref, change registry.Change) (registry.Position, error)
	// Versions lists what it could name, newest first.
	Versions(ctx context.Context, ref registry.Ref) ([]registry.Version, error)
}

// initer is a Backend whose pointers have to be made first.
type initer interface {
	Init(ctx context.Context, ref registry.Ref, change registry.Change) (registry.Position, error)
}

// Deps is what the commands need of the world. Getenv is required; the zero
// values of the other fields are the real world, without terminals.
type Deps struct {
	Getenv func(string) string
	Stdin  io.Reader
	// Which of the streams are terminals.
	StdinTTY, StdoutTTY, StderrTTY bool
	// Now is the clock that ages are told by.
	Now func() time.Time
	// Hostname names this machine in the history.
	Hostname func() (string, error)
	// Connect returns how to reach stores; endpoint is --s3-endpoint.
	Connect func(endpoint string) (modelsource.Connect, error)
	// Open returns what resolves ref; if it is a Backend too, its pointers move.
	Open func(ref registry.Ref, connect modelsource.Connect) (fetcher.Resolver, error)
	// Cluster opens the cluster that the flags name. errNoCluster means that
	// none is configured.
	Cluster func(flags ClusterFlags) (*Cluster, error)
	// HTTP asks agents and the activator.
	HTTP *http.Client
	// Merge joins recorded moves with those that were seen, newest first, and
	// Previous says what served before current.
	Merge    func(recorded []registry.Entry, seen ...[]registry.Entry) []registry.Entry
	Previous func(history []registry.Entry, current string) (string, bool)
	// Every is the time between two looks at the agents; 0 means
	// agentwatch.DefaultEvery.
	Every time.Duration
}

// Cluster is a connection to a Kubernetes API server.
type Cluster struct {
	Client  kubernetes.Interface
	Dynamic dynamic.Interface
	Proxy   rest.Interface // of the core API, for posts to pods; nil: none
}

// ClusterFlags say which cluster, and where in it.
type ClusterFlags struct{ Kubeconfig, Context, Namespace string }

func (d Deps) withDefaults() Deps {
	if d.Now == nil {
		d.Now = time.Now
	}
	if d.Connect == nil {
		d.Connect = func(endpoint string) (modelsource.Connect, error) { return modelsource.Connector(d.Getenv, endpoint) }
	}
	if d.Open == nil {
		d.Open = func(ref registry.Ref, connect modelsource.Connect) (fetcher.Resolver, error) {
			return modelsource.Resolver(ref, connect, d.Getenv, slog.New(slog.DiscardHandler))
		}
	}
	if d.Cluster == nil {
		d.Cluster = func(flags ClusterFlags) (*Cluster, error) { return openCluster(flags, d.Getenv) }
	}
	if d.HTTP == nil {
		d.HTTP = &http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{Timeout: 3 * time.Second}).DialContext, Proxy: http.ProxyFromEnvironment}}
	}
	direct := *d.HTTP // neither agents nor the activator send anybody elsewhere
	direct.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	d.HTTP = &direct
	if d.Merge == nil {
		d.Merge = registry.Merge
	}
	if d.Previous == nil {
		d.Previous = registry.Previous
	}
	return d
}

// asBackend returns what moves ref.
func asBackend(ref registry.Ref, r fetcher.Resolver) (Backend, error) {
	b, ok := r.(Backend)
	if !ok {
		return nil, fmt.Errorf("%s: %w: this registry cannot move pointers", ref, registry.ErrUnsupported)
	}
	return b, nil
}

// movable refuses references that are no pointers.
func movable(ref registry.Ref) error {
	if ref.Kind == registry.KindAlias || ref.Kind == registry.KindPointer {
		return nil
	}
	return cli.Usage("%s is not a pointer that moves: want models:/name@alias or pointer+s3://bucket/key", ref)
}

// errNoCluster: nothing says which cluster to ask.
var errNoCluster = cli.Usage("no cluster: this is not a pod and there is no kubeconfig: give --kubeconfig FILE, or the agents with --agents HOST:PORT,...")

// openCluster connects to the cluster of the flags, the environment, the pod's
// service account or the user's kubeconfig; nothing is sent.
func openCluster(flags ClusterFlags, getenv func(string) string) (*Cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = flags.Kubeconfig
	rules.WarnIfAllMissing = false
	if env := getenv(clientcmd.RecommendedConfigPathEnvVar); env != "" {
		rules.Precedence = append([]string{env}, rules.Precedence...)
	}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: flags.Context}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, errNoCluster
	case err != nil:
		return nil, cli.Usage("kubeconfig: %w", err)
	}
	config.QPS, config.Burst = 50, 100
	config.Wrap(agentwatch.Bound)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, cli.Usage("kubeconfig: %w", err)
	}
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, cli.Usage("kubeconfig: %w", err)
	}
	return &Cluster{Client: client, Dynamic: dyn, Proxy: client.CoreV1().RESTClient()}, nil
}
