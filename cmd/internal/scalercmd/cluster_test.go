package scalercmd

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/pilotlight-dev/pilotlight/internal/exitcode"
	"github.com/pilotlight-dev/pilotlight/internal/workload/kube"
	"github.com/pilotlight-dev/pilotlight/scaler/webhook"
)

const championRef = "models:/llama@champion"

// smallCluster is an API server with one ScaledObject and its pods. Watches
// show nothing new. It returns a kubeconfig, and the events that are written.
func smallCluster(t *testing.T, pods ...corev1.Pod) (kubeconfig string, events <-chan corev1.Event) {
	t.Helper()
	written := make(chan corev1.Event, 10)
	so := `{"apiVersion":"keda.sh/v1alpha1","kind":"ScaledObject","metadata":{"name":"llama","namespace":"ai","uid":"1234","resourceVersion":"1"},
		"spec":{"maxReplicaCount":4,"triggers":[{"type":"external-push","metadata":{"targetRequests":"4","modelName":"llama","podSelector":"app=llama"}}]}}`
	list, err := json.Marshal(corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: pods})
	require.NoError(t, err)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch q := r.URL.Query(); {
		case q.Get("sendInitialEvents") == "true":
			w.WriteHeader(http.StatusBadRequest) // an older server: the client lists
			_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"BadRequest","code":400}`)
		case q.Get("watch") == "true":
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case strings.HasSuffix(r.URL.Path, "/scaledobjects"):
			_, _ = fmt.Fprintf(w, `{"apiVersion":"keda.sh/v1alpha1","kind":"ScaledObjectList","metadata":{"resourceVersion":"1"},"items":[%s]}`, so)
		case strings.HasSuffix(r.URL.Path, "/namespaces/ai/pods"):
			_, _ = w.Write(list)
		case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/namespaces/ai/events"):
			body, _ := io.ReadAll(r.Body)
			obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil) // the client writes protobuf
			if e, ok := obj.(*corev1.Event); ok && err == nil {
				written <- *e
			}
			w.WriteHeader(http.StatusCreated)
			_, _ = fmt.Fprint(w, `{"kind":"Event","apiVersion":"v1"}`)
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		}
	}))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	return write(t, "kubeconfig", fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c}}]
clusters: [{name: c, cluster: {server: %q}}]
`, srv.URL)), written
}

// From a pod whose model reference is broken to an event on the ScaledObject,
// and from MLflow's delivery to the agent in that pod.
func TestEventAndWebhookInACluster(t *testing.T) {
	nudged := make(chan string, 1)
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		nudged <- r.Method + " " + r.URL.Path
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(agent.Close)
	_, port, err := net.SplitHostPort(agent.Listener.Addr().String())
	require.NoError(t, err)
	kubeconfig, events := smallCluster(t, corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ai", Name: "llama-1", CreationTimestamp: metav1.Now(),
			Labels:      map[string]string{"app": "llama", kube.RefHashLabel: webhook.RefHash(championRef)},
			Annotations: map[string]string{kube.PortAnnotation: port},
		},
		Status: corev1.PodStatus{PodIP: "127.0.0.1", InitContainerStatuses: []corev1.ContainerStatus{{Name: "fetch", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Message: `{"code":3,"reason":"no such alias","ref":"` + championRef + `"}`},
		}}}},
	})
	r := start(t, "--kubeconfig", kubeconfig, "--agent-poll=0", "--mlflow-webhook-secret-file", write(t, "secret", "s3cret\n"))
	so := &pb.ScaledObjectRef{Namespace: "ai", Name: "llama", ScalerMetadata: map[string]string{"targetRequests": "4", "modelName": "llama", "podSelector": "app=llama"}}
	client := pb.NewExternalScalerClient(dial(t, r.keda, insecure.NewCredentials()))
	require.Eventually(t, func() bool { _, err := client.IsActive(t.Context(), so); return err == nil }, 30*time.Second, 20*time.Millisecond)
	select {
	case e := <-events:
		require.Equal(t, "PointerBroken", e.Reason)
		require.Equal(t, "pod llama-1 does not start: the model reference is broken ("+championRef+": no such alias)", e.Message)
		require.Equal(t, corev1.ObjectReference{APIVersion: "keda.sh/v1alpha1", Kind: "ScaledObject", Namespace: "ai", Name: "llama", UID: "1234"}, e.InvolvedObject)
	case <-time.After(time.Minute):
		t.Fatal("no event was written")
	}

	body := `{"entity":"model_version_alias","action":"created","data":{"name":"llama","alias":"champion","version":"2"}}`
	stamp := strconv.FormatInt(time.Now().Unix(), 10)
	mac := hmac.New(sha256.New, []byte("s3cret"))
	_, _ = fmt.Fprintf(mac, "id.%s.%s", stamp, body)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.http+"/webhook", strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("X-MLflow-Delivery-Id", "id")
	req.Header.Set("X-MLflow-Timestamp", stamp)
	req.Header.Set("X-MLflow-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	resp, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusAccepted, resp.StatusCode)
	select {
	case got := <-nudged:
		require.Equal(t, "POST /nudge", got)
	case <-time.After(time.Minute):
		t.Fatal("the agent was not nudged")
	}
	require.Equal(t, exitcode.OK, r.stop())
}
