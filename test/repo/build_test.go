package repo

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

var (
	target    = regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`)
	phony     = regexp.MustCompile(`(?m)^\.PHONY: (.*)$`)
	called    = regexp.MustCompile("(?m)(?:`|^(?:run |    )(?:timeout \\d+ )?)make ([a-z][a-z0-9-]*)")
	mentioned = regexp.MustCompile(`\./((?:hack|test)/[a-z0-9/.-]*[a-z0-9])`)
	link      = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
)

// danglingNames finds, in the Makefile, .ci/run and the Markdown pages, make
// targets, scripts and linked files that are not there.
func danglingNames(t *testing.T, fsys fs.FS) []string {
	t.Helper()
	makefile, err := fs.ReadFile(fsys, "Makefile")
	require.NoError(t, err)
	targets := map[string]bool{}
	for _, m := range target.FindAllStringSubmatch(string(makefile), -1) {
		targets[m[1]] = true
	}
	var problems []string
	check := func(file, content string) {
		for _, m := range called.FindAllStringSubmatch(content, -1) {
			if !targets[m[1]] {
				problems = append(problems, file+" calls make "+m[1]+", which is no target")
			}
		}
		for _, m := range mentioned.FindAllStringSubmatch(content, -1) {
			if !exists(fsys, m[1]) {
				problems = append(problems, file+" names "+m[1]+", which is not there")
			}
		}
	}
	check("Makefile", string(makefile))
	for _, m := range phony.FindAllStringSubmatch(string(makefile), -1) {
		if !targets[m[1]] {
			problems = append(problems, "Makefile declares "+m[1]+", which is no target")
		}
	}
	files(t, fsys, "/run", check)
	files(t, fsys, ".md", func(file, content string) {
		if inTestdata(file) {
			return
		}
		check(file, content)
		for _, m := range link.FindAllStringSubmatch(content, -1) {
			if !exists(fsys, path.Join(path.Dir(file), m[1])) {
				problems = append(problems, file+" links to "+m[1]+", which is not there")
			}
		}
	})
	return problems
}

func TestNamesInBuildFilesAndPages(t *testing.T) {
	require.Empty(t, danglingNames(t, tree()))
	bad := fstest.MapFS{
		"Makefile":    {Data: []byte(".PHONY: gone\ntest: ## test\n\tgo run ./hack/count ./...\n")},
		".ci/run":     {Data: []byte("run make test\nrun timeout 9 make lint\n")},
		"docs/a.md":   {Data: []byte("Call `make test`, or `make all`; see [b](b.md), [c](../c.md#x) and [the web](https://x.y). Do make sure.\n")},
		"docs/b.md":   {},
		"hack/a/a.go": {},
	}
	require.Equal(t, []string{
		"Makefile names hack/count, which is not there", "Makefile declares gone, which is no target",
		".ci/run calls make lint, which is no target", "docs/a.md calls make all, which is no target",
		"docs/a.md links to ../c.md, which is not there",
	}, danglingNames(t, bad))
}

// undocumentedCodes returns the constants of an exit code file that page has no
// table row for.
func undocumentedCodes(t *testing.T, source, page string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), "exitcode.go", source, 0)
	require.NoError(t, err)
	var problems []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			value, isLit := spec.Values[0].(*ast.BasicLit)
			require.True(t, isLit, "an exit code is a plain number")
			if !strings.Contains(page, "\n| "+value.Value+" |") {
				problems = append(problems, value.Value+" "+spec.Names[0].Name)
			}
		}
		return true
	})
	return problems
}

func TestExitCodesAreDocumented(t *testing.T) {
	page, err := fs.ReadFile(tree(), "docs/architecture.md")
	require.NoError(t, err)
	source, err := fs.ReadFile(tree(), "internal/exitcode/exitcode.go")
	require.NoError(t, err)
	require.Empty(t, undocumentedCodes(t, string(source), string(page)))
	require.Equal(t, []string{"10 Two"}, undocumentedCodes(t, "package exitcode\nconst (\nOne = 1\nTwo = 10\n)", "\n| 1 | one, not 10 |"))
}
