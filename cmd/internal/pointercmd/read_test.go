package pointercmd_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/modelsource"
	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/fetcher/agent"
	"github.com/pilotlight-dev/pilotlight/registry"
)

var update = flag.Bool("update", false, "write the golden files")

// byHand is what an agent saw of a move that nobody recorded.
func byHand(w *world) agent.Status {
	st := serving("2", w.digest("2"), agent.EngineReady)
	st.History = []agent.Entry{
		{Version: "2", Digest: w.digest("2"), At: start.Add(11 * time.Hour)}, // published again
		{Version: "2", Digest: w.digest("2"), At: start.Add(10 * time.Hour), By: "pilotlight-fetcher@llama-a"},
		{Version: "3", Digest: w.digest("3"), At: start.Add(9 * time.Hour)},
		{Version: "2", Digest: w.digest("2"), At: start.Add(8 * time.Hour)},
	}
	return st
}

// TestJSONDocuments pins what scripts read: run with -update to write it anew,
// and look at every difference.
func TestJSONDocuments(t *testing.T) {
	tests := map[string]struct {
		args []string
		code int
	}{
		"resolve":        {args: []string{"resolve", "llama@champion"}},
		"resolve-bare":   {args: []string{"resolve", "llama@champion", "--no-list"}},
		"history":        {args: []string{"history", "llama@champion", "--agents", "pod"}},
		"promote":        {args: []string{"promote", "llama@champion", "--to", "3", "--yes", "-m", "why"}},
		"dry-run":        {args: []string{"rollback", "llama@champion", "--dry-run"}},
		"already":        {args: []string{"promote", "llama@champion", "--to", "2", "--yes"}},
		"verified":       {args: []string{"promote", "llama@champion", "--to", "2", "--yes", "--wait", "--agents", "pod"}},
		"not-verified":   {args: []string{"promote", "llama@champion", "--to", "3", "--yes", "--wait", "--timeout", "20ms", "--agents", "pod"}, code: 8},
		"status":         {args: []string{"status", "llama@champion", "--agents", "pod,gone"}},
		"pointer-show":   {args: []string{"pointer", "show", "llama@champion"}},
		"pointer-init":   {args: []string{"pointer", "init", "pointer+s3://weights/p", "--location", "s3://weights/llama/1", "--version", "v1", "--yes"}},
		"restart":        {args: []string{"rollback", "llama@champion", "-n", "ai", "--yes", "--restart"}},
		"status-cluster": {args: []string{"status"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.hosts["pod:9400"] = &engineAgent{status: byHand(w)}
			if strings.Contains(strings.Join(tc.args, " "), "restart") || tc.args[len(tc.args)-1] == "status" {
				w.cluster = newCluster(t, workloadOf("Deployment", "llama", 1, nil), pausedObject("llama"))
				w.cluster.addPod("llama-a", byHand(w))
				w.cluster.addPod("llama-b", agent.Status{}, crashing)
			}
			out := w.requireCodeInTime(tc.code, append(tc.args, "-o", "json")...)
			file := filepath.Join("testdata", name+".json")
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(out.stdout), 0o600))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, string(want), out.stdout)
		})
	}
}

func TestYAMLSaysWhatJSONSays(t *testing.T) {
	w := newWorld(t)
	asYAML := w.requireCode(0, "resolve", "llama@champion", "-o", "yaml").stdout
	asJSON, err := yaml.YAMLToJSON([]byte(asYAML))
	require.NoError(t, err)
	require.JSONEq(t, w.requireCode(0, "resolve", "llama@champion", "-o", "json").stdout, string(asJSON))
}

func TestResolveOfAPlaceNeedsNoRegistry(t *testing.T) {
	w := newWorld(t)
	w.deps.Open = func(ref registry.Ref, _ modelsource.Connect) (fetcher.Resolver, error) {
		return modelsource.Resolver(ref, nil, func(string) string { return "" }, nil)
	}
	require.Contains(t, w.requireCode(0, "resolve", "s3://weights/llama/1").stdout, w.digest("1"))
	require.Contains(t, w.requireCode(2, "resolve", "llama@champion").stderr, "MLFLOW_TRACKING_URI is not set")
	require.Contains(t, w.requireCode(3, "resolve", "s3://weights/llama/1", "--allow-location", "s3://weights/gemma").stderr, "which no --allow-location permits")
	require.Contains(t, w.requireCode(3, "resolve", "s3://weights/nothing").stderr, "no objects")
	w.store.SetFault(nil)
	require.NotContains(t, w.requireCode(0, "resolve", "s3://weights/nothing", "--no-list").stdout, "digest")
}

func TestHistoryMarksWhatIsPendingAndWhatWasSeen(t *testing.T) {
	w := newWorld(t)
	w.deps.StdoutTTY = true
	w.hosts["pod:9400"] = &engineAgent{status: byHand(w)}
	pending := registry.Entry{ID: "f", At: start.Add(20 * time.Hour), Action: registry.ActionRollback, From: "2", To: "1", State: registry.StatePending}
	w.backend.pos.History = append([]registry.Entry{pending}, w.backend.pos.History...)
	out := w.requireCode(0, "history", "llama@champion", "--agents", "pod").stdout
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Contains(t, lines[0], "\x1b[1mWHEN\x1b[0m")
	require.Contains(t, lines[1], "\x1b[33mpending\x1b[0m")
	require.Contains(t, lines[2], "seen by pod:9400")
	require.Len(t, lines, 5, "what was published again was not moved")
	require.Contains(t, lines[len(lines)-1], "better")

	for name, env := range map[string]string{"NO_COLOR": "1", "TERM": "dumb"} {
		w.env = map[string]string{name: env}
		require.NotContains(t, w.requireCode(0, "history", "llama@champion", "--no-agents").stdout, "\x1b")
	}
	w.deps.StdoutTTY, w.env = false, nil
	require.NotContains(t, w.requireCode(0, "history", "llama@champion", "--no-agents").stdout, "\x1b")
}

func TestHistoryDoesWithoutAgents(t *testing.T) {
	w := newWorld(t)
	require.Empty(t, w.requireCode(0, "history", "llama@champion").stderr, "no cluster is no news")
	out := w.requireCode(0, "history", "llama@champion", "--agents", "gone")
	require.Contains(t, out.stderr, "note: 1 of 1 agents could not be asked", "it may have seen what nobody else has")
	w.backend.pos.History = nil
	require.Contains(t, w.requireCode(0, "history", "llama@champion").stdout, "no move is recorded")
}

func TestWhatAPodWasStartedWithIsNoMove(t *testing.T) {
	w := newWorld(t)
	st := serving("1", w.digest("1"), agent.EngineReady) // pinned, say
	st.History = []agent.Entry{{Version: "1", Digest: w.digest("1"), At: start.Add(9 * time.Hour)}}
	w.hosts["pod:9400"] = &engineAgent{status: st}
	out := w.requireCode(0, "history", "llama@champion", "--agents", "pod", "-o", "json")
	require.Len(t, decode(t, out.stdout)["moves"], 1)
}

func TestWhatAnotherModelsAgentSawIsNotOurs(t *testing.T) {
	w := newWorld(t)
	st := byHand(w)
	st.Ref = "models:/gemma@champion"
	w.hosts["pod:9400"] = &engineAgent{status: st}
	out := w.requireCode(0, "history", "llama@champion", "--agents", "pod", "-o", "json")
	require.Len(t, decode(t, out.stdout)["moves"], 1)
}

func TestForeignTextCannotSteerTheTerminal(t *testing.T) {
	w := newWorld(t)
	w.backend.pos.History[0].Message = "clear\x1b[2J\r\nthe screen\u009b2J"
	out := w.requireCode(0, "history", "llama@champion").stdout
	require.Contains(t, out, "clear?[2J the screen?2J")
	require.Equal(t, 2, strings.Count(out, "\n"))
}

// What agents, registries and stores say stays text in the final line, too.
func TestForeignTextInErrorsCannotSteerTheTerminal(t *testing.T) {
	w := newWorld(t)
	st := serving("1\x1b[31m", w.digest("1"), agent.EngineState("rea\x1b[2Jdy\u009b2J"+strings.Repeat("y", 10_000)))
	st.Pointer = &agent.Pointer{Code: 6, Reason: "un\x1b]0;title\x07reachable"}
	w.hosts["pod:9400"] = &engineAgent{status: st}
	w.deps.Every = time.Millisecond
	out := w.requireCodeInTime(8, "promote", "llama@champion", "--to", "2", "--yes", "--wait", "--timeout", "500ms", "--agents", "pod")
	final := out.stderr[strings.LastIndex(strings.TrimSpace(out.stderr), "\n")+1:]
	require.Contains(t, final, "pod:9400 rea?[2Jdy?2J")
	require.Less(t, len(final), 1000)
	w.backend.failing = errors.New("a re\x1b[2Jgistry")
	out.stderr += w.requireCode(1, "history", "llama@champion").stderr
	require.NotRegexp(t, "[\x00-\x09\x0b-\x1f\x7f-\u009f]", out.stderr)
}

func TestStatusShowsThePointerAndEachPod(t *testing.T) {
	w := newWorld(t)
	w.cluster = newCluster(t)
	w.cluster.addPod("llama-a", byHand(w))
	w.cluster.addPod("llama-b", agent.Status{}, crashing)
	w.cluster.addPod("llama-c", serving("1", w.digest("1"), agent.EngineLoading)).set(func(s *agent.Status) {
		s.Pointer = &agent.Pointer{Code: 6, Reason: "the registry is unreachable"}
	})
	w.cluster.addPod("llama-d", byHand(w), terminating)
	out := w.requireCode(0, "status", "llama@champion").stdout
	for _, want := range []string{
		"version 2", "ai/llama-a ready 2 " + w.digest("2")[:12], "ai/llama-b failing: integrity",
		"ai/llama-c loading 1 " + w.digest("1")[:12], "the registry is unreachable", "ai/llama-d terminating",
	} {
		require.Contains(t, strings.Join(strings.Fields(out), " "), want)
	}

	// A pointer that cannot be read does not hide the pods, and is the code.
	w.backend.failing = registry.ErrUnreachable
	o := w.requireCode(6, "status", "llama@champion")
	require.Contains(t, o.stdout, "ai/llama-a")
	require.Contains(t, o.stdout, "problem")
	require.Contains(t, w.requireCode(0, "status").stdout, "problem", "of all models it is part of the picture")
}

func TestStatusWithoutAClusterShowsThePointer(t *testing.T) {
	w := newWorld(t)
	out := w.requireCode(2, "status", "llama@champion")
	require.Contains(t, out.stdout, "version   2")
	require.Contains(t, out.stdout, "which pods there are is not known")
	require.Contains(t, out.stderr, "--agents HOST:PORT")
}

// Nobody who could be asked is not the same as nothing that serves.
func TestStatusDoesNotTakeUnknownForNone(t *testing.T) {
	w := newWorld(t)
	model := func(code int, args ...string) map[string]any {
		out := w.requireCode(code, append([]string{"status", "llama@champion", "-o", "json"}, args...)...)
		models, ok := decode(t, out.stdout)["models"].([]any)
		require.True(t, ok)
		require.Len(t, models, 1)
		m, ok := models[0].(map[string]any)
		require.True(t, ok)
		return m
	}
	m := model(2)
	require.Nil(t, m["pods"])
	require.Contains(t, m["podsUnknown"], "no cluster")

	m = model(2, "--agents", "gone,away")
	require.Len(t, m["pods"], 2, "each says why")
	w.hosts["pod:9400"] = &engineAgent{status: byHand(w)}
	require.Len(t, model(0, "--agents", "gone,pod")["pods"], 2, "one answer is an answer")

	w.cluster = newCluster(t)
	m = model(0)
	require.Empty(t, m["pods"])
	require.NotNil(t, m["pods"], "the cluster says that there are none")
	w.cluster.client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("forbidden")
	})
	m = model(2)
	require.Nil(t, m["pods"])
	require.Contains(t, m["podsUnknown"], "forbidden")
}

func TestStatusSaysOnceWhatIsWrong(t *testing.T) {
	w := newWorld(t)
	w.cluster = newCluster(t)
	w.backend.failing = fmt.Errorf("%w: no such alias", registry.ErrNotFound)
	out := w.requireCode(3, "status", "llama@champion")
	require.Equal(t, 1, strings.Count(out.stdout+out.stderr, "no such alias"))
	out = w.requireCode(3, "status", "llama@champion", "-o", "json")
	require.Contains(t, out.stdout, "no such alias", "a program reads one of them only")
}

// An answer that is about another model, or in a format of another time, says
// nothing about this one.
func TestAgentsOfAnotherModelAreUnknown(t *testing.T) {
	w := newWorld(t)
	for name, change := range map[string]func(*agent.Status){
		"gemma":  func(s *agent.Status) { s.Ref = "models:/gemma@champion" },
		"nobody": func(s *agent.Status) { s.Ref = "" },
		"later":  func(s *agent.Status) { s.V = 2 },
	} {
		st := serving("2", w.digest("2"), agent.EngineReady)
		change(&st)
		w.hosts[name+":9400"] = &engineAgent{status: st}
	}
	out := w.requireCode(2, "status", "llama@champion", "--agents", "gemma,nobody,later")
	require.Contains(t, out.stdout, "unknown: its agent brings another model: models:/gemma@champion")
	require.Contains(t, out.stdout, "unknown: its agent does not say which model it brings")
	require.Contains(t, out.stdout, "unknown: its answer has version 2, this program understands 1")
	for name := range w.hosts {
		w.deps.Every = time.Millisecond
		out = w.requireCodeInTime(8, "promote", "llama@champion", "--to", "2", "--yes", "--wait", "--timeout", "500ms", "--agents", strings.TrimSuffix(name, ":9400"))
		require.Contains(t, out.stderr, "0 of 1 pods ready", name)
	}
}

func TestStatusOfAFixedVersion(t *testing.T) {
	w := newWorld(t)
	out := w.requireCode(2, "status", "llama/3", "--agents", "gone").stdout
	require.Contains(t, out, "s3://weights/llama/3")
	require.Contains(t, out, "unknown: ")
}

func TestAgentsThatAreNone(t *testing.T) {
	w := newWorld(t)
	w.hosts["web:9400"] = http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte("<html>")) })
	w.hosts["flood:9400"] = http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write(make([]byte, 2<<20)) })
	w.hosts["moved:9400"] = http.RedirectHandler("http://elsewhere/", http.StatusFound)
	out := w.requireCode(2, "status", "llama@champion", "--agents", "web,flood,moved").stdout
	require.Contains(t, out, "its answer is not an agent's")
	require.Contains(t, out, "longer than")
	require.Contains(t, out, "it answers 302")
}

func TestCompletion(t *testing.T) {
	w := newWorld(t)
	require.Contains(t, w.run("__complete", "promote", "llama@champion", "--to", "").stdout, "2\t2026-03-01, @champion\n")
	require.Contains(t, w.run("__complete", "history", "llama@").stdout, "llama@champion\n")
	require.Contains(t, w.run("__complete", "history", "-o", "").stdout, "yaml\n")
	w.backend.failing = registry.ErrUnreachable
	out := w.run("__complete", "history", "llama@")
	require.NotContains(t, out.stdout, "champion")
	require.Zero(t, out.code)
}

func TestTheRealWiringResolves(t *testing.T) {
	// The store over the network, the registry of the environment.
	w := newWorld(t)
	ts := httptest.NewServer(w.store)
	t.Cleanup(ts.Close)
	w.env["AWS_ACCESS_KEY_ID"], w.env["AWS_SECRET_ACCESS_KEY"] = "id", "not-a-secret"
	w.deps.Connect = func(endpoint string) (modelsource.Connect, error) {
		return modelsource.Connector(func(name string) string { return w.env[name] }, endpoint)
	}
	require.Contains(t, w.requireCode(0, "resolve", "llama@champion", "--s3-endpoint", ts.URL).stdout, w.digest("2"))
	require.Contains(t, w.requireCode(2, "resolve", "llama@champion", "--s3-endpoint", "weights").stderr, "bad S3 endpoint")
}

// recorder is a pointer object that records a digest.
type recorder struct{ registry.Resolution }

func (r recorder) Resolve(_ context.Context, ref registry.Ref) (registry.Resolution, error) {
	r.Ref = ref
	return r.Resolution, nil
}

func TestResolveShowsWhatIsThereAndSaysThatItIsNotWhatIsRecorded(t *testing.T) {
	w := newWorld(t)
	loc, err := registry.ParseLocation(w.backend.places["1"])
	require.NoError(t, err)
	res := registry.Resolution{Version: "1", Location: loc, Digest: w.digest("1")}
	w.resolver = recorder{res}
	require.Empty(t, w.requireCode(0, "resolve", "pointer+s3://weights/live").stderr)
	res.Digest = w.digest("2")
	w.resolver = recorder{res}
	out := w.requireCode(0, "resolve", "pointer+s3://weights/live", "-o", "json")
	require.Equal(t, w.digest("1"), decode(t, out.stdout)["digest"])
	require.Contains(t, out.stderr, "fetchers refuse what is there now")
}

// An API server that hangs until the time is up says nothing against the
// registry, nor the other way round: each is asked meanwhile.
func TestStatusBlamesWhoHangs(t *testing.T) {
	w := newWorld(t)
	w.cluster = newCluster(t)
	w.cluster.addPod("llama-a", serving("2", w.digest("2"), agent.EngineReady))
	var hangs atomic.Bool
	hangs.Store(true)
	w.cluster.client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		if !hangs.Load() {
			return false, nil, nil
		}
		time.Sleep(6 * time.Second)
		return true, nil, context.DeadlineExceeded
	})
	synctest.Test(t, func(t *testing.T) {
		out := w.requireCode(2, "status", "llama@champion", "--timeout", "5s", "-o", "json")
		require.Contains(t, out.stderr, "the pods cannot be listed")
		require.Contains(t, out.stderr, "see --timeout")
		model := decode(t, out.stdout)["models"].([]any)[0].(map[string]any)
		require.Equal(t, "2", model["version"])
		require.Nil(t, model["problem"])
		require.Nil(t, model["pods"], "unknown is not zero")

		hangs.Store(false)
		w.backend.onRead = func(int) { time.Sleep(6 * time.Second) }
		out = w.requireCode(6, "status", "llama@champion", "--timeout", "5s", "-o", "json")
		model = decode(t, out.stdout)["models"].([]any)[0].(map[string]any)
		require.Len(t, model["pods"], 1)
		require.Nil(t, model["podsUnknown"])
	})
}

// Agents and registries that hang are told as such, and take nothing from the
// others.
func TestStatusShowsWhatDoesNotHang(t *testing.T) {
	w := newWorld(t)
	w.hosts["good:9400"] = &engineAgent{status: serving("2", w.digest("2"), agent.EngineReady)}
	w.hosts["deaf:9400"] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		w.WriteHeader(http.StatusGatewayTimeout)
	})
	for _, timeout := range []string{"2s", "30s"} {
		model := decode(t, w.requireCodeInTime(0, "status", "llama@champion", "--agents", "good,deaf", "--timeout", timeout, "-o", "json").stdout)["models"].([]any)[0].(map[string]any)
		require.Len(t, model["pods"], 2)
	}
	models := decode(t, w.requireCodeInTime(0, "status", "--agents", "good,deaf", "--timeout", "2s", "-o", "json").stdout)["models"].([]any)
	for _, m := range models {
		if m.(map[string]any)["ref"] == "models:/llama@champion" {
			require.Nil(t, m.(map[string]any)["problem"])
			return
		}
	}
	require.Fail(t, "the model of the agent that answers is not there")
}
