package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pilotlight-dev/pilotlight/internal/freeport"
	"github.com/pilotlight-dev/pilotlight/test/e2e/plane"
)

// ourScheduler is the name under which pods ask for the scheduler that these
// tests start. All others stay unscheduled, as the other tests want them.
const ourScheduler = "deploy-checks"

var schedulerOnce = sync.OnceValue(func() error {
	config := filepath.Join(theServer.Dir, "scheduler.yaml")
	text := fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %q}
profiles: [{schedulerName: %s}]
`, filepath.Join(theServer.Dir, "admin.kubeconfig"), ourScheduler)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err // names the file
	}
	port, err := freeport.Port(context.Background())
	if err != nil {
		return err
	}
	p, err := plane.Run(context.Background(), theServer.Dir, "kube-scheduler", nil, filepath.Join(theServer.Bin, "kube-scheduler"),
		"--config="+config, "--bind-address=127.0.0.1", fmt.Sprint("--secure-port=", port))
	if err != nil {
		return err // names the program
	}
	before := closeAll
	closeAll = func() { _ = p.Kill(); before() }
	return nil
})

// A pool is a cluster of its own for one test: nodes that only its pods ask
// for, on the API server and with the scheduler of all tests. Nobody plays the
// nodes: pods get one, and stay as they are.
type pool struct {
	*server
	t    *testing.T
	name string
}

const poolLabel = "deploy-checks/pool"

func newPool(t *testing.T, name string) *pool {
	t.Helper()
	s := apiServer(t)
	require.NoError(t, schedulerOnce())
	s.namespace(t, name)
	return &pool{server: s, t: t, name: name}
}

// node adds a node with so many GPUs.
func (p *pool) node(name, gpus string, labels map[string]string, taints ...corev1.Taint) {
	p.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: p.name + "-" + name, Labels: map[string]string{poolLabel: p.name, corev1.LabelHostname: p.name + "-" + name}}}
	for k, v := range labels {
		n.Labels[k] = v
	}
	_, err := p.Client.CoreV1().Nodes().Create(p.t.Context(), n, metav1.CreateOptions{})
	require.NoError(p.t, err)
	size := corev1.ResourceList{
		"cpu": resource.MustParse("192"), "memory": resource.MustParse("2Ti"), "pods": resource.MustParse("110"), "ephemeral-storage": resource.MustParse("4Ti"),
	}
	if gpus != "" {
		size["nvidia.com/gpu"] = resource.MustParse(gpus)
	}
	// Controllers write to nodes, too, so what is here is patched in.
	for _, part := range []struct {
		what any
		sub  []string
	}{
		{map[string]any{"status": corev1.NodeStatus{Capacity: size, Allocatable: size, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}, []string{"status"}},
		// Instead of the taint that says that it is not ready yet.
		{map[string]any{"spec": map[string]any{"taints": taints}}, nil},
	} {
		patch, err := json.Marshal(part.what)
		require.NoError(p.t, err)
		_, err = p.Client.CoreV1().Nodes().Patch(p.t.Context(), n.Name, types.MergePatchType, patch, metav1.PatchOptions{}, part.sub...)
		require.NoError(p.t, err)
	}
}

var gpuTaint = corev1.Taint{Key: "nvidia.com/gpu", Value: "present", Effect: corev1.TaintEffectNoSchedule}

// priorities makes the blueprint's PriorityClasses, under names of this test's.
func (p *pool) priorities() {
	p.t.Helper()
	for _, d := range blueprint(p.t) {
		if d.Object.GetKind() != "PriorityClass" {
			continue
		}
		var class schedulingv1.PriorityClass
		require.NoError(p.t, runtime.DefaultUnstructuredConverter.FromUnstructured(d.Object.Object, &class))
		class.Name = p.name + "-" + class.Name
		_, err := p.Client.SchedulingV1().PriorityClasses().Create(p.t.Context(), &class, metav1.CreateOptions{})
		require.NoError(p.t, err)
	}
}

// own makes a pod spec one that only this pool's nodes suit, with volumes that
// need no claim.
func (p *pool) own(spec *corev1.PodSpec) {
	spec.SchedulerName = ourScheduler
	if spec.NodeSelector == nil {
		spec.NodeSelector = map[string]string{}
	}
	spec.NodeSelector[poolLabel] = p.name
	if spec.PriorityClassName != "" {
		spec.PriorityClassName = p.name + "-" + spec.PriorityClassName
	}
	for i := range spec.Volumes {
		if spec.Volumes[i].PersistentVolumeClaim != nil {
			spec.Volumes[i].VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
		}
	}
}

// deploy creates the Deployments of a render, each with so many replicas.
func (p *pool) deploy(docs []Document, replicas int32) {
	p.t.Helper()
	for _, d := range docs {
		if d.Object.GetKind() != "Deployment" {
			continue
		}
		var one appsv1.Deployment
		require.NoError(p.t, runtime.DefaultUnstructuredConverter.FromUnstructured(d.Object.DeepCopy().Object, &one))
		one.Namespace, one.Spec.Replicas = p.name, &replicas
		p.own(&one.Spec.Template.Spec)
		_, err := p.Client.AppsV1().Deployments(p.name).Create(p.t.Context(), &one, metav1.CreateOptions{})
		require.NoError(p.t, err)
	}
}

// start creates the pod that a document of the blueprint has a template of.
// Change may be nil.
func (p *pool) start(name string, d Document, change func(*corev1.Pod)) {
	p.t.Helper()
	templates := podTemplates(d.Object.Object)
	require.Len(p.t, templates, 1, d)
	var template corev1.PodTemplateSpec
	require.NoError(p.t, runtime.DefaultUnstructuredConverter.FromUnstructured(templates[0], &template))
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Name, pod.Namespace = name, p.name
	p.own(&pod.Spec)
	if change != nil {
		change(pod)
	}
	_, err := p.Client.CoreV1().Pods(p.name).Create(p.t.Context(), pod, metav1.CreateOptions{})
	require.NoError(p.t, err)
}

// document finds one of the blueprint's.
func document(t *testing.T, kind, name string) Document {
	t.Helper()
	for _, d := range blueprint(t) {
		if d.Object.GetKind() == kind && d.Object.GetName() == name {
			return d
		}
	}
	t.Fatalf("no %s %s in deploy/cluster", kind, name)
	return Document{}
}

// pods are those whose name begins so.
func (p *pool) pods(prefix string) (found []corev1.Pod) {
	p.t.Helper()
	list, err := p.Client.CoreV1().Pods(p.name).List(p.t.Context(), metav1.ListOptions{})
	require.NoError(p.t, err)
	for _, one := range list.Items {
		if strings.HasPrefix(one.Name, prefix) {
			found = append(found, one)
		}
	}
	return found
}

// placed waits until n pods whose name begins so have a node, and counts them
// by its name.
func (p *pool) placed(prefix string, n int) map[string]int {
	p.t.Helper()
	nodes := map[string]int{}
	require.Eventually(p.t, func() bool {
		clear(nodes)
		for _, one := range p.pods(prefix) {
			if one.Spec.NodeName != "" {
				nodes[strings.TrimPrefix(one.Spec.NodeName, p.name+"-")]++
			}
		}
		sum := 0
		for _, count := range nodes {
			sum += count
		}
		return sum == n
	}, time.Minute, 100*time.Millisecond, "%s gets a node: %s", prefix, p.why(prefix))
	return nodes
}

// waits waits until the scheduler says that it has no node for a pod whose name
// begins so, and returns why.
func (p *pool) waits(prefix string) string {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return p.why(prefix) != "" }, time.Minute, 100*time.Millisecond, prefix)
	return p.why(prefix)
}

func (p *pool) why(prefix string) string {
	p.t.Helper()
	for _, one := range p.pods(prefix) {
		for _, c := range one.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				return c.Message
			}
		}
	}
	return ""
}

// gone ends a pod that was told to go, as its kubelet would.
func (p *pool) gone(name string) {
	p.t.Helper()
	now := int64(0)
	err := p.Client.CoreV1().Pods(p.name).Delete(p.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	require.True(p.t, err == nil || apierrors.IsNotFound(err), err)
}
