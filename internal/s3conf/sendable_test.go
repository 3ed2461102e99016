package s3conf_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/s3conf"
)

// A Secret made from a file often ends in a newline. That is a setting to mend,
// not a store that cannot be reached.
func TestControlCharactersInCredentials(t *testing.T) {
	for _, variable := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION", "MLFLOW_S3_EXPECTED_BUCKET_OWNER"} {
		for value, where := range map[string]string{"AKIA7\n": "at its end", "AKIA7\r\n": "at its end", "AKIA7\tAKIA7": "in it"} {
			_, err := s3conf.FromEnv(func(name string) string {
				if name == variable {
					return value
				}
				return ""
			})
			require.ErrorIs(t, err, s3conf.ErrConfig, variable)
			require.ErrorContains(t, err, variable)
			require.ErrorContains(t, err, where)
			require.NotContains(t, err.Error(), "AKIA7")
		}
	}
}
