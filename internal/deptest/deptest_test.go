package deptest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// The module in testdata/bad breaks every rule once, and does next to each
// fault what is allowed.
func TestEveryRuleCanFail(t *testing.T) {
	t.Setenv("GOPROXY", "off")
	pkgs, err := Load(t.Context(), "testdata/bad")
	require.NoError(t, err)
	rules := Pilotlight()
	why := func(i int) string { return rules[i].Why }
	want := []string{
		"example.com/bad/cmd/pilotlight-scaler imports example.com/bad/internal/fake: " + why(8),
		"example.com/bad/fetcher imports example.com/bad/registry/mlflow: " + why(3),
		"example.com/bad/internal/leaf imports example.com/bad/cmd/tool: " + why(0),
		"example.com/bad/internal/leaf imports example.com/bad/registry: " + why(6),
		"example.com/bad/internal/leaf imports example.com/bad/test/helper: " + why(7),
		"example.com/bad/registry/mlflow imports example.com/bad/warmup/coldstart: " + why(4),
		"example.com/bad/registry/mlflow imports github.com/mlflow/mlflow-go/pkg/client: " + why(9),
		"example.com/bad/scaler imports example.com/bad/fetcher: " + why(2),
		"example.com/bad/scaler/policy imports math/rand: " + why(1),
		"example.com/bad/scaler/policy imports os: " + why(1),
		"example.com/bad/warmup/coldstart imports testing: " + why(7),
	}
	require.Empty(t, cmp.Diff(want, Check("example.com/bad", pkgs, rules)))
}

func TestWarmupStandsAlone(t *testing.T) {
	pkgs := []Package{{ImportPath: "m/warmup/activator", TestImports: []string{"m/scaler/demand"}}}
	require.Len(t, Check("m", pkgs, Pilotlight()), 1, "a test of one part must not need another part either")
}

func TestLoadSaysWhatIsWrong(t *testing.T) {
	_, err := Load(t.Context(), "no-such-folder")
	require.ErrorContains(t, err, "no-such-folder")
}
