package repo

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// An instruction is one line of a Dockerfile, continued lines joined.
type instruction struct {
	word string
	args []string // flags left out
	from string   // of COPY --from
	text string   // everything after the word
}

// A stage is what one FROM begins.
type stage struct {
	name, base   string
	instructions []instruction
}

// dockerfile reads what this project's Dockerfile uses of the format: no
// heredoc, no other escape character.
func dockerfile(content string) []stage {
	var stages []stage
	content = regexp.MustCompile(`(?m)^\s*#.*\n`).ReplaceAllString(content, "")
	content = regexp.MustCompile(`\\\n`).ReplaceAllString(content, " ")
	for line := range strings.Lines(content) {
		word, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		if word == "" {
			continue
		}
		i := instruction{word: word, text: strings.TrimSpace(text)}
		for _, arg := range strings.Fields(text) {
			if from, ok := strings.CutPrefix(arg, "--from="); ok {
				i.from = from
			}
			if !strings.HasPrefix(arg, "--") {
				i.args = append(i.args, arg)
			}
		}
		if word == "FROM" {
			s := stage{base: i.args[0]}
			if len(i.args) == 3 && strings.EqualFold(i.args[1], "AS") {
				s.name = i.args[2]
			}
			stages = append(stages, s)
			continue
		}
		if len(stages) > 0 {
			last := &stages[len(stages)-1]
			last.instructions = append(last.instructions, i)
		}
	}
	return stages
}

// dockerProblems checks a Dockerfile against the tree it builds from: what it
// copies, which stages and packages it names, and how its images start.
func dockerProblems(fsys fs.FS, content string, images []string) []string {
	var problems []string
	fault := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	stages := map[string]stage{}
	for _, s := range dockerfile(content) {
		for _, i := range s.instructions {
			if i.word == "COPY" && i.from == "" {
				for _, source := range i.args[:len(i.args)-1] {
					if !exists(fsys, source) {
						fault("%s: COPY %s: not there", s.name, source)
					}
				}
			}
			if _, known := stages[i.from]; i.from != "" && !known {
				fault("%s: COPY --from=%s: no such stage before it", s.name, i.from)
			}
			for _, pkg := range command.FindAllStringSubmatch(i.text, -1) {
				if !exists(fsys, pkg[1]+"/main.go") {
					fault("%s: builds %s, which is no program", s.name, pkg[1])
				}
			}
		}
		stages[s.name] = s
	}
	for _, name := range images {
		if _, ok := stages[name]; !ok {
			fault("%s: no such target", name)
			continue
		}
		problems = append(problems, imageProblems(stages, name)...)
	}
	return problems
}

var (
	command     = regexp.MustCompile(`\./(cmd/[a-z-]+)`)
	numericUser = regexp.MustCompile(`^[1-9][0-9]*(:[0-9]+)?$`)
)

// imageProblems checks what a container started from a stage would be: not
// root by number, and a program that was copied in.
func imageProblems(stages map[string]stage, name string) []string {
	var user, entry string
	copied := map[string]bool{}
	for at := name; at != ""; at = stages[at].base {
		for _, i := range stages[at].instructions {
			switch {
			case i.word == "USER" && user == "":
				user = i.text
			case i.word == "ENTRYPOINT" && entry == "":
				entry = i.text
			case i.word == "COPY":
				copied[i.args[len(i.args)-1]] = true
			}
		}
	}
	var problems []string
	if !numericUser.MatchString(user) {
		problems = append(problems, fmt.Sprintf("%s: runs as %q, which is not a number above 0", name, user))
	}
	var program []string
	if err := json.Unmarshal([]byte(entry), &program); err != nil || len(program) == 0 {
		return append(problems, fmt.Sprintf("%s: ENTRYPOINT %s is not a JSON list", name, entry))
	}
	if !copied[program[0]] {
		problems = append(problems, fmt.Sprintf("%s: starts %s, which is not copied in", name, program[0]))
	}
	return problems
}

func TestDockerfile(t *testing.T) {
	images := []string{"scaler", "activator", "fetcher", "cli"}
	content, err := fs.ReadFile(tree(), "Dockerfile")
	require.NoError(t, err)
	require.Empty(t, dockerProblems(tree(), string(content), images))

	bad := `FROM golang AS build
COPY go.mod gone.mod ./
RUN go build \
    -o /bin/ ./cmd/tool ./cmd/gone
FROM scratch AS base
USER 65532
FROM base AS scaler
COPY --from=build /bin/tool /tool
ENTRYPOINT ["/tool"]
FROM base AS activator
COPY --from=builder /bin/tool /tool
ENTRYPOINT /tool
FROM scratch AS fetcher
COPY --from=build /bin/tool /tool
USER root
ENTRYPOINT ["/other"]
`
	require.Equal(t, []string{
		"build: COPY gone.mod: not there", "build: builds cmd/gone, which is no program",
		"activator: COPY --from=builder: no such stage before it",
		"activator: ENTRYPOINT /tool is not a JSON list",
		`fetcher: runs as "root", which is not a number above 0`, "fetcher: starts /other, which is not copied in",
		"cli: no such target",
	}, dockerProblems(fstest.MapFS{"go.mod": {}, "cmd/tool/main.go": {}}, bad, images))
}

// ignored tells whether a .dockerignore keeps a file out of the build: the
// last pattern that matches the file or a folder above it decides.
func ignored(patterns, file string) bool {
	out := false
	for line := range strings.Lines(patterns) {
		pattern, keep := strings.CutPrefix(strings.TrimSpace(line), "!")
		if pattern == "" || strings.HasPrefix(pattern, "#") {
			continue
		}
		for p := file; p != "."; p = path.Dir(p) {
			if ignorePattern(pattern).MatchString(p) {
				out = !keep
			}
		}
	}
	return out
}

func ignorePattern(pattern string) *regexp.Regexp {
	r := strings.NewReplacer("**/", "(?:.*/)?", "**", ".*", "*", "[^/]*", "?", "[^/]", ".", `\.`)
	return regexp.MustCompile("^" + r.Replace(strings.TrimPrefix(pattern, "/")) + "$")
}

func TestImagesAreBuiltFromWholePrograms(t *testing.T) {
	patterns, err := fs.ReadFile(tree(), ".dockerignore")
	require.NoError(t, err)
	needed := programFiles(t)
	require.Contains(t, needed, "cmd/pilotlight-scaler/main.go")
	for _, file := range append(needed, "go.mod", "go.sum") {
		require.False(t, ignored(string(patterns), file), "%s is needed to build and kept out by .dockerignore", file)
	}
	for file, why := range map[string]string{
		".git/config": "history", "README.md": "text", "bin/pilotlight": "what was built before",
		"scaler/server_test.go": "tests", "scaler/engine/testdata/x": "test data", "test/bench/main.go": "tests",
	} {
		require.True(t, ignored(string(patterns), file), "%s (%s) would make images build anew for nothing", file, why)
	}
}
