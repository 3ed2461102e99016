package fetchercmd_test

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/fetchercmd"
	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/fetcher/agent"
	"github.com/pilotlight-dev/pilotlight/warmup/prime"
)

// section returns the rows of the tables below a heading of the reference, as
// cells.
func section(t *testing.T, heading string) [][]string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/reference/fetcher.md")
	require.NoError(t, err)
	_, after, ok := strings.Cut(string(text), "\n## "+heading+"\n")
	require.True(t, ok, heading)
	body, _, _ := strings.Cut(after, "\n## ")
	var rows [][]string
	for line := range strings.Lines(body) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "|---") {
			var cells []string
			for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
				cells = append(cells, strings.TrimSpace(cell))
			}
			rows = append(rows, cells)
		}
	}
	require.NotEmpty(t, rows, heading)
	return rows
}

// quoted are the words in back quotes.
func quoted(cell string) []string {
	var words []string
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
		words = append(words, m[1])
	}
	return words
}

func TestTheReferenceListsEveryFlag(t *testing.T) {
	want, defaults := map[string]string{}, map[string]string{}
	for _, cmd := range fetchercmd.Commands(func(string) string { return "" }) {
		name := strings.Fields(cmd.Use)[0]
		for _, m := range regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z0-9-]+)`).FindAllStringSubmatch(cmd.Flags().FlagUsages(), -1) {
			f := cmd.Flag(m[1])
			if f.DefValue != "[]" && f.DefValue != "0" {
				defaults["--"+f.Name] = strings.NewReplacer("m0s", "m", "h0m0s", "h").Replace(f.DefValue)
			}
			switch {
			case f.Name == "help":
			case want["--"+f.Name] != "":
				want["--"+f.Name] = "both"
			default:
				want["--"+f.Name] = name
			}
		}
	}
	got := map[string]string{}
	for _, row := range section(t, "Flags") {
		if names := quoted(row[0]); len(names) == 1 && strings.HasPrefix(names[0], "--") {
			got[names[0]] = row[1]
			if def := defaults[names[0]]; def != "" {
				require.Equal(t, def, row[2], "the default of %s", names[0])
			}
		}
	}
	require.Equal(t, want, got)
}

func TestTheReferenceListsEveryVariable(t *testing.T) {
	s := newSystem(t)
	var mu sync.Mutex
	read := map[string]bool{}
	getenv := func(name string) string {
		mu.Lock()
		defer mu.Unlock()
		read[strings.ToUpper(name)] = true
		if strings.HasPrefix(name, "AWS_ENDPOINT") || name == "MLFLOW_S3_ENDPOINT_URL" {
			return "" // so that those after it are read too
		}
		return s.env[name]
	}
	require.Equal(t, 2, fetchercmd.Main(t.Context(), []string{"init", "--model", "a@b", "--root", s.root, "--s3-endpoint", "nowhere"}, getenv, io.Discard, io.Discard))
	got := map[string]bool{}
	for _, row := range section(t, "Environment") {
		for _, name := range quoted(row[0]) {
			got[name] = true
		}
	}
	require.Equal(t, slices.Sorted(maps.Keys(read)), slices.Sorted(maps.Keys(got)))
}

func TestTheReferenceListsEveryExitCode(t *testing.T) {
	var want, got []string
	for _, m := range regexp.MustCompile(`(?m)^  (\d+) `).FindAllStringSubmatch(fetchercmd.ExitCodesHelp, -1) {
		want = append(want, m[1])
	}
	for _, row := range section(t, "Exit codes")[1:] {
		got = append(got, row[0])
	}
	require.Equal(t, want, got)
}

// nobody is a pointer that nobody asks.
type nobody struct{}

func (nobody) Look(context.Context) (fetcher.Pointer, error) { return fetcher.Pointer{}, nil }
func (nobody) Pull(context.Context) (fetcher.Result, error)  { return fetcher.Result{}, nil }

func TestTheReferenceListsEveryMetricAndEndpoint(t *testing.T) {
	store, err := fetcher.OpenStore(filepath.Join(t.TempDir(), "models"), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	registry := prometheus.NewRegistry()
	a, err := agent.New(agent.Options{Ref: "llama@champion", Store: store, Puller: nobody{}, Registerer: registry})
	require.NoError(t, err)
	_, err = prime.NewKeeper(prime.KeeperOptions{Registerer: registry})
	require.NoError(t, err)

	descs := make(chan *prometheus.Desc, 1000)
	registry.Describe(descs)
	close(descs)
	var want, got []string
	for d := range descs {
		want = append(want, regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(d.String())[1])
	}
	for _, row := range section(t, "Metrics")[1:] {
		got = append(got, quoted(row[0])...)
	}
	require.ElementsMatch(t, want, got)

	for _, row := range section(t, "The agent's port")[1:] {
		method, path, ok := strings.Cut(quoted(row[0])[0], " ")
		require.True(t, ok)
		if path == "/metrics" || path == "/readyz/engine" {
			continue // the program's, beside the agent's own
		}
		w := httptest.NewRecorder()
		a.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody))
		require.NotContains(t, []int{http.StatusNotFound, http.StatusMethodNotAllowed}, w.Code, path)
	}
}
