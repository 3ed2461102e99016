package kube

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	scalefake "k8s.io/client-go/scale/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

// said is a log that can be read while it is written.
type said struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *said) count(text string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.b.String(), text)
}

func forbidden(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no rule"))
}

// denying starts a Source over fakes that deny a resource for as long as denied.
func denying(t *testing.T, resource string, denied *atomic.Bool, log *slog.Logger) *Source {
	t.Helper()
	deny := func(a clienttesting.Action) (bool, runtime.Object, error) {
		return denied.Load(), nil, forbidden(a.GetResource().Resource)
	}
	so := scaledObject(map[string]any{
		"scaleTargetRef": map[string]any{"name": "vllm"},
		"triggers":       []any{map[string]any{"type": "external-push", "metadata": map[string]any{"targetRequests": "4", "modelName": "llama"}}},
	})
	dyn := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{ScaledObjects: "ScaledObjectList"}, so)
	client, scales := fake.NewClientset(), &scalefake.FakeScaleClient{}
	scales.AddReactor("get", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &autoscalingv1.Scale{Status: autoscalingv1.ScaleStatus{Selector: "app=llama"}}, nil
	})
	switch resource {
	case "scaledobjects":
		dyn.PrependReactor("list", resource, deny)
	case "pods":
		client.PrependReactor("list", resource, deny)
	default:
		scales.PrependReactor("get", "*", deny)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, meta.RESTScopeNamespace)
	return New(t.Context(), Options{Dynamic: dyn, Client: client, Scales: scales, Mapper: mapper, Logger: log})
}

// A right that is missing is an error that says so, one line in the log however
// often it is missed, and passes when the right comes.
func TestAMissingRight(t *testing.T) {
	for resource, of := range map[string]workload.Denial{
		"scaledobjects": {Resource: "scaledobjects"},
		"pods":          {Resource: "pods", Namespace: "ai"},
		"scale":         {Resource: "deployments.apps/scale", Namespace: "ai"},
	} {
		t.Run(resource, func(t *testing.T) {
			t.Parallel()
			var log said
			var denied atomic.Bool
			denied.Store(true)
			s := denying(t, resource, &denied, slog.New(slog.NewTextHandler(&log, nil)))
			var err error
			asked := 0
			require.Eventually(t, func() bool {
				_, err = s.Workload(t.Context(), llama, "")
				asked++
				return len(s.Denied()) > 0 && asked > 3
			}, 30*time.Second, 10*time.Millisecond)
			require.Equal(t, []workload.Denial{of}, s.Denied())
			if resource == "scaledobjects" {
				require.ErrorIs(t, err, workload.ErrNotReady)
				require.Contains(t, s.Problem(), "forbidden", "a probe can say why")
			} else {
				require.Eventually(t, func() bool { _, err = s.Workload(t.Context(), llama, ""); return errors.Is(err, workload.ErrForbidden) }, 30*time.Second, 10*time.Millisecond)
				for range 3 {
					all, err := s.All(t.Context())
					require.NoError(t, err)
					require.Empty(t, all)
				}
				require.Equal(t, 1, log.count("left out"), "nor is that repeated")
			}
			require.Equal(t, 1, log.count("a right is missing"), "said once")

			denied.Store(false)
			require.Eventually(t, func() bool {
				_, err := s.Workload(t.Context(), llama, "")
				return err == nil && len(s.Denied()) == 0 && s.Problem() == ""
			}, 60*time.Second, 20*time.Millisecond)
		})
	}
}
