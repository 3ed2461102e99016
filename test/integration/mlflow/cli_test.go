package mlflow_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/exitcode"
)

// served is the model that the commands move, and its alias.
const (
	served    = "served llm"
	servedRef = "models:/" + served + "@champion"
)

// commands is the command line against a server, in the order of a life.
func commands(tr tracking) []part {
	return []part{
		{"Versions", func(t *testing.T) { tr.registerServed(t) }},
		{"ResolveHistoryStatus", func(t *testing.T) { requireReading(t, tr) }},
		{"PromoteAndRollBack", func(t *testing.T) { requireMoves(t, tr) }},
		{"VersionsThatCannotBeServed", func(t *testing.T) { requirePreflight(t, tr) }},
		{"MovedBySomebodyElse", func(t *testing.T) { requireConflicts(t, tr) }},
	}
}

// servedFiles is version n.
func servedFiles(n int) map[string][]byte {
	return map[string][]byte{
		"config.json": fmt.Appendf(nil, `{"architectures":["LlamaForCausalLM"],"version":%d}`, n), "tokenizer.json": []byte(`{"version":"1.0"}`),
		"model.safetensors": safetensors("w", byte(n), 100_000+n),
	}
}

// registerServed makes versions 1 to 3, which are good, and those that are not:
// 4 lacks a shard, 5 has failed, 6 is being registered, 7 was deleted, and of 8
// there is nothing in the store.
func (tr tracking) registerServed(t *testing.T) {
	t.Helper()
	tr.call(t, http.MethodPost, "registered-models/create", map[string]string{"name": served}, nil)
	for n := 1; n <= 8; n++ {
		place := fmt.Sprintf("served/%d", n)
		files := servedFiles(n)
		if n == 4 {
			files = loggedFiles()
			delete(files, "model/model-00002-of-00002.safetensors")
		}
		if n != 8 {
			tr.store.put(t, place, files)
		}
		require.Equal(t, fmt.Sprint(n), tr.register(t, served, "s3://"+bucket+"/"+place))
	}
	const status = "UPDATE model_versions SET status = ? WHERE name = ? AND version = ?"
	tr.sql(t, status, "FAILED_REGISTRATION", served, "5")
	tr.sql(t, status, "PENDING_REGISTRATION", served, "6")
	tr.call(t, http.MethodDelete, "model-versions/delete", map[string]string{"name": served, "version": "7"}, nil)
	tr.setAlias(t, served, "champion", "1")
}

// cli runs the command line as a person named kim would.
func (tr tracking) cli(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	env := tr.variables()
	env["USER"], env["HOME"] = "kim", t.TempDir() // no kubeconfig
	stdout, stderr, code = output(t, 2*time.Minute, environment(env), tool(t, "PILOTLIGHT_CLI"), args...)
	for _, text := range []string{stdout, stderr} {
		require.NotContains(t, text, secretKey)
		if tr.password != "" {
			require.NotContains(t, text, tr.password)
		}
	}
	return code, stdout, stderr
}

// requireCLI demands an exit code and returns what was printed: on stdout, or
// on stderr if the command is to fail.
func (tr tracking) requireCLI(t *testing.T, want int, args ...string) string {
	t.Helper()
	code, stdout, stderr := tr.cli(t, args...)
	require.Equal(t, want, code, "pilotlight %s\nstdout: %s\nstderr: %s", strings.Join(args, " "), stdout, stderr)
	if want != exitcode.OK {
		require.Equal(t, 1, strings.Count(strings.TrimSpace(stderr)+"\n", "\n"), "one line: %s", stderr)
		return stderr
	}
	return stdout
}

// standing is all that a move could change: the alias, and the record in its tag.
type standing struct{ version, record string }

func (tr tracking) standing(t *testing.T) standing {
	t.Helper()
	var got struct {
		Model struct {
			Aliases []struct{ Alias, Version string } `json:"aliases"`
			Tags    []struct{ Key, Value string }     `json:"tags"`
		} `json:"registered_model"`
	}
	tr.call(t, http.MethodGet, "registered-models/get?"+url.Values{"name": {served}}.Encode(), nil, &got)
	var s standing
	for _, a := range got.Model.Aliases {
		if a.Alias == "champion" {
			s.version = a.Version
		}
	}
	for _, tag := range got.Model.Tags {
		if tag.Key == "pilotlight.history.champion" {
			s.record = tag.Value
		}
	}
	return s
}

func requireReading(t *testing.T, tr tracking) {
	t.Helper()
	require.Contains(t, tr.requireCLI(t, exitcode.OK, "resolve", servedRef), "s3://"+bucket+"/served/1")
	var doc struct {
		Version, Location, Digest string
	}
	require.NoError(t, json.Unmarshal([]byte(tr.requireCLI(t, exitcode.OK, "resolve", served+"@champion", "-o", "json")), &doc))
	require.Equal(t, "1", doc.Version)
	require.Len(t, doc.Digest, 64)
	require.Contains(t, tr.requireCLI(t, exitcode.Usage, "status", servedRef), "no cluster") // which pods there are is not known
	tr.requireCLI(t, exitcode.OK, "history", servedRef)
	require.Contains(t, tr.requireCLI(t, exitcode.PointerBroken, "resolve", "models:/"+served+"@nobody"), "nobody")
	require.Contains(t, tr.requireCLI(t, exitcode.PointerBroken, "rollback", servedRef, "--yes"), "nothing is known about what served before 1")
}

func requireMoves(t *testing.T, tr tracking) {
	t.Helper()
	before := tr.standing(t)
	require.Contains(t, tr.requireCLI(t, exitcode.OK, "promote", servedRef, "--to", "2", "--dry-run"), "would be moved from 1 to 2")
	require.Contains(t, tr.requireCLI(t, exitcode.Usage, "promote", servedRef, "--to", "2"), "--yes")
	require.Equal(t, before, tr.standing(t))

	require.Contains(t, tr.requireCLI(t, exitcode.OK, "promote", servedRef, "--to", "2", "--yes", "--message", "it answers better"), "moved from 1 to 2")
	require.Equal(t, "2", tr.standing(t).version)
	tr.requireCLI(t, exitcode.OK, "promote", servedRef, "--to", "3", "--yes", "-m", "größer, \"besser\" 🔥")
	require.Contains(t, tr.requireCLI(t, exitcode.OK, "rollback", servedRef, "--yes", "-m", "it was not"), "moved from 3 to 2")

	again := tr.standing(t)
	for range 2 { // a second rollback would only undo the first
		refused := tr.requireCLI(t, exitcode.Usage, "rollback", servedRef, "--yes")
		require.Contains(t, refused, "rollback "+servedRef+" --to 1")
		require.Contains(t, refused, "promote "+servedRef+" --to 3")
	}
	require.Equal(t, again, tr.standing(t))
	require.Contains(t, tr.requireCLI(t, exitcode.OK, "rollback", servedRef, "--to", "1", "--yes"), "moved from 2 to 1")
	require.Contains(t, tr.requireCLI(t, exitcode.OK, "promote", servedRef, "--to", "1", "--yes"), "already")

	var history struct {
		Moves []struct{ Action, From, To, By, Message string } `json:"moves"`
	}
	require.NoError(t, json.Unmarshal([]byte(tr.requireCLI(t, exitcode.OK, "history", servedRef, "-o", "json")), &history))
	var told []string
	for _, m := range history.Moves {
		require.True(t, strings.HasPrefix(m.By, "kim@"), m.By)
		told = append(told, fmt.Sprintf("%s %s>%s %s", m.Action, m.From, m.To, m.Message))
	}
	require.Equal(t, []string{
		"rollback 2>1 ", "rollback 3>2 it was not", "promote 2>3 größer, \"besser\" 🔥", "promote 1>2 it answers better",
	}, told)
}

// requirePreflight asks for moves to versions that could not be served: none is
// made, and none is recorded.
func requirePreflight(t *testing.T, tr tracking) {
	t.Helper()
	before := tr.standing(t)
	for name, tc := range map[string]struct {
		to   string
		more []string
		code int
		says string
	}{
		"Incomplete":      {"4", nil, exitcode.Integrity, "model-00002-of-00002.safetensors"},
		"Failed":          {"5", nil, exitcode.PointerBroken, "FAILED_REGISTRATION"},
		"Pending":         {"6", nil, exitcode.RegistryUnreachable, "being registered"},
		"Deleted":         {"7", nil, exitcode.PointerBroken, "version=7"},
		"Empty":           {"8", nil, exitcode.PointerBroken, "served/8"},
		"NeverThere":      {"99", nil, exitcode.PointerBroken, "version=99"},
		"NoNumber":        {"newest", nil, exitcode.Usage, "--to"},
		"NotAllowedThere": {"2", []string{"--allow-location", "s3://" + bucket + "/served/3"}, exitcode.PointerBroken, "--allow-location"},
	} {
		for _, verb := range []string{"promote", "rollback"} {
			args := append([]string{verb, servedRef, "--to", tc.to, "--yes"}, tc.more...)
			require.Contains(t, tr.requireCLI(t, tc.code, args...), tc.says, name)
		}
	}
	require.Equal(t, before, tr.standing(t))
}

// requireConflicts lets MLflow's own client move the alias while a command is
// under way: before it reads the alias a second time, and a third.
func requireConflicts(t *testing.T, tr tracking) {
	t.Helper()
	for i, reads := range []int32{2, 3} {
		tr.setAlias(t, served, "champion", "1")
		before, theirs := tr.standing(t), fmt.Sprint(2+i)
		between := tr.interrupted(t, reads, func() { tr.moveInPython(t, theirs) })
		says := between.requireCLI(t, exitcode.Conflict, "promote", servedRef, "--to", fmt.Sprint(3-i), "--yes", "-m", "too late")
		require.Contains(t, says, "somebody else")
		after := tr.standing(t)
		require.Equal(t, standing{theirs, before.record}, after, "theirs stands, and nothing of ours was written")
	}
}

// interrupted is the server behind a proxy that does something before it passes
// on the n-th question for an alias.
func (tr tracking) interrupted(t *testing.T, n int32, do func()) tracking {
	t.Helper()
	target, err := url.Parse(tr.url)
	require.NoError(t, err)
	var asked atomic.Int32
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "registered-models/alias") && asked.Add(1) == n {
			do()
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(ts.Close)
	tr.url = ts.URL
	return tr
}

// moveInPython moves the alias as MLflow's users do.
func (tr tracking) moveInPython(t *testing.T, version string) {
	t.Helper()
	python := filepath.Join(tool(t, "PILOTLIGHT_MLFLOW"), "bin", "python")
	_, stderr, code := output(t, time.Minute, environment(tr.variables()), python, "-W", "ignore", "-c",
		"import sys, mlflow; mlflow.MlflowClient().set_registered_model_alias(*sys.argv[1:])", served, "champion", version)
	require.Zero(t, code, stderr)
}

// TestHelpIsQuick times what people wait for at every mistyped flag.
func TestHelpIsQuick(t *testing.T) {
	binary := tool(t, "PILOTLIGHT_CLI")
	const runs, goal = 20, 30 * time.Millisecond
	var total time.Duration
	for range runs {
		began := time.Now()
		_, stderr, code := output(t, time.Minute, environment(nil), binary, "--help")
		total += time.Since(began)
		require.Zero(t, code, stderr)
	}
	t.Logf("pilotlight --help takes %.1f ms (mean of %d, goal %v)", float64(total.Microseconds())/1000/runs, runs, goal)
	require.Less(t, total/runs, 10*goal, "busy machines are forgiven much, not everything")
}
