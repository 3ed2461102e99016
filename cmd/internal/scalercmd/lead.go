package scalercmd

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/kubernetes"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/cmd/internal/clusterflags"
	"github.com/pilotlight-dev/pilotlight/internal/leader"
)

// leaderFlags say whether this replica takes part in an election.
type leaderFlags struct {
	elect bool
	lease string
}

func (f *leaderFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.BoolVar(&f.elect, "leader-elect", false, "be one of several replicas, of which one is active: it holds a Lease and labels its own pod "+leader.Label+"=true (needs $POD_NAME and $POD_NAMESPACE)")
	fs.StringVar(&f.lease, "lease-name", "pilotlight-scaler", "name of the Lease, in $POD_NAMESPACE")
}

// open returns the election, nil without one. Errors are usage errors.
func (f leaderFlags) open(cluster clusterflags.Flags, getenv func(string) string, log *slog.Logger) (*leader.Elector, error) {
	if !f.elect {
		return nil, nil
	}
	pod, namespace := getenv("POD_NAME"), getenv("POD_NAMESPACE")
	switch {
	case cluster.Static != "":
		return nil, cli.Usage("--leader-elect needs a cluster: leave it out with --static-targets")
	case pod == "" || namespace == "" || f.lease == "":
		return nil, cli.Usage("--leader-elect needs the name and namespace of this pod: set POD_NAME and POD_NAMESPACE by the downward API, and a --lease-name")
	}
	config, err := cluster.Config(getenv)
	if err != nil {
		return nil, err
	}
	config.Timeout = leader.DefaultRenew / 2 // a call that hangs must leave time for another
	// A client of its own: no flood of other calls delays a renewal.
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, cli.Usage("--kubeconfig: %w", err)
	}
	return leader.New(leader.Options{Client: client, Namespace: namespace, Lease: f.lease, Pod: pod, Logger: log}), nil
}

// lead serves for as long as this replica is the active one, which without an
// election is from now until ctx ends. What is remembered is read when it begins
// and written before it ends, so that a successor goes on where this one stopped.
func (p *program) lead(ctx context.Context, checks *health.Server) error {
	work := func(ctx context.Context) error {
		keeping, endKeeping := context.WithCancel(context.WithoutCancel(ctx))
		defer endKeeping()
		var keeper, watcher sync.WaitGroup
		if p.keeper != nil {
			if p.elector != nil { // what another has remembered until now
				p.keeper.Restore(ctx)
			}
			keeper.Go(func() { p.keeper.Run(keeping) })
		}
		if p.watcher != nil {
			watcher.Go(func() { p.watcher.Run(ctx) })
		}
		p.admit(checks)
		<-ctx.Done()
		p.gate.open.Store(false)
		p.scaler.Close() // ends the streams without an error, and hands over the last state
		watcher.Wait()
		endKeeping()
		keeper.Wait()
		return nil
	}
	if p.elector == nil {
		return work(ctx)
	}
	return p.elector.Run(ctx, work) // names the Lease
}

// admit lets calls in.
func (p *program) admit(checks *health.Server) {
	p.gate.open.Store(true)
	checks.SetServingStatus(pb.ExternalScaler_ServiceDesc.ServiceName, healthpb.HealthCheckResponse_SERVING)
}

var errStandby = errors.New("this replica stands by: another one is active")

// gate refuses calls while this replica stands by. It is told apart from a failure
// by the code Unavailable, on which KEDA and activators try again, at the Service.
type gate struct{ open atomic.Bool }

func (g *gate) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if err := g.refuse(info.FullMethod); err != nil {
				return nil, err
			}
			return next(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if err := g.refuse(info.FullMethod); err != nil {
				return err
			}
			return next(srv, stream)
		}),
	}
}

func (g *gate) refuse(method string) error {
	if g.open.Load() || strings.HasPrefix(method, "/"+healthpb.Health_ServiceDesc.ServiceName+"/") {
		return nil
	}
	return status.Error(codes.Unavailable, errStandby.Error())
}

// collector is 1 while this replica is the active one, 0 while it stands by.
func (g *gate) collector() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pilotlight_scaler_leader", Help: "1 while this replica is the active one, 0 while it stands by.",
	}, func() float64 {
		if g.open.Load() {
			return 1
		}
		return 0
	})
}
