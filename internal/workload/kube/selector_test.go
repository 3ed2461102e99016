package kube

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	scalefake "k8s.io/client-go/scale/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

// However long the API server cannot be asked whose pods they are, those that are
// watched are the target's, and nobody waits for it; that the target is gone is
// another matter.
func TestASelectorStandsUntilAnotherIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var denied atomic.Bool
		s := denying(t, "none", &denied, nil)
		client, scales := s.opts.Client, s.opts.Scales.(*scalefake.FakeScaleClient)
		_, err := client.CoreV1().Pods("ai").Create(t.Context(), pod("a", func(*corev1.Pod) {}), metav1.CreateOptions{})
		require.NoError(t, err)
		var asked atomic.Int32
		var answer atomic.Pointer[error]
		scales.PrependReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			asked.Add(1)
			if err := answer.Load(); err != nil {
				return true, nil, *err
			}
			return true, &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 7}, Status: autoscalingv1.ScaleStatus{Selector: "app=llama"}}, nil
		})
		look := func() error {
			t.Helper()
			began := time.Now()
			w, err := s.Workload(t.Context(), llama, "")
			if err == nil {
				require.Len(t, w.Pods, 1)
				require.Zero(t, time.Since(began), "it waits for nothing")
			}
			return err
		}
		synctest.Wait()
		_, err = s.Workload(t.Context(), llama, "") // waits for the pods to be listed
		require.NoError(t, err)
		require.NoError(t, look())
		n, err := s.Asked(t.Context(), llama)
		require.NoError(t, err)
		require.Equal(t, 7, n)

		refused := error(errors.New("connection refused"))
		answer.Store(&refused)
		before := asked.Load()
		for range 60 * 60 {
			time.Sleep(time.Second)
			require.NoError(t, look())
			all, err := s.All(t.Context())
			require.NoError(t, err)
			require.Len(t, all, 1, "the activator goes on serving it")
		}
		synctest.Wait()
		require.Greater(t, asked.Load()-before, int32(50), "it is tried again and again,")
		require.Less(t, asked.Load()-before, int32(250), "and not each time that it is needed")
		_, err = s.Asked(t.Context(), llama)
		require.ErrorIs(t, err, refused)

		gone := error(apierrors.NewNotFound(schema.GroupResource{Group: "apps", Resource: "deployments"}, "vllm"))
		answer.Store(&gone)
		time.Sleep(time.Minute)
		require.NoError(t, look(), "asks beside it")
		synctest.Wait()
		require.ErrorIs(t, look(), workload.ErrNotFound)

		answer.Store(nil)
		require.NoError(t, look())
		before = asked.Load()
		for range 24 * 60 {
			time.Sleep(time.Minute)
			require.NoError(t, look())
		}
		require.InDelta(t, 24*60/6.25, asked.Load()-before, 60, "every five minutes and something")
	})
}
