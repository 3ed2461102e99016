package registry_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/registry"
)

func TestLocationsBehindAProxy(t *testing.T) {
	for text, want := range map[string]string{
		"mlflow-artifacts:/1/models/m":     "mlflow-artifacts:/1/models/m",
		"mlflow-artifacts:/1/models/m/":    "mlflow-artifacts:/1/models/m",
		"mlflow-artifacts:///1/models/m":   "mlflow-artifacts:/1/models/m",
		"MLFLOW-artifacts:/a b/100%25 ü/c": "mlflow-artifacts:/a b/100%25 ü/c",
		"mlflow-artifacts:/":               "mlflow-artifacts:/",
	} {
		loc, err := registry.ParseLocation(text)
		require.NoError(t, err, text)
		require.Equal(t, want, loc.String())
		again, err := registry.ParseLocation(loc.String())
		require.NoError(t, err)
		require.Equal(t, loc, again, "String is read back as the same location")
		_, err = registry.ParseStored(text)
		require.ErrorIs(t, err, registry.ErrUnsupported, "it is no place in a store")
		_, err = registry.ParseModel(text)
		require.Error(t, err, "a reference to one names no server")
	}
	for _, text := range []string{
		"mlflow-artifacts:", "mlflow-artifacts:1/m", "mlflow-artifacts://host/1/m", "mlflow-artifacts://ann:hunter2@host/1", "mlflow-artifacts:/1/../m",
		"mlflow-artifacts:/./m", "mlflow-artifacts:/1//m", "mlflow-artifacts:/1/a\nb", "mlflow-artifacts:/\xff",
	} {
		_, err := registry.ParseLocation(text)
		require.ErrorIs(t, err, registry.ErrSyntax, text)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestPlacesBehindAProxyLieWithinOneAnother(t *testing.T) {
	for _, tc := range []struct {
		inner, outer string
		want         bool
	}{
		{"mlflow-artifacts:/1/m", "mlflow-artifacts:/", true},
		{"mlflow-artifacts:/1/m", "mlflow-artifacts:/1", true},
		{"mlflow-artifacts:/1/m", "mlflow-artifacts:/1/m/", true},
		{"mlflow-artifacts:/10/m", "mlflow-artifacts:/1", false},
		{"mlflow-artifacts:/1", "mlflow-artifacts:/1/m", false},
		{"mlflow-artifacts:/1/m", "s3://bucket", false},
		{"s3://bucket/1", "mlflow-artifacts:/", false},
	} {
		inner, err := registry.ParseLocation(tc.inner)
		require.NoError(t, err)
		outer, err := registry.ParseLocation(tc.outer)
		require.NoError(t, err)
		require.Equal(t, tc.want, inner.Within(outer), "%s in %s", tc.inner, tc.outer)
	}
}
