package deploy

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// namespace makes one for a test.
func (s *server) namespace(t *testing.T, name string) string {
	t.Helper()
	_, err := s.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return name
}

func aPod(name string, gpus string) *corev1.Pod {
	c := corev1.Container{Name: "c", Image: "x"}
	if gpus != "" {
		c.Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(gpus)}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "m"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{c}},
	}
}

// What docs/tutorial-fixes.md says about LimitRanges: a maximum of GPUs for
// containers gives that many to each container that asks for none.
func TestALimitRangeOfGPUsHandsThemOut(t *testing.T) {
	t.Parallel()
	s := apiServer(t)
	for name, c := range map[string]struct {
		kind corev1.LimitType
		pod  string // GPUs it asks for
		got  string
		err  string
	}{
		"Container":  {corev1.LimitTypeContainer, "", "4", ""},
		"Pod":        {corev1.LimitTypePod, "", "", "maximum nvidia.com/gpu usage per Pod is 4.  No limit is specified"},
		"PodWithGPU": {corev1.LimitTypePod, "1", "1", ""},
	} {
		ns := s.namespace(t, "limits-"+fmt.Sprint(len(name)))
		_, err := s.Client.CoreV1().LimitRanges(ns).Create(t.Context(), &corev1.LimitRange{
			ObjectMeta: metav1.ObjectMeta{Name: "gpu"},
			Spec:       corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: c.kind, Max: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("4")}}}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		got, err := s.Client.CoreV1().Pods(ns).Create(t.Context(), aPod("p", c.pod), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if c.err != "" {
			require.ErrorContains(t, err, c.err, name)
			continue
		}
		require.NoError(t, err, name)
		limit := got.Spec.Containers[0].Resources.Limits["nvidia.com/gpu"]
		require.Equal(t, c.got, limit.String(), name)
	}
}

// Only requests.nvidia.com/gpu counts GPUs; the other spellings are taken and
// never count anything.
func TestAQuotaCountsRequestsOfGPUs(t *testing.T) {
	t.Parallel()
	s := apiServer(t)
	ns := s.namespace(t, "quota")
	_, err := s.Client.CoreV1().ResourceQuotas(ns).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "gpu"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			"requests.nvidia.com/gpu": resource.MustParse("4"), "limits.nvidia.com/gpu": resource.MustParse("1"), "nvidia.com/gpu": resource.MustParse("1"),
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		q, err := s.Client.CoreV1().ResourceQuotas(ns).Get(t.Context(), "gpu", metav1.GetOptions{})
		used, ok := q.Status.Used["requests.nvidia.com/gpu"]
		return err == nil && ok && used.IsZero()
	}, time.Minute, 100*time.Millisecond)
	_, err = s.Client.CoreV1().Pods(ns).Create(t.Context(), aPod("three", "3"), metav1.CreateOptions{})
	require.NoError(t, err, "3 of 4, whatever the other two say")
	_, err = s.Client.CoreV1().Pods(ns).Create(t.Context(), aPod("two", "2"), metav1.CreateOptions{})
	require.ErrorContains(t, err, "exceeded quota: gpu, requested: requests.nvidia.com/gpu=2, used: requests.nvidia.com/gpu=3, limited: requests.nvidia.com/gpu=4")
}

// What deploy/cluster/policy.yaml does, in the words that a user gets to read.
func TestTheBlueprintsQuota(t *testing.T) {
	t.Parallel()
	s := apiServer(t)
	ns := s.namespace(t, "policy")
	create := func(pod *corev1.Pod) (*corev1.Pod, error) {
		return s.Client.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{})
	}
	var quota corev1.ResourceQuota
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(document(t, "ResourceQuota", "team").Object.Object, &quota))
	_, err := s.Client.CoreV1().ResourceQuotas(ns).Create(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "team"}, Spec: quota.Spec}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		q, err := s.Client.CoreV1().ResourceQuotas(ns).Get(t.Context(), "team", metav1.GetOptions{})
		return err == nil && len(q.Status.Used) == len(quota.Spec.Hard)
	}, time.Minute, 100*time.Millisecond)

	_, err = create(aPod("says-nothing", ""))
	require.ErrorContains(t, err, "failed quota: team: must specify limits.memory for: c; requests.cpu for: c", "a quota demands what it counts")

	var limits corev1.LimitRange
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(document(t, "LimitRange", "defaults").Object.Object, &limits))
	_, err = s.Client.CoreV1().LimitRanges(ns).Create(t.Context(), &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "defaults"}, Spec: limits.Spec}, metav1.CreateOptions{})
	require.NoError(t, err)
	var got *corev1.Pod
	require.Eventually(t, func() bool { // the admission's informer hears of it
		got, err = create(aPod("says-nothing", ""))
		return err == nil
	}, time.Minute, 100*time.Millisecond, err)
	c := got.Spec.Containers[0].Resources
	require.Equal(t, "512Mi", c.Limits.Memory().String())
	require.Equal(t, "100m", c.Requests.Cpu().String())
	require.NotContains(t, c.Limits, corev1.ResourceName("nvidia.com/gpu"), "no GPU for those who ask for none")

	_, err = create(aPod("eight", "8"))
	require.NoError(t, err)
	_, err = create(aPod("one-more", "1"))
	require.ErrorContains(t, err, "exceeded quota: team, requested: requests.nvidia.com/gpu=1, used: requests.nvidia.com/gpu=8, limited: requests.nvidia.com/gpu=8")

	claim := func(name string, devices int64) error {
		one := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
		one.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: "gpu-40g", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: devices,
		}}}
		_, err := s.Client.ResourceV1().ResourceClaims(ns).Create(t.Context(), one, metav1.CreateOptions{})
		return err
	}
	require.NoError(t, claim("six", 6))
	require.ErrorContains(t, claim("three", 3), "exceeded quota: team, requested: gpu-40g.deviceclass.resource.k8s.io/devices=3, used: gpu-40g.deviceclass.resource.k8s.io/devices=6, limited: gpu-40g.deviceclass.resource.k8s.io/devices=8")
}

// The eviction matrix of docs/tutorial-fixes.md, for a model with one replica.
func TestBudgetsAndDrains(t *testing.T) {
	t.Parallel()
	s := apiServer(t)
	one, half := intstr.FromInt32(1), intstr.FromString("50%")
	always := policyv1.AlwaysAllow
	i := 0
	for name, c := range map[string]struct {
		budget policyv1.PodDisruptionBudgetSpec
		pod    replicaState
		goes   bool
	}{
		"MinAvailable":             {policyv1.PodDisruptionBudgetSpec{MinAvailable: &one}, serving, false},
		"MinAvailableHalf":         {policyv1.PodDisruptionBudgetSpec{MinAvailable: &half}, serving, false},
		"MaxUnavailable":           {policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &one}, serving, true},
		"MaxUnavailableAndLoading": {policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &one}, loading, false},
		"LoadingBlocks":            {policyv1.PodDisruptionBudgetSpec{MinAvailable: &one}, loading, false},
		"PendingNeverBlocks":       {policyv1.PodDisruptionBudgetSpec{MinAvailable: &one}, pending, true},
		"LoadingAndAlwaysAllow":    {policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, UnhealthyPodEvictionPolicy: &always}, loading, true},
		"OursServing":              {policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &one, UnhealthyPodEvictionPolicy: &always}, serving, true},
		"Ours":                     {policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &one, UnhealthyPodEvictionPolicy: &always}, loading, true},
	} {
		i++
		ns := s.namespace(t, fmt.Sprintf("budget-%d", i))
		c.budget.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "m"}}
		s.replica(t, ns, c.pod)
		made, err := s.Client.PolicyV1().PodDisruptionBudgets(ns).Create(t.Context(), &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: c.budget}, metav1.CreateOptions{})
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			b, err := s.Client.PolicyV1().PodDisruptionBudgets(ns).Get(t.Context(), "b", metav1.GetOptions{})
			return err == nil && b.Status.ObservedGeneration == made.Generation && b.Status.ExpectedPods == 1
		}, time.Minute, 100*time.Millisecond, name)
		pods, err := s.Client.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		err = s.Client.PolicyV1().Evictions(ns).Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pods.Items[0].Name, Namespace: ns}})
		if c.goes {
			require.NoError(t, err, name)
		} else {
			require.True(t, apierrors.IsTooManyRequests(err), "%s: %v", name, err)
		}
	}
}
