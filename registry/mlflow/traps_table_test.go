package mlflow_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEveryTrapHasItsTest compares docs/reference/registry.md with the tests that
// there are.
func TestEveryTrapHasItsTest(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/registry.md")
	require.NoError(t, err)
	traps := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, " | ")
		if len(cells) != 3 || strings.Contains(line, "| Test |") {
			continue
		}
		traps++
		folder := strings.Trim(cells[1], "`")
		name, inner, _ := strings.Cut(strings.Trim(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(cells[2]), "|")), "`"), "/")
		require.True(t, hasTest(t, filepath.Join("..", "..", folder), name, inner), "%s has no %s %s", folder, name, inner)
	}
	require.Greater(t, traps, 50)
}

// hasTest looks for a test in a folder, and for the name of a case of it.
func hasTest(t *testing.T, folder, name, inner string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // a test of this module
		require.NoError(t, err)
		_, body, ok := strings.Cut(string(text), "\nfunc "+name+"(t *testing.T) {")
		if !ok {
			continue
		}
		body, _, _ = strings.Cut(body, "\n}\n")
		return inner == "" || strings.Contains(body, `"`+inner+`"`)
	}
	return false
}
