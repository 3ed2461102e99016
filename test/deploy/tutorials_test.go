package deploy

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTutorialsFailAsDocumented feeds the manifests of the tutorials to the API
// server. docs/tutorial-fixes.md must say, in the row of each, exactly what it
// answers, and nothing about manifests that are not there.
func TestTutorialsFailAsDocumented(t *testing.T) {
	t.Parallel()
	s := apiServer(t)
	page, err := os.ReadFile(root + "/docs/tutorial-fixes.md")
	require.NoError(t, err)
	docs, err := ReadYAML("testdata/tutorials")
	require.NoError(t, err)
	require.Len(t, docs, 13)
	rows := map[string]string{}
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "| `0") {
			rows[strings.Split(line, " | ")[0][2:]] = line
		}
	}
	for _, d := range docs {
		name := strings.TrimSpace(fmt.Sprintf("`%s` %s %s", strings.TrimPrefix(d.Source, "testdata/tutorials/"), d.Object.GetKind(), d.Object.GetName()))
		row, ok := rows[name]
		delete(rows, name)
		if d.Object.GetNamespace() == "" {
			d.Object.SetNamespace("ai") // where the tutorials' reader would be
		}
		said, err := s.dryRun(t.Context(), d)
		answer := "accepted"
		if err != nil {
			answer = "`" + err.Error() + "`"
		}
		for _, warning := range said {
			answer += "; warning `" + warning + "`"
		}
		if !ok || !strings.Contains(row, " | "+answer+" | ") {
			t.Errorf("docs/tutorial-fixes.md must say of %s: %s", name, answer)
		}
	}
	require.Empty(t, rows, "rows about manifests that are not there")
}
