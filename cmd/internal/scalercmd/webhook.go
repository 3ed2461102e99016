package scalercmd

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/cmd/internal/clusterflags"
	"github.com/pilotlight-dev/pilotlight/scaler/webhook"
)

// hook is MLflow's webhook with what it sets off.
type hook struct {
	handler *webhook.Handler
	nudger  *webhook.Nudger
}

// openWebhook returns nil without a secret. Errors are usage errors.
func openWebhook(secret string, source clusterflags.Source, log *slog.Logger, r prometheus.Registerer) (*hook, error) {
	if secret == "" {
		return nil, nil
	}
	agents, ok := source.(webhook.Agents)
	if !ok {
		return nil, cli.Usage("--mlflow-webhook-secret-file needs a cluster: with --static-targets there are no agents to nudge")
	}
	nudger, err := webhook.NewNudger(agents, log, r)
	if err != nil {
		return nil, err
	}
	handler, err := webhook.New(webhook.Options{SecretFile: secret, Nudge: nudger.Nudge, Logger: log, Registerer: r})
	if err != nil {
		return nil, cli.Usage("--mlflow-webhook-secret-file: %w", err)
	}
	return &hook{handler, nudger}, nil
}
