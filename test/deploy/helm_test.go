package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/kube"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/pilotlight-dev/pilotlight/internal/freeport"
	"github.com/pilotlight-dev/pilotlight/test/e2e/plane"
)

// helm is Helm on the server, in one namespace; its releases are kept in memory.
type helm struct {
	t      *testing.T
	config *action.Configuration
	ns     string
}

func (s *server) helm(t *testing.T, ns string) *helm {
	t.Helper()
	file := filepath.Join(s.Dir, "admin.kubeconfig")
	getter := genericclioptions.NewConfigFlags(false)
	getter.KubeConfig, getter.Namespace = &file, &ns
	config := action.NewConfiguration()
	require.NoError(t, config.Init(getter, ns, "memory"))
	return &helm{t: t, config: config, ns: ns}
}

func (h *helm) install(r Release) {
	h.t.Helper()
	chart, err := loader.LoadDir(filepath.Join(root, "deploy", "charts", r.Chart))
	require.NoError(h.t, err)
	do := action.NewInstall(h.config)
	do.ReleaseName, do.Namespace, do.WaitStrategy, do.Timeout = r.Name, h.ns, kube.HookOnlyStrategy, time.Minute
	_, err = do.RunWithContext(h.t.Context(), chart, r.Values)
	require.NoError(h.t, err)
}

func (h *helm) upgrade(r Release) {
	h.t.Helper()
	chart, err := loader.LoadDir(filepath.Join(root, "deploy", "charts", r.Chart))
	require.NoError(h.t, err)
	do := action.NewUpgrade(h.config)
	do.Namespace, do.WaitStrategy, do.Timeout, do.ServerSideApply = h.ns, kube.HookOnlyStrategy, time.Minute, "auto"
	_, err = do.RunWithContext(h.t.Context(), r.Name, chart, r.Values)
	require.NoError(h.t, err)
}

// scaled sets the replicas as KEDA and the HPA do.
func (s *server) scaled(t *testing.T, ns, name string, n int32) {
	t.Helper()
	_, err := s.Client.AppsV1().Deployments(ns).UpdateScale(t.Context(), name, &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}, Spec: autoscalingv1.ScaleSpec{Replicas: n},
	}, metav1.UpdateOptions{})
	require.NoError(t, err)
}

const pin = `{"spec":{"template":{"metadata":{"annotations":{"pilotlight.dev/model-version":"6"}}}}}`

// pinned does what a rollback with --restart does.
func (s *server) pinned(t *testing.T, ns, name string) {
	t.Helper()
	_, err := s.Client.AppsV1().Deployments(ns).Patch(t.Context(), name, types.MergePatchType, []byte(pin), metav1.PatchOptions{FieldManager: "pilotlight"})
	require.NoError(t, err)
}

// A GitOps tool that puts everything right again leaves alone what others own:
// the replicas, which are KEDA's, and the version that a rollback has pinned.
func TestSelfHealLeavesReplicasAndPinsAlone(t *testing.T) {
	t.Parallel()
	s := apiServer(t)
	r := model
	r.Namespace = s.namespace(t, "gitops")
	docs, _, err := Render(r)
	require.NoError(t, err)
	s.apply(t, docs, "Deployment")
	for _, n := range []int32{0, 5} {
		s.scaled(t, r.Namespace, r.Name, n)
		s.pinned(t, r.Namespace, r.Name)
		s.apply(t, docs, "Deployment")
		s.stands(t, r.Namespace, r.Name, n, "6")
	}
}

// So does helm upgrade, with KEDA's operator at work on the ScaledObject.
func TestUpgradesLeaveReplicasAndPinsAlone(t *testing.T) {
	t.Parallel()
	s := apiServer(t)
	r := model
	r.Namespace = s.namespace(t, "upgrades")
	h := s.helm(t, r.Namespace)
	r.Values = map[string]any{"model": model.Values["model"], "pilotlight": map[string]any{"authentication": ""}}
	h.install(r)
	require.Eventually(t, func() bool { // KEDA writes to it, too: Helm must not mind
		obj, err := s.Dyn.Resource(plane.ScaledObjects).Namespace(r.Namespace).Get(t.Context(), r.Name, metav1.GetOptions{})
		return err == nil && len(obj.GetFinalizers()) > 0
	}, time.Minute, 50*time.Millisecond)
	for i, n := range []int32{0, 5} {
		s.paused(t, r.Namespace, r.Name, n)
		s.scaled(t, r.Namespace, r.Name, n)
		s.pinned(t, r.Namespace, r.Name)
		r.Values["engine"] = map[string]any{"args": []any{fmt.Sprint("--upgrade-", i)}}
		h.upgrade(r)
		s.stands(t, r.Namespace, r.Name, n, "6")
	}
}

// paused keeps KEDA from scaling meanwhile: nobody answers it here.
func (s *server) paused(t *testing.T, ns, name string, n int32) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"autoscaling.keda.sh/paused-replicas":"%d"}}}`, n)
	_, err := s.Dyn.Resource(plane.ScaledObjects).Namespace(ns).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
}

func (s *server) stands(t *testing.T, ns, name string, replicas int32, version string) {
	t.Helper()
	d, err := s.Client.AppsV1().Deployments(ns).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, replicas, *d.Spec.Replicas, name)
	require.Equal(t, version, d.Spec.Template.Annotations["pilotlight.dev/model-version"], name)
}

// apply does what a GitOps tool does: server-side apply, by force.
func (s *server) apply(t *testing.T, docs []Document, kind string) {
	t.Helper()
	for _, d := range docs {
		if d.Object.GetKind() != kind {
			continue
		}
		mapping, err := s.mapper.RESTMapping(d.Object.GroupVersionKind().GroupKind())
		require.NoError(t, err)
		data, err := json.Marshal(d.Object.Object)
		require.NoError(t, err)
		force := true
		_, err = s.Dyn.Resource(mapping.Resource).Namespace(d.Object.GetNamespace()).Patch(t.Context(), d.Object.GetName(), types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: "gitops", Force: &force})
		require.NoError(t, err)
	}
}

// The rights that the chart gives are all that the programs need: they run with
// the tokens of its ServiceAccounts, the scaler as one of several that elect a
// leader. And certificates outlive an upgrade.
func TestTheChartsRightsAreEnough(t *testing.T) {
	t.Parallel()
	s := apiServer(t)
	for name, values := range map[string]map[string]any{
		"everywhere": {},
		"one":        {"watchNamespace": "ai"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := s.helm(t, plane.KEDANamespace)
			r := pilotlight
			r.Name, r.Values = "rights-"+name, values // renders of other tests must not meet it
			h.install(r)
			full := r.Name + "-pilotlight"
			before := s.certificate(t, full)
			h.upgrade(r)
			require.Equal(t, before, s.certificate(t, full), "an upgrade keeps the certificates")
			for _, component := range []string{"scaler", "activator"} {
				s.runsAs(t, full, component, values)
			}
		})
	}
}

func (s *server) certificate(t *testing.T, full string) map[string][]byte {
	t.Helper()
	one, err := s.Client.CoreV1().Secrets(plane.KEDANamespace).Get(t.Context(), full+"-scaler-tls", metav1.GetOptions{})
	require.NoError(t, err)
	return one.Data
}

// anyPod is the first of the scaler's pods by name. Nobody runs it.
func (s *server) anyPod(t *testing.T, full string) corev1.Pod {
	t.Helper()
	var first corev1.Pod
	require.Eventually(t, func() bool {
		pods, err := s.Client.CoreV1().Pods(plane.KEDANamespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=scaler,app.kubernetes.io/instance=" + strings.TrimSuffix(full, "-pilotlight")})
		if err != nil || len(pods.Items) < 2 {
			return false
		}
		first = slices.MinFunc(pods.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
		return true
	}, time.Minute, 50*time.Millisecond)
	return first
}

// runsAs starts a program with the rights of its ServiceAccount, until it is
// ready and, if it is a scaler, leads.
func (s *server) runsAs(t *testing.T, full, component string, values map[string]any) {
	t.Helper()
	bin, err := binaries()
	require.NoError(t, err)
	token, err := s.ServiceAccountToken(t.Context(), plane.KEDANamespace, full+"-"+component)
	require.NoError(t, err)
	config := filepath.Join(t.TempDir(), component+".kubeconfig")
	require.NoError(t, s.Kubeconfig(config, s.Host, token))
	probes := freeAddr(t)
	args := []string{"--kubeconfig=" + config, "--listen=127.0.0.1:0", "--http-listen=" + probes}
	if ns, ok := values["watchNamespace"]; ok {
		args = append(args, fmt.Sprint("--namespace=", ns))
	}
	env := []string{"POD_NAMESPACE=" + plane.KEDANamespace}
	if component == "scaler" {
		args = append(args, "--demand-listen=127.0.0.1:0", "--leader-elect", "--lease-name="+full+"-scaler")
		env = append(env, "POD_NAME="+s.anyPod(t, full).Name)
	} else {
		args = append(args, "--scaler=127.0.0.1:1", "--insecure")
	}
	p, err := plane.Run(context.WithoutCancel(t.Context()), t.TempDir(), component, env, filepath.Join(bin, "pilotlight-"+component), args...)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return ready(t, "http://"+probes+"/readyz") }, time.Minute, 100*time.Millisecond, "%s: %s", component, p.Tail())
	if component == "scaler" {
		require.Eventually(t, func() bool {
			body := get(t, "http://"+probes+"/metrics")
			return strings.Contains(body, "pilotlight_scaler_leader 1")
		}, time.Minute, 100*time.Millisecond, "%s: %s", component, p.Tail())
		require.Eventually(t, func() bool { // which it does once it works
			return s.anyPod(t, full).Labels["pilotlight.dev/leader"] == "true"
		}, time.Minute, 100*time.Millisecond, "the scaler labels its pod: %s", p.Tail())
	}
	require.NoError(t, p.Kill())
	require.NotContains(t, p.Tail(), "forbidden", component)
}

func freeAddr(t *testing.T) string {
	t.Helper()
	addr, err := freeport.Addr(t.Context())
	require.NoError(t, err)
	return addr
}

func ready(t *testing.T, url string) bool {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	client := &http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
}
