package pointercmd_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/pilotlight-dev/pilotlight/fetcher/agent"
)

func TestAMoveTellsTheAgents(t *testing.T) {
	w := newWorld(t)
	w.cluster = newCluster(t)
	a := w.cluster.addPod("llama-a", serving("2", w.digest("2"), agent.EngineReady))
	writer := w.cluster.addPod("llama-w", serving("2", w.digest("2"), agent.EngineReady), func(p *corev1.Pod) { p.Labels["pilotlight.dev/role"] = "writer" })
	gone := w.cluster.addPod("llama-b", serving("2", w.digest("2"), agent.EngineReady), terminating)
	w.requireCode(0, "promote", "llama@champion", "--to", "3", "--dry-run")
	w.requireCode(0, "promote", "llama@champion", "--to", "2", "--yes")
	require.Zero(t, a.nudges, "nothing has moved")
	out := w.requireCode(0, "promote", "llama@champion", "--to", "3", "--yes")
	require.Empty(t, out.stderr)
	require.Equal(t, 1, a.nudges)
	require.Equal(t, 1, writer.nudges, "who fills a shared volume follows the pointer, too")
	require.Zero(t, gone.nudges)

	direct := &engineAgent{status: serving("3", w.digest("3"), agent.EngineReady)}
	w.hosts["pod:9400"] = direct
	require.Empty(t, w.requireCode(0, "rollback", "llama@champion", "--yes", "--agents", "pod").stderr)
	require.Equal(t, 1, direct.nudges)
	require.Equal(t, 1, a.nudges, "the ones that were named, and nobody else")
}

// An agent polls every half minute; a move by the command does not wait for that.
func TestTheWaitDoesNotWaitForAPoll(t *testing.T) {
	w := newWorld(t)
	w.cluster = newCluster(t, workloadOf("Deployment", "llama", 1, nil))
	a := w.cluster.addPod("llama-a", serving("2", w.digest("2"), agent.EngineReady))
	three := serving("3", w.digest("3"), agent.EngineReady)
	a.nudged = func(st *agent.Status) { *st = three }
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		w.requireCode(0, "promote", "llama@champion", "--to", "3", "--yes", "--wait")
		require.Less(t, time.Since(began), 5*time.Second)
	})
}

// Who cannot be told is told by a note, and the move has happened.
func TestATellingThatFailsIsANote(t *testing.T) {
	tests := map[string]struct {
		spoil func(*world)
		args  []string
		want  string
	}{
		"AgentDown": {func(w *world) { w.cluster.agents["llama-a"].down = true }, nil, "could not be told: 1 of 2 agents (ai/llama-a: "},
		"NoAnswer":  {func(*world) {}, []string{"--agents", "pod"}, "could not be told: 1 of 1 agents (pod:9400: connection refused)"},
		"NotAllowed": {func(w *world) {
			w.cluster.client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, errors.New("pods is forbidden")
			})
		}, nil, "pods is forbidden"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.cluster = newCluster(t)
			w.cluster.addPod("llama-a", serving("2", w.digest("2"), agent.EngineReady))
			w.cluster.addPod("llama-b", serving("2", w.digest("2"), agent.EngineReady))
			tc.spoil(w)
			out := w.requireCode(0, append([]string{"promote", "llama@champion", "--to", "3", "--yes"}, tc.args...)...)
			require.Contains(t, out.stderr, "note: models:/llama@champion has moved; agents that could not be told of it notice at their next poll: ")
			require.Contains(t, out.stderr, tc.want)
			require.Equal(t, "3", w.backend.version())
		})
	}
}
