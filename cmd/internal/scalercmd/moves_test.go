package scalercmd

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pilotlight-dev/pilotlight/internal/exitcode"
	"github.com/pilotlight-dev/pilotlight/internal/workload/kube"
	"github.com/pilotlight-dev/pilotlight/scaler/moves"
	"github.com/pilotlight-dev/pilotlight/scaler/webhook"
	"github.com/pilotlight-dev/pilotlight/warmup/coldstart/filestore"
)

// What an agent has seen is remembered when its pod is gone, and when the scaler
// was restarted in between.
func TestMovesThatAgentsSawAreKept(t *testing.T) {
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		now := time.Now().UTC()
		_, _ = fmt.Fprintf(w, `{"v":1,"ref":%q,"named":{"version":"8","at":%q},
			"history":[{"version":"8","at":%q},{"version":"7","at":%q}]}`,
			championRef, now.Format(time.RFC3339), now.Add(-time.Hour).Format(time.RFC3339), now.Add(-2*time.Hour).Format(time.RFC3339))
	}))
	t.Cleanup(agent.Close)
	_, port, err := net.SplitHostPort(agent.Listener.Addr().String())
	require.NoError(t, err)
	pod := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ai", Name: "llama-1", CreationTimestamp: metav1.Now(),
			Labels:      map[string]string{"app": "llama", kube.RefHashLabel: webhook.RefHash(championRef)},
			Annotations: map[string]string{kube.PortAnnotation: port},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "127.0.0.1"},
	}
	file := filepath.Join(t.TempDir(), "state.json")
	remembered := func() []moves.Move {
		entries, damaged, err := filestore.Store{Path: file}.Load(t.Context())
		require.NoError(t, err)
		require.Empty(t, damaged)
		lists, damaged := moves.Read(entries, championRef, "")
		require.Empty(t, damaged)
		if len(lists) == 0 {
			return nil
		}
		return lists[0].Moves
	}
	run := func(until func(running) bool, pods ...corev1.Pod) {
		kubeconfig, _ := smallCluster(t, pods...)
		r := start(t, "--kubeconfig", kubeconfig, "--agent-poll=1s", "--state-file", file)
		so := &pb.ScaledObjectRef{Namespace: "ai", Name: "llama", ScalerMetadata: map[string]string{"targetRequests": "4", "modelName": "llama", "podSelector": "app=llama"}}
		client := pb.NewExternalScalerClient(dial(t, r.keda, insecure.NewCredentials()))
		require.Eventually(t, func() bool {
			_, _ = client.IsActive(t.Context(), so)
			return until(r)
		}, 30*time.Second, 20*time.Millisecond)
		require.Equal(t, exitcode.OK, r.stop())
	}
	twice := regexp.MustCompile(`pilotlight_moves_asked_total{result="ok"} ([2-9]|\d\d)`)
	run(func(r running) bool { return twice.MatchString(r.get(t, "/metrics")) }, pod) // the first answer has been taken in
	first := remembered()
	require.Len(t, first, 1)
	require.Equal(t, "7", first[0].From)
	require.Equal(t, "8", first[0].To)
	require.Equal(t, "ai/llama-1", first[0].By)
	run(func(running) bool { return true })
	require.Equal(t, first, remembered())
}
