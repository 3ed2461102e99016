package repo

import (
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

var (
	testNamed   = regexp.MustCompile("`(Test[A-Z][A-Za-z0-9]*(?:/[0-9]{2}_[A-Za-z0-9]+)?)`")
	testDefined = regexp.MustCompile(`(?m)^func (Test[A-Z][A-Za-z0-9]*)\(`)
	caseDefined = regexp.MustCompile(`(?m)^\t+"([0-9]{2}_[A-Za-z0-9]+)":`)
)

// missingTests are those that a document names and no package has. A numbered
// case, TestName/NN_Case, is one of a map in the file of its test.
func missingTests(t *testing.T, fsys fs.FS) []string {
	t.Helper()
	have := map[string]bool{}
	files(t, fsys, "_test.go", func(_, content string) {
		for _, m := range testDefined.FindAllStringSubmatch(content, -1) {
			have[m[1]] = true
			for _, c := range caseDefined.FindAllStringSubmatch(content, -1) {
				have[m[1]+"/"+c[1]] = true
			}
		}
	})
	var problems []string
	files(t, fsys, ".md", func(path, content string) {
		for i, line := range strings.Split(content, "\n") {
			for _, m := range testNamed.FindAllStringSubmatch(line, -1) {
				if !have[m[1]] {
					problems = append(problems, fmt.Sprintf("%s:%d names %s, which is not there", path, i+1, m[1]))
				}
			}
		}
	})
	return problems
}

func TestTestsThatDocumentsNameExist(t *testing.T) {
	require.Empty(t, missingTests(t, tree()))
	bad := fstest.MapFS{
		"docs/a.md":   {Data: []byte("| x | `TestThere`, `TestGone` |\n| y | `TestThere/01_Case`, `TestThere/02_Gone` |\n")},
		"x/x_test.go": {Data: []byte("package x\n\nfunc TestThere(t *testing.T) {}\n// func TestGone(\n\nvar cases = map[string]bool{\n\t\"01_Case\": true,\n}\n")},
	}
	require.Equal(t, []string{"docs/a.md:1 names TestGone, which is not there", "docs/a.md:2 names TestThere/02_Gone, which is not there"}, missingTests(t, bad))
}

// The table of what KEDA needs has a row for each of the checks, in order, each
// with a test; and no case of TestConformance is left out of it.
func TestEveryCheckOfKEDAHasATest(t *testing.T) {
	page, err := fs.ReadFile(tree(), "docs/reference/scaler.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(page), "\n## What KEDA needs\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n## ")
	rows := regexp.MustCompile(`(?m)^\| ([0-9]+) \| .+ \| (.+) \|$`).FindAllStringSubmatch(table, -1)
	named := map[string]bool{}
	for i, row := range rows {
		require.Equal(t, fmt.Sprint(i+1), row[1])
		tests := testNamed.FindAllStringSubmatch(row[2], -1)
		require.NotEmpty(t, tests, row[0])
		for _, m := range tests {
			named[m[1]] = true
			if _, c, ok := strings.Cut(m[1], "/"); ok {
				require.Equal(t, fmt.Sprintf("%02d", i+1), c[:2], "%s is of another check", m[1])
			}
		}
	}
	require.Len(t, rows, 26)
	cases := 0
	files(t, tree(), "_test.go", func(path, content string) {
		if !strings.HasPrefix(path, "test/conformance/keda/") {
			return
		}
		for _, c := range caseDefined.FindAllStringSubmatch(content, -1) {
			require.True(t, named["TestConformance/"+c[1]], "%s is not in the table", c[1])
			cases++
		}
	})
	require.Positive(t, cases)
}
