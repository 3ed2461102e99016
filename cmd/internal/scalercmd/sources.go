package scalercmd

import (
	"context"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/internal/trigger"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
	"github.com/pilotlight-dev/pilotlight/scaler"
	"github.com/pilotlight-dev/pilotlight/scaler/demand/source"
)

// sources are those of --demand-sources; the zero value has none.
type sources struct{ set *source.Set }

// openSources reads the file once: another one needs another start. Errors are
// usage errors.
func openSources(path string, log *slog.Logger, r prometheus.Registerer) (sources, error) {
	if path == "" {
		return sources{}, nil
	}
	body, err := os.ReadFile(path) //nolint:gosec // the operator's own file
	if err != nil {
		return sources{}, cli.Usage("--demand-sources: %w", err)
	}
	entries, err := source.Parse(body)
	if err != nil {
		return sources{}, cli.Usage("--demand-sources: %s: %w", path, err)
	}
	set, err := source.New(entries, source.Options{Logger: log, Registerer: r})
	if err != nil {
		return sources{}, cli.Usage("--demand-sources: %s: %w", path, err)
	}
	return sources{set}, nil
}

func (s sources) run(ctx context.Context) {
	if s.set != nil {
		s.set.Run(ctx)
	}
}

// forScaler is nil where there is no file.
func (s sources) forScaler() scaler.Sources {
	if s.set == nil {
		return nil
	}
	return s
}

// Check implements scaler.Sources.
func (s sources) Check(ref workload.Ref, t trigger.Trigger) []trigger.Fault {
	return s.set.Check(ref, t)
}

// Open implements scaler.Sources.
func (s sources) Open(ref workload.Ref, t trigger.Trigger) scaler.Source { return s.set.Open(ref, t) }
