// Package clusterflags opens the source of workloads that a binary's flags ask
// for: a cluster, or a file.
package clusterflags

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
	"github.com/pilotlight-dev/pilotlight/internal/workload/kube"
	"github.com/pilotlight-dev/pilotlight/internal/workload/static"
)

// Source serves workloads by name and as a whole.
type Source interface {
	Workload(ctx context.Context, ref workload.Ref, podSelector string) (workload.Workload, error)
	All(ctx context.Context) ([]workload.Workload, error)
	Triggers(ctx context.Context) ([]workload.Trigger, error)
	Synced() bool
	Problem() string // why it is not synced, where that is known
	Denied() []workload.Denial
}

// Flags say where workloads come from.
type Flags struct {
	Static, Kubeconfig, Namespace string
	QPS                           float32
}

// Add declares the flags.
func (f *Flags) Add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.Static, "static-targets", "", "read the targets from this file instead of a cluster")
	fs.StringVar(&f.Kubeconfig, "kubeconfig", "", "kubeconfig file (default: $KUBECONFIG, else the pod's service account, else ~/.kube/config)")
	fs.StringVar(&f.Namespace, "namespace", "", "watch ScaledObjects in this namespace only (default: all)")
	fs.Float32Var(&f.QPS, "kube-api-qps", 50, "requests per second to the API server, at most")
}

// Open returns the source; its watches end with ctx. Errors are usage errors
// of one line.
func (f *Flags) Open(ctx context.Context, getenv func(string) string, log *slog.Logger) (Source, error) {
	if f.Static != "" {
		s, err := static.Open(f.Static, log)
		if err != nil {
			return nil, cli.Usage("--static-targets: %w", err)
		}
		return always{s}, nil
	}
	config, err := f.Config(getenv)
	if err != nil {
		return nil, err
	}
	return connect(ctx, config, f.Namespace, log)
}

// always is a source that needs no time to be complete.
type always struct{ *static.Source }

func (always) Synced() bool              { return true }
func (always) Problem() string           { return "" }
func (always) Denied() []workload.Denial { return nil }

// NotListed is what a probe answers while a source is not synced.
func NotListed(s Source) string {
	text := "the cluster has not been listed yet"
	if p := s.Problem(); p != "" {
		text += ": " + p
	}
	return text
}

// Config finds the cluster: the flag, the environment, the pod's service
// account, the user's kubeconfig. Errors are usage errors of one line.
func (f *Flags) Config(getenv func(string) string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.Kubeconfig
	if env := getenv(clientcmd.RecommendedConfigPathEnvVar); env != "" {
		rules.Precedence = append([]string{env}, rules.Precedence...)
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	switch {
	case err == nil:
		config.QPS, config.Burst = f.QPS, int(2*f.QPS)
		return config, nil
	case errors.Is(err, clientcmd.ErrEmptyConfig) || clientcmd.IsEmptyConfig(err):
		return nil, cli.Usage("no cluster: this is not a pod and there is no kubeconfig: give --kubeconfig FILE, or --static-targets FILE to run without a cluster")
	}
	return nil, cli.Usage("--kubeconfig: %w", err)
}

// greet says so when the API server does not answer: the watches wait for it
// without a word.
func greet(ctx context.Context, d discovery.DiscoveryInterface, host string, log *slog.Logger) {
	for wait := 2 * time.Second; ctx.Err() == nil; wait = min(2*wait, time.Minute) {
		_, err := d.ServerVersion()
		if err == nil {
			return
		}
		log.Warn("the API server does not answer, trying on", "server", host, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

func connect(ctx context.Context, config *rest.Config, namespace string, log *slog.Logger) (Source, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, cli.Usage("kubeconfig: %w", err)
	}
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, cli.Usage("kubeconfig: %w", err)
	}
	go greet(ctx, client.Discovery(), config.Host, log)
	cached := memory.NewMemCacheClient(client.Discovery())
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(cached)
	resolver := scale.NewDiscoveryScaleKindResolver(discovery.ServerResourcesInterface(client.Discovery()))
	scales, err := scale.NewForConfig(config, mapper, dynamic.LegacyAPIPathResolverFunc, resolver)
	if err != nil {
		return nil, cli.Usage("kubeconfig: %w", err)
	}
	return kube.New(ctx, kube.Options{Dynamic: dyn, Client: client, Scales: scales, Mapper: mapper, Namespace: namespace, Logger: log}), nil
}
