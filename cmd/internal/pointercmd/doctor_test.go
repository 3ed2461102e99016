package pointercmd_test

import (
	"errors"
	"net/http"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/pointercmd"
	"github.com/pilotlight-dev/pilotlight/fetcher/agent"
	fake "github.com/pilotlight-dev/pilotlight/internal/fake/s3"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// findings of a doctor's document: "level check" with their texts.
func findings(t *testing.T, out outcome) map[string]string {
	t.Helper()
	got := map[string]string{}
	list, _ := decode(t, out.stdout)["findings"].([]any)
	for _, f := range list {
		f, _ := f.(map[string]any)
		level, _ := f["level"].(string)
		check, _ := f["check"].(string)
		text, _ := f["text"].(string)
		got[level+" "+check] += text + "\n"
	}
	return got
}

func TestDoctorFindsNothingWrong(t *testing.T) {
	w := newWorld(t)
	w.cluster = newCluster(t, workloadOf("Deployment", "llama", 1, nil))
	w.cluster.addPod("llama-a", serving("2", w.digest("2"), agent.EngineReady))
	w.cluster.addPod("llama-old", serving("1", w.digest("1"), agent.EngineReady), terminating)
	w.scalerHeard("keda", "ai", "1", "2")
	out := w.requireCode(0, "doctor", "llama@champion")
	require.Contains(t, out.stdout, "it stands at 2")
	require.NotContains(t, out.stdout, "warning")
	require.NotContains(t, out.stdout, "llama-old", "it leaves")
	require.Zero(t, w.backend.moves)

	w.cluster = nil
	out = w.requireCode(0, "doctor", "llama@champion", "-o", "json")
	require.Contains(t, findings(t, out)["skipped pods"], "no cluster is configured")
}

func TestDoctorFindsWhatIsWrong(t *testing.T) {
	tests := map[string]struct {
		spoil func(*world)
		args  []string
		code  int
		where string
		want  string
	}{
		"PointerMissing": {spoil: func(w *world) { w.backend.failing = registry.ErrNotFound }, code: 11, where: "error pointer", want: "not found"},
		"RegistryDown":   {spoil: func(w *world) { w.backend.failing = registry.ErrUnreachable }, code: 11, where: "error pointer", want: "unreachable"},
		"RecordDamaged":  {spoil: func(w *world) { w.backend.pos.HistoryErr = errors.New("edited") }, code: 10, where: "warning record", want: "edited"},
		"ShardMissing":   {spoil: func(w *world) { w.store.DeleteObject(bucket, "llama/2/model-00001-of-00002.safetensors") }, code: 11, where: "error version", want: "missing"},
		"StoreDenies": {spoil: func(w *world) {
			w.store.SetFault(func(*http.Request) fake.Fault { return fake.Fault{Status: http.StatusForbidden} })
		}, code: 11, where: "error version", want: "grant s3:ListBucket"},
		"NotAllowed": {args: []string{"--allow-location", "s3://other/"}, code: 11, where: "error version", want: "--allow-location"},
		"NoWorkload": {spoil: func(w *world) { w.cluster = newCluster(w.t) }, code: 10, where: "warning workloads", want: "pilotlight.dev/ref"},
		"Paused": {spoil: func(w *world) {
			w.cluster = newCluster(w.t, workloadOf("Deployment", "llama", 0, nil), pausedObject("llama"))
		}, code: 10, where: "warning workloads", want: "paused"},
		"PinnedAway": {spoil: func(w *world) {
			w.cluster = newCluster(w.t, workloadOf("Deployment", "llama", 0, map[string]any{"pilotlight.dev/model-version": "1"}))
		}, code: 10, where: "warning workloads", want: "pinned to 1"},
		"NoLabel":   {spoil: func(w *world) { w.cluster.deletePod("llama-a") }, code: 10, where: "warning pods", want: "are their templates labelled?"},
		"Crashing":  {spoil: func(w *world) { w.cluster.addPod("llama-b", agent.Status{}, crashing) }, code: 11, where: "error pods", want: "ai/llama-b does not start: integrity"},
		"AgentDown": {spoil: func(w *world) { w.cluster.agents["llama-a"].down = true }, code: 10, where: "warning pods", want: "cannot be asked"},
		"AgentBroken": {spoil: func(w *world) {
			w.cluster.agents["llama-a"].set(func(st *agent.Status) { st.Pointer.OK, st.Pointer.Reason = false, "no such alias" })
		}, code: 11, where: "error pods", want: "no such alias"},
		"Behind": {spoil: func(w *world) { w.backend.pos.Version = "3" }, code: 10, where: "warning pods", want: "the pointer names 3"},
		"NobodyKnows": {spoil: func(w *world) {
			w.cluster.agents["llama-a"].set(func(st *agent.Status) { st.Serving.State = agent.EngineUnknown })
		}, code: 10, where: "warning pods", want: "--engine-url"},
		"ScalerUnread": {spoil: func(w *world) {
			w.cluster.client.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, errors.New("configmaps is forbidden")
			})
		}, code: 10, where: "warning scaler", want: "forbidden"},
		"PodsUnlisted": {spoil: func(w *world) {
			w.cluster.client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, errors.New("pods is forbidden")
			})
		}, code: 11, where: "error pods", want: "forbidden"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.cluster = newCluster(t, workloadOf("Deployment", "llama", 1, nil))
			w.cluster.addPod("llama-a", serving("2", w.digest("2"), agent.EngineReady))
			if tc.spoil != nil {
				tc.spoil(w)
			}
			out := w.requireCode(tc.code, append([]string{"doctor", "llama@champion", "-o", "json"}, tc.args...)...)
			got := findings(t, out)
			require.Contains(t, got[tc.where], tc.want, "%v", got)
			require.Zero(t, w.backend.moves)
			require.Zero(t, w.cluster.nudges(), "nobody is bothered")
		})
	}
	w := newWorld(t)
	w.requireCode(2, "doctor", "models:/llama/7")
	w.requireCode(2, "doctor")
}

// What was typed wrongly is usage, and found before anybody is asked.
func TestDoctorRefusesWrongUsage(t *testing.T) {
	w := newWorld(t)
	w.backend.onRead = func(int) { t.Error("the registry was asked") }
	require.Contains(t, w.requireCode(2, "doctor", "llama@champion", "--agents", "http://x/").stderr, "--agents")
	require.Contains(t, w.requireCode(2, "doctor", "llama@champion", "--scaler-namespace", "keda").stderr, "--kubeconfig", "no cluster to look in")
	w.deps.Cluster = func(f pointercmd.ClusterFlags) (*pointercmd.Cluster, error) {
		return pointercmd.OpenCluster(f, func(string) string { return "" })
	}
	missing := filepath.Join(t.TempDir(), "missing")
	require.Contains(t, w.requireCode(2, "doctor", "llama@champion", "--kubeconfig", missing).stderr, missing)
	require.Contains(t, w.requireCode(2, "doctor", "llama@champion", "--kubeconfig", missing, "--agents", "pod", "--scaler-namespace", "keda").stderr, missing)
}

func TestDoctorLooksForTheScalerBesideAgents(t *testing.T) {
	w := newWorld(t)
	w.cluster = newCluster(t)
	w.hosts["pod:9400"] = &engineAgent{status: serving("2", w.digest("2"), agent.EngineReady)}
	w.scalerHeard("keda", "ai", "1", "2")
	got := findings(t, w.requireCode(0, "doctor", "llama@champion", "--agents", "pod", "--scaler-namespace", "keda", "-o", "json"))
	require.Contains(t, got["ok scaler"], "2 moves seen")
	require.Contains(t, got["ok pods"], "pod:9400 is ready")
	got = findings(t, w.requireCode(0, "doctor", "llama@champion", "--agents", "pod", "-o", "json"))
	require.NotContains(t, got, "ok scaler", "it is left alone")
}

// A part of what the pointer records is as good as the whole, for fetchers as
// here; and a move to it does not forget what the whole is.
func TestAPartOfWhatIsRecordedCounts(t *testing.T) {
	ref := "pointer+s3://weights/pointers/llama"
	w := newWorld(t)
	loc, err := registry.ParseLocation("s3://weights/llama/1")
	require.NoError(t, err)
	parsed, err := registry.ParseModel(ref)
	require.NoError(t, err)
	other, err := registry.ParseLocation("s3://weights/llama/2")
	require.NoError(t, err)
	whole := w.digest("1")
	w.backend.pos = registry.Position{Ref: parsed, Version: "v0"}
	w.backend.apply(registry.Change{To: "v1", Location: loc, Digest: whole, Action: registry.ActionPromote})
	w.requireCode(0, "doctor", ref)
	got := findings(t, w.requireCode(0, "doctor", ref, "--include", "config.json", "--any-layout", "-o", "json"))
	require.Contains(t, got["ok version"], "1 files")

	w.backend.apply(registry.Change{To: "v2", Location: other, Digest: w.digest("2"), Action: registry.ActionPromote})
	w.requireCode(0, "promote", ref, "--to", "v1", "--include", "config.json", "--any-layout", "--yes")
	require.Equal(t, "v1", w.backend.pos.Version)
	require.Equal(t, whole, w.backend.pos.Digest)

	w.store.PutObject(bucket, "llama/1/extra.txt", []byte("x"), fake.PutOptions{})
	got = findings(t, w.requireCode(11, "doctor", ref, "--include", "config.json", "--any-layout", "-o", "json"))
	require.Contains(t, got["error version"], "overwritten")
	w.backend.apply(registry.Change{To: "v2", Location: other, Digest: w.digest("2"), Action: registry.ActionPromote})
	w.requireCode(4, "promote", ref, "--to", "v1", "--include", "config.json", "--any-layout", "--yes")
}

// A registry that hangs until the time is up says nothing about the pods: those
// are looked at meanwhile.
func TestDoctorSaysOnlyWhatItHasAsked(t *testing.T) {
	tests := map[string]struct {
		hang  func(*world)
		where string
	}{
		"Registry": {func(w *world) { w.backend.onRead = func(int) { time.Sleep(6 * time.Second) } }, "error pointer"},
		"Store": {func(w *world) {
			w.store.SetFault(func(*http.Request) fake.Fault { time.Sleep(6 * time.Second); return fake.Fault{} })
		}, "error version"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.cluster = newCluster(t, workloadOf("Deployment", "llama", 1, nil))
			// Agents are asked over a network that minds the time.
			w.hosts["pod:9400"] = &engineAgent{status: serving("2", w.digest("2"), agent.EngineReady)}
			w.cluster.addPod("llama-a", serving("2", w.digest("2"), agent.EngineReady))
			w.scalerHeard("keda", "ai", "1", "2")
			tc.hang(w)
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				got := findings(t, w.requireCode(11, "doctor", "llama@champion", "--timeout", "5s", "--agents", "pod", "-o", "json"))
				require.Contains(t, got, tc.where)
				require.Contains(t, got["ok pods"], "pod:9400 is ready", "%v", got)
				require.Less(t, time.Since(began), time.Minute)
				got = findings(t, w.requireCode(11, "doctor", "llama@champion", "--timeout", "5s", "-o", "json"))
				require.Contains(t, got["ok workloads"], "llama", "%v", got)
				require.Contains(t, got["ok scaler"], "2 moves seen")
			})
		})
	}
}
