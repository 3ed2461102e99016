package pointercmd_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/agentwatch"
	"github.com/pilotlight-dev/pilotlight/cmd/internal/pointercmd"
	"github.com/pilotlight-dev/pilotlight/fetcher/agent"
	fake "github.com/pilotlight-dev/pilotlight/internal/fake/s3"
	"github.com/pilotlight-dev/pilotlight/registry"
)

var rollbackAndWait = []string{"rollback", "llama@champion", "--yes", "--wait", "--timeout", "10m"}

func TestWaitEndsWhenEveryEngineServesTheDigest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.cluster = newCluster(t, workloadOf("Deployment", "llama", 2, nil))
		one, two := w.digest("1"), w.digest("2")
		a := w.cluster.addPod("llama-a", serving("2", two, agent.EngineReady))
		b := w.cluster.addPod("llama-b", serving("2", two, agent.EngineReady))
		begun := time.Now()
		after(30*time.Second, func() { a.set(func(s *agent.Status) { s.Serving.State, s.Serving.Digest = agent.EngineLoading, one }) })
		after(60*time.Second, func() { a.set(func(s *agent.Status) { *s = serving("1", one, agent.EngineReady) }) })
		after(90*time.Second, func() { b.set(func(s *agent.Status) { *s = serving("1", one, agent.EngineReady) }) })
		out := w.requireCode(0, rollbackAndWait...)
		require.GreaterOrEqual(t, time.Since(begun), 90*time.Second, "one of two is not all")
		require.Less(t, time.Since(begun), 95*time.Second)
		require.Contains(t, out.stdout, "verified: every engine serves "+one[:12])
		require.Contains(t, out.stderr, "ai/llama-a loading")
		require.NotContains(t, out.stderr, "\x1b", "plain lines where there is no terminal")
		require.Equal(t, 2, strings.Count(out.stderr, "ai/llama-b"), "one line for each change: %s", out.stderr)
	})
}

func TestWaitHasABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.cluster = newCluster(t, workloadOf("Deployment", "llama", 3, nil))
		w.cluster.addPod("llama-a", serving("1", w.digest("1"), agent.EngineReady))
		w.cluster.addPod("llama-b", serving("2", w.digest("2"), agent.EngineReady)).set(func(s *agent.Status) {
			s.Pointer = &agent.Pointer{Code: 5, Reason: "no space"}
		})
		w.cluster.addPod("llama-c", serving("1", strings.Repeat("0", 64), agent.EngineReady))
		begun := time.Now()
		out := w.requireCode(8, rollbackAndWait...)
		require.Equal(t, 10*time.Minute, time.Since(begun))
		require.Contains(t, out.stderr, "moved, not verified: models:/llama@champion is at 1, but 1 of 3 pods ready when waiting ended")
		require.Contains(t, out.stderr, "ai/llama-b ready, still with version 2 (no space)")
		require.Contains(t, out.stderr, "ai/llama-c ready, with version 1 but another digest (does its fetcher have another --sub-path, --include or --exclude?)")
		require.Equal(t, "1", w.backend.version(), "the move stays")
		require.Contains(t, out.stdout, "moved from 2 to 1", "what was done is said on every end")
	})
}

func TestAPodMayBeReplacedInTheMiddle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.cluster = newCluster(t, workloadOf("Deployment", "llama", 1, nil))
		w.cluster.addPod("llama-old", serving("2", w.digest("2"), agent.EngineReady))
		one := w.digest("1")
		after(20*time.Second, func() { w.cluster.deletePod("llama-old") })
		after(40*time.Second, func() {
			w.cluster.addPod("llama-new", agent.Status{}, func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodPending} })
		})
		after(60*time.Second, func() {
			w.cluster.deletePod("llama-new")
			w.cluster.addPod("llama-newer", serving("1", one, agent.EngineReady))
		})
		out := w.requireCode(0, append(rollbackAndWait, "--restart")...)
		require.Contains(t, out.stderr, "ai/llama-old gone")
		require.Contains(t, out.stderr, "ai/llama-new unknown: it has not started")
		require.Equal(t, "1", w.cluster.pin(deployments, "llama"))
	})
}

func TestPodsThatDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.cluster = newCluster(t, workloadOf("Deployment", "llama", 1, nil))
		two := serving("2", w.digest("2"), agent.EngineReady)
		w.cluster.addPod("llama-a", serving("1", w.digest("1"), agent.EngineReady))
		w.cluster.addPod("llama-leaving", two, terminating)
		w.cluster.addPod("llama-evicted", two, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
		w.cluster.addPod("llama-writer", two, func(p *corev1.Pod) { p.Labels[agentwatch.RoleLabel] = agentwatch.RoleWriter })
		w.cluster.addPod("gemma", two, func(p *corev1.Pod) { p.Annotations[agentwatch.RefAnnotation] = "gemma@champion" })
		begun := time.Now()
		w.requireCode(0, rollbackAndWait...)
		require.Zero(t, time.Since(begun), "nothing had to be waited for")
	})
}

func TestAnAgentThatDoesNotAnswerIsUnknownAndNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.cluster = newCluster(t, workloadOf("Deployment", "llama", 2, nil))
		one := serving("1", w.digest("1"), agent.EngineReady)
		w.cluster.addPod("llama-a", one)
		w.cluster.addPod("llama-mute", one).down = true
		out := w.requireCode(8, rollbackAndWait...)
		require.Contains(t, out.stderr, "1 of 2 pods ready when waiting ended (ai/llama-mute unknown: an error on the server")
	})
}

func TestAnAPIServerThatIsAwayIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.cluster = newCluster(t, workloadOf("Deployment", "llama", 1, nil))
		a := w.cluster.addPod("llama-a", serving("2", w.digest("2"), agent.EngineReady))
		one := w.digest("1")
		begun := time.Now()
		w.cluster.client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			if at := time.Since(begun); at > 10*time.Second && at < 50*time.Second {
				return true, nil, apierrors.NewServiceUnavailable("leader election")
			}
			return false, nil, nil
		})
		after(30*time.Second, func() { a.set(func(s *agent.Status) { *s = serving("1", one, agent.EngineReady) }) })
		out := w.requireCode(0, rollbackAndWait...)
		require.GreaterOrEqual(t, time.Since(begun), 50*time.Second)
		require.Contains(t, out.stderr, "the pods cannot be listed")
	})
}

func TestWaitIsRefusedWhereNothingRestartsTheEngines(t *testing.T) {
	w := newWorld(t)
	w.cluster = newCluster(t, workloadOf("Deployment", "llama", 1, nil))
	a := w.cluster.addPod("llama-a", serving("2", w.digest("2"), agent.EngineReady))
	a.set(func(s *agent.Status) { s.OnChange = agent.None })
	out := w.requireCode(2, rollbackAndWait...)
	require.Contains(t, out.stderr, "nothing restarts the engine of ai/llama-a")
	require.Contains(t, out.stderr, "add --restart")
	w.requireUnmoved()

	// What a rollout has pinned follows no pointer.
	w.cluster = newCluster(t, workloadOf("Deployment", "llama", 0, map[string]any{"pilotlight.dev/model-version": "2"}))
	require.Contains(t, w.requireCode(2, rollbackAndWait...).stderr, "are pinned to 2")
	w.requireUnmoved()
	out = w.requireCode(0, "rollback", "llama@champion", "--yes")
	require.Contains(t, out.stdout, "note: the pods of Deployment ai/llama are pinned to 2", "without --wait it is a note")
}

func TestAtZeroReplicasItIsMovedAndNotVerified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.cluster = newCluster(t, workloadOf("Deployment", "llama", 0, nil), writerOf("writer"), pausedObject("llama"))
		begun := time.Now()
		out := w.requireCode(8, append(rollbackAndWait, "--restart")...)
		require.Zero(t, time.Since(begun))
		require.Contains(t, out.stderr, "zero replicas")
		require.Equal(t, "1", w.cluster.pin(deployments, "llama"), "the next start serves it")
		require.Empty(t, w.cluster.pin(deployments, "writer"), "a writer follows the pointer")
		require.Contains(t, out.stdout, "restarted: Deployment ai/llama")
		require.Contains(t, out.stdout, "paused by somebody: llama-so (autoscaling.keda.sh/paused-replicas=0); it was left so")
	})
}

func TestWakeStartsAReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.env["PILOTLIGHT_API_KEY"] = "not-a-secret"
		w.cluster = newCluster(t, workloadOf("Deployment", "llama", 0, nil))
		one := w.digest("1")
		var woken atomic.Int64
		w.hosts["activator:8000"] = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if woken.Add(1) == 1 && r.URL.Path == "/v1/completions" && r.Header.Get("Authorization") == "Bearer not-a-secret" &&
				strings.Contains(string(body), `"max_tokens":1,"model":"llama"`) {
				time.Sleep(time.Minute) // held
				w.cluster.addPod("llama-a", serving("1", one, agent.EngineReady))
			}
		})
		out := w.requireCode(0, append(rollbackAndWait, "--wake", "--activator", "http://activator:8000")...)
		require.EqualValues(t, 1, woken.Load(), "one request")
		require.NotContains(t, out.stderr+out.stdout, "not-a-secret")
	})
}

func TestAWakeThatIsRefusedEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.cluster = newCluster(t, workloadOf("Deployment", "llama", 0, nil))
		w.hosts["activator:8000"] = http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			http.Error(rw, `{"error":"no such model"}`, http.StatusNotFound)
		})
		begun := time.Now()
		out := w.requireCode(8, append(rollbackAndWait, "--wake", "--activator", "http://activator:8000")...)
		require.Less(t, time.Since(begun), 10*time.Second)
		require.Contains(t, out.stderr, "it answers 404")
	})
}

func TestRestartPinsEveryKindOfWorkloadAndNothingElse(t *testing.T) {
	w := newWorld(t)
	other := workloadOf("Deployment", "gemma", 1, nil)
	other.Object["spec"].(map[string]any)["template"].(map[string]any)["metadata"].(map[string]any)["annotations"].(map[string]any)[agentwatch.RefAnnotation] = "gemma@champion"
	w.cluster = newCluster(t,
		workloadOf("Deployment", "llama", 3, nil), workloadOf("StatefulSet", "llama", 2, nil), workloadOf("LeaderWorkerSet", "llama", 0, nil),
		other, workloadOf("Deployment", "there", 1, map[string]any{"pilotlight.dev/model-version": "1"}),
	)
	out := w.requireCode(0, "rollback", "llama@champion", "--yes", "--restart")
	require.Equal(t, 3, strings.Count(out.stdout, "restarted: "), out.stdout)
	require.Equal(t, "1", w.cluster.pin(deployments, "llama"))
	require.Equal(t, "1", w.cluster.pin(statefulSets, "llama"))
	require.Equal(t, "1", w.cluster.pin(leaderWorkers, "llama", "spec", "leaderWorkerTemplate", "workerTemplate"))
	require.Equal(t, "1", w.cluster.pin(leaderWorkers, "llama", "spec", "leaderWorkerTemplate", "leaderTemplate"))
	require.Empty(t, w.cluster.pin(deployments, "gemma"))
	patches := 0
	for _, action := range w.cluster.dynamic.Actions() {
		if patch, ok := action.(clienttesting.PatchAction); ok {
			patches++
			require.NotContains(t, string(patch.GetPatch()), "replicas")
			require.NotContains(t, string(patch.GetPatch()), "pilotlight.dev/ref", "what is there is not written again")
		} else {
			require.Equal(t, "list", strings.Replace(action.GetVerb(), "get", "list", 1))
		}
	}
	require.Equal(t, 3, patches)
}

func TestAPointerObjectPinsAPlace(t *testing.T) {
	const ref = "pointer+s3://weights/llama/production"
	w := newWorld(t)
	w.backend.pos = registry.Position{}
	w.requireCode(0, "pointer", "init", ref, "--location", "s3://weights/llama/1", "--version", "v1", "--yes")
	w.cluster = newCluster(t, workloadOf("Deployment", "llama", 1, nil))
	deployment, err := w.cluster.dynamic.Resource(deployments).Namespace("ai").Get(t.Context(), "llama", metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, unstructured.SetNestedField(deployment.Object, ref, "spec", "template", "metadata", "annotations", agentwatch.RefAnnotation))
	_, err = w.cluster.dynamic.Resource(deployments).Namespace("ai").Update(t.Context(), deployment, metav1.UpdateOptions{})
	require.NoError(t, err)
	w.requireCode(0, "promote", ref, "--to", "v2", "--location", "s3://weights/llama/2", "--yes", "--restart")
	require.Equal(t, "s3://weights/llama/2", w.cluster.pin(deployments, "llama"), "the fetcher is pinned to a place, not to a name")
}

func TestALongWaitDoesNotMakeTheStepsBeforeItLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.store.SetFault(func(*http.Request) fake.Fault { return fake.Fault{Status: http.StatusServiceUnavailable} })
		w.cluster = newCluster(t, workloadOf("Deployment", "llama", 1, nil))
		begun := time.Now()
		w.requireCode(7, rollbackAndWait...)
		require.LessOrEqual(t, time.Since(begun), 2*time.Minute)
		w.requireUnmoved()
	})
}

func TestARestartThatFailsIsMovedAndNotVerified(t *testing.T) {
	w := newWorld(t)
	w.cluster = newCluster(t, workloadOf("Deployment", "llama", 1, nil), workloadOf("StatefulSet", "llama", 1, nil))
	w.cluster.dynamic.PrependReactor("patch", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(deployments.GroupResource(), "llama", nil)
	})
	out := w.requireCode(8, "rollback", "llama@champion", "--yes", "--restart")
	require.Contains(t, out.stderr, "restarting Deployment ai/llama")
	require.Contains(t, out.stdout, "restarted: StatefulSet ai/llama", "the others are restarted all the same")
}

func TestRestartThatFindsNothingIsRefused(t *testing.T) {
	w := newWorld(t)
	w.cluster = newCluster(t)
	require.Contains(t, w.requireCode(2, "rollback", "llama@champion", "--yes", "--restart", "-n", "ai").stderr, "no pod template of a Deployment, StatefulSet or LeaderWorkerSet has the annotation pilotlight.dev/ref: models:/llama@champion in the namespace ai")
	w.requireUnmoved()
}

func TestAWaitCanBeTakenUpAgain(t *testing.T) {
	w := newWorld(t)
	w.cluster = newCluster(t, workloadOf("Deployment", "llama", 1, map[string]any{"pilotlight.dev/model-version": "2"}))
	w.cluster.addPod("llama-a", serving("2", w.digest("2"), agent.EngineReady))
	out := w.requireCode(0, "promote", "llama@champion", "--to", "2", "--yes", "--wait", "--restart")
	require.Contains(t, out.stdout, "at 2 already")
	require.Contains(t, out.stdout, "verified")
	require.NotContains(t, out.stdout, "restarted", "it is pinned to it already")
	w.requireUnmoved()
}

func TestCtrlCWhileWaitingIsMovedAndNotVerified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.cluster = newCluster(t, workloadOf("Deployment", "llama", 1, nil))
		w.cluster.addPod("llama-a", serving("2", w.digest("2"), agent.EngineReady))
		ctx, cancel := context.WithCancel(t.Context())
		after(time.Minute, cancel)
		out := w.runCtx(ctx, rollbackAndWait...)
		require.Equal(t, 8, out.code, out.stderr)
	})
}

func TestAddressesAreAskedOverTheNetwork(t *testing.T) {
	w := newWorld(t)
	one := w.digest("1")
	a, b := &engineAgent{status: serving("1", one, agent.EngineReady)}, &engineAgent{status: serving("2", w.digest("2"), agent.EngineReady)}
	servers := []*httptest.Server{httptest.NewServer(a), httptest.NewServer(b)}
	addrs := make([]string, 0, len(servers))
	for _, s := range servers {
		t.Cleanup(s.Close)
		w.hosts[s.Listener.Addr().String()] = overNetwork(s)
		addrs = append(addrs, s.Listener.Addr().String())
	}
	w.deps.Every = time.Millisecond
	args := []string{"rollback", "llama@champion", "--yes", "--wait", "--agents", strings.Join(addrs, ",")}
	out := w.requireCode(8, append(args, "--timeout", "8s")...)
	require.Contains(t, out.stderr, "1 of 2 pods ready")
	b.set(func(s *agent.Status) { *s = serving("1", one, agent.EngineReady) })
	w.requireCode(0, "promote", "llama@champion", "--to", "1", "--yes", "--wait", "--agents", strings.Join(addrs, ","))
}

// overNetwork passes a request on to a server.
func overNetwork(s *httptest.Server) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		req, err := http.NewRequestWithContext(r.Context(), r.Method, s.URL+r.URL.Path, nil)
		if err != nil {
			panic(err)
		}
		resp, err := s.Client().Do(req)
		if err != nil {
			http.Error(rw, err.Error(), http.StatusBadGateway)
			return
		}
		rw.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(rw, resp.Body)
		_ = resp.Body.Close()
	})
}

func TestOnATerminalTheViewIsRedrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.deps.StderrTTY = true
		w.cluster = newCluster(t, workloadOf("Deployment", "llama", 1, nil))
		a := w.cluster.addPod("llama-a", serving("2", w.digest("2"), agent.EngineReady))
		one := w.digest("1")
		after(5*time.Second, func() { a.set(func(s *agent.Status) { *s = serving("1", one, agent.EngineReady) }) })
		out := w.requireCode(0, rollbackAndWait...)
		require.Contains(t, out.stderr, "\x1b[2A", "two lines are painted over")
		require.Contains(t, out.stderr, "waiting for version 1 ("+one[:12]+"): 1 of 1 pods ready, 6s")
		require.Contains(t, out.stderr, "\x1b[32mai/llama-a ready version 1\x1b[0m")
		w.env["NO_COLOR"] = "1"
		out = w.requireCode(0, "promote", "llama@champion", "--to", "1", "--yes", "--wait")
		require.NotContains(t, out.stderr, "\x1b[32m")
	})
}

func TestWithJSONTheWaitIsJSONToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.deps.StderrTTY, w.deps.StdoutTTY = true, true
		w.cluster = newCluster(t, workloadOf("Deployment", "llama", 1, nil))
		w.cluster.addPod("llama-a", serving("1", w.digest("1"), agent.EngineReady))
		out := w.requireCode(0, append(rollbackAndWait, "-o", "json")...)
		event := decode(t, strings.TrimSpace(out.stderr))
		require.Equal(t, "ai/llama-a", event["pod"])
		require.Equal(t, true, event["ready"])
		doc := decode(t, out.stdout)
		require.Equal(t, true, doc["verified"])
		require.Len(t, doc["pods"], 1)
	})
}

func TestWithoutAClusterWaitIsRefused(t *testing.T) {
	w := newWorld(t)
	w.deps.Cluster = func(pointercmd.ClusterFlags) (*pointercmd.Cluster, error) { return nil, pointercmd.ErrNoCluster }
	require.Contains(t, w.requireCode(2, rollbackAndWait...).stderr, "--agents HOST:PORT")
	w.requireUnmoved()
}
