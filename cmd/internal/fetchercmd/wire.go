package fetchercmd

import (
	"context"
	"fmt"
	"os"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/modelsource"
	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/internal/s3conf"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// options turns flags and environment into the fetcher's options.
func (a *app) options() (fetcher.Options, error) {
	if a.flags.model == "" || a.flags.root == "" {
		return fetcher.Options{}, fmt.Errorf("%w: --model and --root are required", fetcher.ErrUsage)
	}
	if a.flags.deadline <= 0 || a.flags.keep < 1 || a.flags.keepFor <= 0 {
		return fetcher.Options{}, fmt.Errorf("%w: --deadline, --keep and --keep-for must be positive", fetcher.ErrUsage)
	}
	if a.flags.readOnly && a.flags.link == "" {
		return fetcher.Options{}, fmt.Errorf("%w: --read-only sets the pod's own link: give its path with --link", fetcher.ErrUsage)
	}
	ref, err := registry.ParseModel(a.flags.model)
	if err != nil {
		return fetcher.Options{}, fmt.Errorf("%w: --model: %w", fetcher.ErrUsage, err)
	}
	opts := fetcher.Options{
		Ref: ref, Root: a.flags.root, SubPath: a.flags.subPath, AnyLayout: a.flags.anyLayout,
		Include: a.flags.include, Exclude: a.flags.exclude, Verify: fetcher.Verify(a.flags.verify),
		Pin: a.flags.pin, Offline: a.flags.offline, AdoptRoot: a.flags.adopt,
		Retention: fetcher.Retention{Keep: a.flags.keep, KeepFor: a.flags.keepFor},
		Link:      a.flags.link, Reader: a.flags.reader, ReadOnly: a.flags.readOnly,
		Deadline: a.flags.deadline, By: program, Logger: a.log,
	}
	if err := a.flags.transfer.apply(&opts); err != nil {
		return fetcher.Options{}, err
	}
	for _, text := range a.flags.allow {
		loc, err := registry.ParseLocation(text)
		if err != nil {
			return fetcher.Options{}, fmt.Errorf("%w: --allow-location: %w", fetcher.ErrUsage, err)
		}
		opts.AllowLocations = append(opts.AllowLocations, loc)
	}
	if opts.ReadOnly {
		return opts, nil // asks neither the registry nor the store
	}
	connect, badStore := a.connector(storeOfFiles)
	if opts.Resolver, err = a.resolver(ref); err != nil {
		return fetcher.Options{}, err
	}
	opts.Connect = connect
	return opts, badStore // names the setting
}

// resolver returns what follows a reference: MLflow, a pointer object in the
// store, or nothing but the reference itself.
func (a *app) resolver(ref registry.Ref) (fetcher.Resolver, error) {
	var connect modelsource.Connect
	if ref.Kind == registry.KindPointer {
		var err error
		if connect, err = a.connector(storeOfPointers); err != nil {
			return nil, err
		}
	}
	return modelsource.Resolver(ref, connect, a.getenv, a.log) // names the variable
}

// What a store is asked for: a pointer object is not encrypted with the key of
// the files, since the command line that moves it has none.
const (
	storeOfFiles    = false
	storeOfPointers = true
)

// connector returns how to reach the store of a location. An endpoint that the
// location names itself (R2) beats the environment, and the flag beats both.
func (a *app) connector(pointers bool) (func(context.Context, registry.Location) (fetcher.S3API, error), error) {
	conf, err := a.storeConfig()
	if err != nil {
		return nil, err
	}
	if pointers {
		conf.CustomerKey = ""
	}
	return func(ctx context.Context, loc registry.Location) (fetcher.S3API, error) {
		conf := conf
		if loc.Endpoint != "" && a.flags.endpoint == "" {
			conf.Endpoint = loc.Endpoint
		}
		return s3conf.New(ctx, conf) // the fetcher names the location
	}, nil
}

// storeConfig is what flags and environment say of every store.
func (a *app) storeConfig() (s3conf.Options, error) {
	conf, err := s3conf.FromEnv(a.getenv)
	if err != nil {
		return conf, err // names the variable
	}
	if a.flags.endpoint != "" {
		conf.Endpoint = a.flags.endpoint
	}
	if a.flags.addressing != "" {
		conf.Addressing = a.flags.addressing
	}
	if file := a.flags.customerKeyFile; file != "" {
		text, err := os.ReadFile(file) //nolint:gosec // the user's choice
		if err == nil {
			conf.CustomerKey, err = s3conf.ParseCustomerKey(text)
		}
		if err != nil {
			return conf, fmt.Errorf("%w: --sse-c-key-file: %w", fetcher.ErrUsage, err)
		}
	}
	conf.RequesterPays = conf.RequesterPays || a.flags.requesterPays
	conf.Workers = a.flags.transfer.connections
	return conf, conf.Validate() // names the setting
}
