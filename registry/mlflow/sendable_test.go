package mlflow_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/registry/mlflow"
)

// A Secret made from a file often ends in a newline. That is a setting to mend,
// not a server that cannot be reached.
func TestControlCharactersInCredentials(t *testing.T) {
	cases := map[string]struct{ variable, value, where string }{
		"Token":     {"MLFLOW_TRACKING_TOKEN", "s3cr3t\n", "at its end"},
		"TokenCRLF": {"MLFLOW_TRACKING_TOKEN", "s3cr3t\r\n", "at its end"},
		"User":      {"MLFLOW_TRACKING_USERNAME", "s3cr3t\n", "at its end"},
		"Password":  {"MLFLOW_TRACKING_PASSWORD", "s3cr3t\nmore", "in it"},
		"Workspace": {"MLFLOW_WORKSPACE", "s3cr3t\x00", "at its end"},
		"KeyID":     {"AWS_ACCESS_KEY_ID", "s3cr3t\n", "at its end"},
		"Region":    {"AWS_REGION", "s3cr3t\n", "at its end"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			env := map[string]string{"MLFLOW_TRACKING_URI": "http://127.0.0.1:1", "MLFLOW_TRACKING_AWS_SIGV4": "true"}
			env[tc.variable] = tc.value
			cfg, err := mlflow.ConfigFromEnv(func(k string) string { return env[k] })
			if err == nil {
				_, err = mlflow.New(cfg)
			}
			require.ErrorIs(t, err, mlflow.ErrConfig)
			require.ErrorContains(t, err, tc.variable)
			require.ErrorContains(t, err, tc.where)
			require.NotContains(t, err.Error(), "s3cr3t")
			require.NotContains(t, err.Error(), "\n")
		})
	}
}
