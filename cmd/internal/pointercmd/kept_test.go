package pointercmd_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/pilotlight-dev/pilotlight/fetcher/agent"
	"github.com/pilotlight-dev/pilotlight/registry"
	"github.com/pilotlight-dev/pilotlight/scaler/moves"
	"github.com/pilotlight-dev/pilotlight/warmup/coldstart"
	"github.com/pilotlight-dev/pilotlight/warmup/coldstart/configmap"
)

// scalerHeard makes the scaler remember where the pointer stood, by agents that
// are gone: a version an hour, from noon on.
func (w *world) scalerHeard(namespace, pods string, versions ...string) {
	w.t.Helper()
	var book moves.Book
	for i, v := range versions {
		at := start.Add(time.Duration(i) * time.Hour)
		book.Learn(moves.Key{Namespace: pods, Ref: "models:/llama@champion"}, []moves.Seen{{Named: &moves.Move{At: at, To: v, By: pods + "/llama-0"}}}, at)
	}
	store := configmap.Store{Client: w.cluster.client, Namespace: namespace}
	require.NoError(w.t, store.Save(w.t.Context(), book.Changed()))
}

// At zero replicas no agent is left to say how the alias was moved by hand.
func TestRollbackAtZeroUndoesAMoveByHandThatTheScalerRemembers(t *testing.T) {
	tests := map[string]struct {
		heard  []string
		stands string
		want   string
		reason string
	}{
		"MovedWhileAgentsRan": {[]string{"3", "1"}, "1", "3", "the last one that was seen to serve"},
		"MovedAtZero":         {[]string{"1", "3"}, "2", "3", "nobody saw the move to 2, but 3 stood before"},
		"MovedThrice":         {[]string{"1", "2", "1", "3"}, "3", "1", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.cluster = newCluster(t, workloadOf("Deployment", "llama", 0, nil))
			w.backend.pos.History, w.backend.pos.Version = nil, tc.stands
			w.requireCode(3, "rollback", "llama@champion", "--yes")
			w.scalerHeard("keda", "ai", tc.heard...)
			out := w.requireCode(0, "rollback", "llama@champion", "--yes")
			require.Equal(t, tc.want, w.backend.version(), tc.reason)
			require.Empty(t, out.stderr)
		})
	}
}

// Another namespace's pods may ask another registry, or lie: a rollback that
// nobody is there to question goes nowhere by their word alone.
func TestRollbackDoesNotMixNamespaces(t *testing.T) {
	tests := map[string]struct {
		record bool
		heard  map[string][]string // by the namespace of the pods
		args   []string
		want   string // "" if it is refused
		says   []string
	}{
		"AgainstTheRecord":     {record: true, heard: map[string][]string{"dev": {"2", "3", "2"}}, says: []string{"1 by the record", "3 by the pods in namespace dev", "--to VERSION", "-n NAMESPACE"}},
		"BelievedWithN":        {record: true, heard: map[string][]string{"dev": {"2", "3", "2"}}, args: []string{"-n", "dev"}, want: "3"},
		"OfOthersWithN":        {record: true, heard: map[string][]string{"dev": {"2", "3", "2"}}, args: []string{"-n", "ai"}, want: "1"},
		"StandsElsewhere":      {record: true, heard: map[string][]string{"dev": {"3"}}, want: "1"},
		"OneAgainstAnother":    {heard: map[string][]string{"ai": {"1", "2"}, "dev": {"3", "2"}}, says: []string{"1 by the pods in namespace ai", "3 by the pods in namespace dev"}},
		"OneStandsElsewhere":   {heard: map[string][]string{"ai": {"1", "2"}, "dev": {"2", "3"}}, want: "1"},
		"OneKnowsNothing":      {heard: map[string][]string{"ai": {"1", "2"}, "dev": {"2"}}, want: "1"},
		"BothTheSame":          {heard: map[string][]string{"ai": {"1", "2"}, "dev": {"1", "2"}}, want: "1"},
		"BothStandElsewhere":   {heard: map[string][]string{"ai": {"1"}, "dev": {"3"}}, says: []string{"1 by the pods in namespace ai", "3 by the pods in namespace dev"}},
		"TheRecordAndWhatIsIt": {record: true, heard: map[string][]string{"ai": {"1", "2"}}, want: "1"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.cluster = newCluster(t)
			if !tc.record {
				w.backend.pos.History = nil
			}
			for namespace, versions := range tc.heard {
				w.scalerHeard("keda", namespace, versions...)
			}
			args := append([]string{"rollback", "llama@champion", "--yes"}, tc.args...)
			if tc.want != "" {
				w.requireCode(0, args...)
				require.Equal(t, tc.want, w.backend.version())
				return
			}
			out := w.requireCode(2, args...)
			for _, text := range tc.says {
				require.Contains(t, out.stderr, text)
			}
			w.requireUnmoved()
			w.requireCode(0, "rollback", "llama@champion", "--yes", "--to", "3")
		})
	}
}

func TestHistoryHasWhatTheScalerRemembers(t *testing.T) {
	w := newWorld(t)
	w.cluster = newCluster(t)
	// Recorded is 1->2 at noon. By hand it went to 3 at one, and to 1 at two;
	// a pod that still runs saw the latter.
	w.scalerHeard("keda", "ai", "2", "3", "1")
	w.scalerHeard("other", "chat", "9")
	w.backend.pos.Version = "1"
	w.cluster.addPod("llama-1", agent.Status{V: 1, Ref: "models:/llama@champion", History: []agent.Entry{
		{Version: "1", At: start.Add(2*time.Hour + 10*time.Minute)}, {Version: "3", At: start.Add(time.Hour)},
	}})
	doc := decode(t, w.requireCode(0, "history", "llama@champion", "-o", "json").stdout)
	var got []string
	for _, m := range doc["moves"].([]any) {
		var e registry.Entry
		data, err := json.Marshal(m)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(data, &e))
		got = append(got, e.Action+" "+e.From+">"+e.To+" "+e.By)
	}
	require.Equal(t, []string{"seen 3>1 seen by ai/llama-0", "seen 2>3 seen by ai/llama-0", "promote 1>2 kim@desk"}, got, "each move once, the first to see it named")

	out := w.requireCode(0, "history", "llama@champion", "--scaler-namespace", "other")
	require.Contains(t, out.stdout, "chat/llama-0")
	w.env["PILOTLIGHT_SCALER_NAMESPACE"] = "other"
	require.Contains(t, w.requireCode(0, "history", "llama@champion").stdout, "chat/llama-0")
	require.NotContains(t, w.requireCode(0, "history", "llama@champion", "-n", "ai").stdout, "chat/llama-0", "of one namespace's pods")
	require.NotContains(t, w.requireCode(0, "history", "llama@champion", "--no-agents").stdout, "seen")
}

func TestWhatTheScalerRemembersIsGoodToHaveOnly(t *testing.T) {
	w := newWorld(t)
	w.cluster = newCluster(t)
	bad := coldstart.Key{Namespace: "ai", Name: "models:/llama@champion", Trigger: moves.Trigger}
	store := configmap.Store{Client: w.cluster.client, Namespace: "keda"}
	require.NoError(t, store.Save(t.Context(), map[coldstart.Key]coldstart.Entry{bad: {State: json.RawMessage(`{"moves":[{"to":"\u001b[2J"}]}`)}}))
	out := w.requireCode(0, "history", "llama@champion")
	require.Contains(t, out.stderr, "note: what the scaler has seen could not be read in full: moves of models:/llama@champion")
	require.NotContains(t, out.stderr+out.stdout, "\x1b[2J")
	w.cluster.client.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("forbidden")
	})
	out = w.requireCode(0, "rollback", "llama@champion", "--yes")
	require.Contains(t, out.stderr, "note: what the scaler has seen could not be read")
	require.Equal(t, "1", w.backend.version())
}

// What nobody can read any more may be what is looked for: that is not "nothing
// is remembered".
func TestADamagedMemoryIsNotAnEmptyOne(t *testing.T) {
	w := newWorld(t)
	w.cluster = newCluster(t, workloadOf("Deployment", "llama", 0, nil))
	maps := w.cluster.client.CoreV1().ConfigMaps("keda")
	_, err := maps.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "keda", Name: "pilotlight-state-3"}, Data: map[string]string{"a": "{", "b": "{"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	got := findings(t, w.requireCode(10, "doctor", "llama@champion", "-o", "json"))
	require.Contains(t, got["warning scaler"], "2 entries are damaged, the first: configmap keda/pilotlight-state-3, key a")
	require.Empty(t, got["skipped scaler"])
	const note = "note: what the scaler has seen could not be read in full: 2 entries are damaged"
	require.Contains(t, w.requireCode(0, "history", "llama@champion").stderr, note)
	require.Contains(t, w.requireCode(0, "rollback", "llama@champion", "--yes").stderr, note)
}

// An agent that does not answer may have seen what nobody else has.
func TestAgentsThatCouldNotBeAskedAreNamed(t *testing.T) {
	w := newWorld(t)
	w.cluster = newCluster(t)
	w.cluster.addPod("llama-a", serving("2", w.digest("2"), agent.EngineReady)).down = true
	w.cluster.addPod("llama-b", serving("2", w.digest("2"), agent.EngineReady))
	w.cluster.addPod("llama-gone", agent.Status{}, terminating)
	w.cluster.addPod("llama-new", agent.Status{}, func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodPending} })
	const note = "note: 1 of 2 agents could not be asked what they have seen (ai/llama-a: "
	require.Contains(t, w.requireCode(0, "history", "llama@champion").stderr, note)
	require.Contains(t, w.requireCode(0, "rollback", "llama@champion", "--yes", "--dry-run").stderr, note)
	require.Empty(t, w.requireCode(0, "history", "llama@champion", "--no-agents").stderr)
	require.Contains(t, w.requireCode(0, "history", "llama@champion", "--agents", "gone").stderr, "note: 1 of 1 agents could not be asked what they have seen (gone:9400: connection refused)")

	w.backend.pos.History = nil
	w.cluster.deletePod("llama-b")
	require.NotContains(t, w.requireCode(0, "history", "llama@champion").stdout, "none was seen", "nobody was asked")
}

// A node's clock that is minutes ahead does not make a move happen twice, and so
// does not turn a second rollback round.
func TestANodesClockDoesNotTurnARollbackRound(t *testing.T) {
	w := newWorld(t)
	w.cluster = newCluster(t)
	w.scalerHeard("keda", "ai", "1", "3") // by hand at one
	w.backend.pos.Version = "1"
	w.backend.pos.History = []registry.Entry{{
		ID: "0000000000000001", At: start.Add(62 * time.Minute), By: "kim@desk", Action: registry.ActionRollback, From: "3", To: "1", State: registry.StateDone,
	}}
	st := serving("1", w.digest("1"), agent.EngineReady)
	st.History = []agent.Entry{{Version: "3", At: start.Add(65 * time.Minute)}, {Version: "1", At: start}}
	w.cluster.addPod("llama-a", st)
	doc := decode(t, w.requireCode(0, "history", "llama@champion", "-o", "json").stdout)
	var got []string
	for _, m := range doc["moves"].([]any) {
		m := m.(map[string]any)
		from, _ := m["from"].(string)
		got = append(got, fmt.Sprintf("%v %s>%v", m["action"], from, m["to"]))
	}
	require.Equal(t, []string{"rollback 3>1", "seen 1>3", "seen >1"}, got)
	out := w.requireCode(2, "rollback", "llama@champion", "--yes")
	require.Contains(t, out.stderr, "stands at 1 by a rollback from 3")
	require.Equal(t, "1", w.backend.version())
}
