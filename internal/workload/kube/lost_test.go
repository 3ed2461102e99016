package kube

import (
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

// A right that is taken away later is missing as well: what was read before
// passes for the pods of now for a minute, then there is an error, until a list
// or a watch works again.
func TestARightTakenAwayLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log said
		var denied atomic.Bool
		s := denying(t, "pods", &denied, slog.New(slog.NewTextHandler(&log, nil)))
		client, ok := s.opts.Client.(*fake.Clientset)
		require.True(t, ok)
		_, err := client.CoreV1().Pods("ai").Create(t.Context(), pod("a", func(*corev1.Pod) {}), metav1.CreateOptions{})
		require.NoError(t, err)
		var open atomic.Pointer[watch.FakeWatcher]
		client.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
			if denied.Load() {
				return true, nil, forbidden("pods")
			}
			w := watch.NewFake()
			open.Store(w)
			return true, w, nil
		})
		replicas := func() (int, error) {
			w, err := s.Workload(t.Context(), llama, "")
			return w.Replicas, err
		}
		pass := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		pass(time.Second)
		n, err := replicas()
		require.NoError(t, err)
		require.Equal(t, 1, n)
		for range 2 { // it may happen more than once
			denied.Store(true)
			open.Load().Stop()
			pass(20 * time.Second)
			require.Equal(t, []workload.Denial{{Resource: "pods", Namespace: "ai"}}, s.Denied())
			n, err = replicas()
			require.NoError(t, err, "a role that is being replaced is no reason to forget the pods")
			require.Equal(t, 1, n)
			for range 10 {
				pass(lostAfter)
				_, err = replicas()
				require.ErrorIs(t, err, workload.ErrForbidden, "for as long as it lasts")
			}
			all, err := s.All(t.Context())
			require.NoError(t, err)
			require.Empty(t, all)

			denied.Store(false)
			pass(lostAfter)
			n, err = replicas()
			require.NoError(t, err)
			require.Equal(t, 1, n)
			require.Empty(t, s.Denied())
		}
		require.Equal(t, 2, log.count("a right is missing"), "said once each time")
	})
}

// Without the right to list ScaledObjects a new one is not known, which is not
// the same as that there is none; those known before go on, for their pods are
// seen.
func TestANewScaledObjectWithoutTheRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var denied atomic.Bool
		denied.Store(true) // so that no watch begins before we see it
		s := denying(t, "scaledobjects", &denied, nil)
		client, ok := s.opts.Dynamic.(*dynamicfake.FakeDynamicClient)
		require.True(t, ok)
		var open atomic.Pointer[watch.FakeWatcher]
		client.PrependWatchReactor("scaledobjects", func(clienttesting.Action) (bool, watch.Interface, error) {
			if denied.Load() {
				return true, nil, forbidden("scaledobjects")
			}
			w := watch.NewFake()
			open.Store(w)
			return true, w, nil
		})
		denied.Store(false)
		pass := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		pass(time.Minute)
		require.Empty(t, s.Denied())
		unknown := workload.Ref{Namespace: "ai", Name: "qwen"}
		_, err := s.Workload(t.Context(), unknown, "")
		require.ErrorIs(t, err, workload.ErrNotFound)

		denied.Store(true)
		open.Load().Stop()
		pass(2 * lostAfter)
		_, err = s.Workload(t.Context(), unknown, "")
		require.ErrorIs(t, err, workload.ErrForbidden)
		require.NotErrorIs(t, err, workload.ErrNotFound)
		_, err = s.Workload(t.Context(), llama, "")
		require.NoError(t, err)
	})
}
