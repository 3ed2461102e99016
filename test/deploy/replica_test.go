package deploy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// replicaState is what a pod is said to be: there is no kubelet.
type replicaState int

const (
	pending replicaState = iota // has a node, and nothing runs yet
	loading                     // runs, and is not ready
	serving
)

// replica makes a Deployment of one replica, whose pod has a node.
func (s *server) replica(t *testing.T, ns string, state replicaState) {
	t.Helper()
	pod := aPod("", "")
	pod.Spec.NodeName = "nowhere"
	one := int32(1)
	_, err := s.Client.AppsV1().Deployments(ns).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "m"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: pod.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: pod.Spec},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	var made corev1.Pod
	require.Eventually(t, func() bool {
		pods, err := s.Client.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(pods.Items) == 0 {
			return false
		}
		made = pods.Items[0]
		return true
	}, time.Minute, 50*time.Millisecond)
	if state == pending {
		return
	}
	made.Status.Phase = corev1.PodRunning
	made.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}[state == serving]}}
	_, err = s.Client.CoreV1().Pods(ns).UpdateStatus(t.Context(), &made, metav1.UpdateOptions{})
	require.NoError(t, err)
}
