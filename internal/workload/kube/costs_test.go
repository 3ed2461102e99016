package kube

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

func TestSetDeletionCost(t *testing.T) {
	client := fake.NewClientset(pod("a", func(p *corev1.Pod) { p.Annotations = map[string]string{"keep": "me"} }))
	d := DeletionCosts{Client: client}
	cost := -2
	require.NoError(t, d.SetDeletionCost(t.Context(), "ai", "a", &cost))
	get := func() map[string]string {
		p, err := client.CoreV1().Pods("ai").Get(t.Context(), "a", metav1.GetOptions{})
		require.NoError(t, err)
		return p.Annotations
	}
	require.Equal(t, map[string]string{"keep": "me", CostAnnotation: "-2"}, get())
	require.NoError(t, d.SetDeletionCost(t.Context(), "ai", "a", nil))
	require.Equal(t, map[string]string{"keep": "me"}, get())
	require.ErrorIs(t, d.SetDeletionCost(t.Context(), "ai", "gone", nil), workload.ErrNotFound)
	client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "a", nil)
	})
	require.ErrorIs(t, d.SetDeletionCost(t.Context(), "ai", "a", nil), workload.ErrForbidden)
}
