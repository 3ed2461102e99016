package agentwatch_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/agentwatch"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// What is sent to a real API server, and what becomes of its refusal.
func TestNudgesGoThroughThePodProxy(t *testing.T) {
	ref, err := registry.ParseModel("llama@champion")
	require.NoError(t, err)
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
	for _, name := range []string{"a", "b", "new"} {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ai", Name: name}, Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1"}}
		if name == "new" {
			p.Status = corev1.PodStatus{Phase: corev1.PodPending}
		}
		list.Items = append(list.Items, p)
	}
	var mu sync.Mutex
	var posted []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case r.Method == http.MethodGet:
			w.Header().Set("Content-Type", "application/json")
			body, _ := json.Marshal(list)
			_, _ = w.Write(body)
		case r.URL.Path == "/api/v1/namespaces/ai/pods/http:b:9500/proxy/nudge":
			w.WriteHeader(http.StatusForbidden)
			fallthrough
		default:
			posted = append(posted, r.Method+" "+r.URL.Path)
		}
	}))
	defer srv.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: srv.URL})
	require.NoError(t, err)
	told, err := agentwatch.Cluster{Client: client, Ref: ref, Port: 9500, Proxy: client.CoreV1().RESTClient()}.Nudge(t.Context())
	require.Equal(t, 1, told)
	require.ErrorContains(t, err, "1 of 2 agents (ai/b: ")
	require.ElementsMatch(t, []string{"POST /api/v1/namespaces/ai/pods/http:a:9500/proxy/nudge", "POST /api/v1/namespaces/ai/pods/http:b:9500/proxy/nudge"}, posted)
	_, err = agentwatch.Cluster{Client: client, Ref: ref}.Nudge(t.Context())
	require.ErrorContains(t, err, "no pod proxy")
}
