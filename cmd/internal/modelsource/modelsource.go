// Package modelsource makes, from the environment, the clients that follow a
// model reference: the registry that it lives in and the store that holds its
// files. It reads the variables that MLflow and AWS users have set already and
// sends nothing.
package modelsource

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/internal/s3conf"
	"github.com/pilotlight-dev/pilotlight/registry"
	"github.com/pilotlight-dev/pilotlight/registry/mlflow"
	"github.com/pilotlight-dev/pilotlight/registry/objectpointer"
)

// Resolver returns what resolves ref, and moves it where it is a pointer. Only
// references that live in a registry need one to be configured, and only pointer
// objects need connect. Errors wrap mlflow.ErrConfig.
func Resolver(ref registry.Ref, connect Connect, getenv func(string) string, log *slog.Logger) (fetcher.Resolver, error) {
	switch ref.Kind {
	case registry.KindObject:
		return fixed{}, nil
	case registry.KindPointer:
		return pointerObjects(ref, connect, log)
	}
	cfg, err := mlflow.ConfigFromEnv(getenv)
	if err != nil {
		return nil, err // names the variable
	}
	cfg.Logger = log
	return mlflow.New(cfg) // as above
}

// MLflow's client also reads what lies behind its server's artifact proxy.
var _ fetcher.Artifacts = (*mlflow.Client)(nil)

// fixed resolves references that name a place themselves.
type fixed struct{}

func (fixed) Resolve(_ context.Context, ref registry.Ref) (registry.Resolution, error) {
	res, ok := registry.Fixed(ref)
	if !ok {
		return registry.Resolution{}, fmt.Errorf("resolving %s: %w: it names no place", ref, registry.ErrUnsupported)
	}
	return res, nil
}

func pointerObjects(ref registry.Ref, connect Connect, log *slog.Logger) (fetcher.Resolver, error) {
	api, err := connect(context.Background(), ref.Location) // contacts nobody
	if err != nil {
		return nil, fmt.Errorf("connecting to the store of %s: %w", ref, err)
	}
	store, ok := api.(objectpointer.Store)
	if !ok {
		return nil, fmt.Errorf("%s: %w: this store cannot be written to", ref, registry.ErrUnsupported)
	}
	return objectpointer.New(store, objectpointer.Options{Logger: log}), nil
}

// Connect opens the store of a location without contacting it.
type Connect func(ctx context.Context, loc registry.Location) (fetcher.S3API, error)

// Connector returns how to reach the store of a location. An endpoint that the
// location names itself (R2) beats the environment, and endpoint, when given,
// beats both. Errors are usage errors of one line.
func Connector(getenv func(string) string, endpoint string) (Connect, error) {
	conf, err := s3conf.FromEnv(getenv)
	if err != nil {
		return nil, cli.Usage("%w", err)
	}
	if endpoint != "" {
		conf.Endpoint = endpoint
	}
	if err := conf.Validate(); err != nil {
		return nil, err // names the endpoint
	}
	return func(ctx context.Context, loc registry.Location) (fetcher.S3API, error) {
		conf := conf
		if loc.Endpoint != "" && endpoint == "" {
			conf.Endpoint = loc.Endpoint
		}
		return s3conf.New(ctx, conf) // the fetcher names the location
	}, nil
}
