package deploy

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

func TestReadmesAreMadeFromTheValues(t *testing.T) {
	t.Parallel()
	for _, chart := range []string{"pilotlight", "vllm-model"} {
		dir := filepath.Join(root, "deploy", "charts", chart)
		want, err := Readme(dir)
		require.NoError(t, err)
		file := filepath.Join(dir, "README.md")
		if *update {
			require.NoError(t, os.WriteFile(file, []byte(want), 0o600))
		}
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(want, string(got)), "%s: go test ./... -update writes it anew", file)
	}
}

func TestReadme(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"Chart.yaml": "name: x\ndescription: Does x\nkubeVersion: '>=1.34.0-0'\n",
		"values.yaml": `# Of the page, not of a value.

a:
  # One | two.
  b: "1"
  c: {d: [e]}
# Kubernetes' own.
resources:
  requests: {cpu: "1"}
`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	got, err := Readme(dir)
	require.NoError(t, err)
	require.Contains(t, got, "| `a.b` | `\"1\"` | One \\| two. |\n| `a.c` | `{d: [e]}` |  |\n| `resources` | `{requests: {cpu: \"1\"}}` | Kubernetes' own. |\n")
}
