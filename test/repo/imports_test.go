package repo

import (
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/deptest"
)

func TestImports(t *testing.T) {
	pkgs, err := deptest.Load(t.Context(), root)
	require.NoError(t, err)
	require.Greater(t, len(pkgs), 20, "the whole module was listed")
	require.Empty(t, deptest.Check(module, pkgs, deptest.Pilotlight()))
}

// stubCopies finds generated or handwritten copies of KEDA's protocol. The
// stubs come from KEDA's own module: a second copy registers the same
// descriptor twice, which panics when the program starts.
func stubCopies(t *testing.T, fsys fs.FS) []string {
	t.Helper()
	var problems []string
	for _, suffix := range []string{".pb.go", ".proto"} {
		files(t, fsys, suffix, func(path, content string) {
			if kedaService.MatchString(content) {
				problems = append(problems, path+" is a copy of KEDA's externalscaler protocol")
			}
		})
	}
	return problems
}

func TestNoCopyOfKEDAsStubs(t *testing.T) {
	require.Empty(t, stubCopies(t, tree()))
	bad := fstest.MapFS{
		"a/scaler.proto":      {Data: []byte("package externalscaler;\nservice ExternalScaler {}")},
		"b/scaler_grpc.pb.go": {Data: []byte(`ServiceName: "externalscaler.ExternalScaler",`)},
		"c/demand.proto":      {Data: []byte("// beside KEDA's external scaler\nservice Demand {}")},
	}
	require.Len(t, stubCopies(t, bad), 2)
}
