package rollout_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/rollout"
	"github.com/pilotlight-dev/pilotlight/registry"
)

func ref(t *testing.T) registry.Ref {
	t.Helper()
	r, err := registry.ParseModel("llama@champion")
	require.NoError(t, err)
	return r
}

func newClient(t *testing.T, objects ...string) *dynamicfake.FakeDynamicClient {
	t.Helper()
	var list []runtime.Object
	for _, text := range objects {
		o := &unstructured.Unstructured{}
		data, err := yaml.YAMLToJSON([]byte(text))
		require.NoError(t, err)
		require.NoError(t, o.UnmarshalJSON(data))
		list = append(list, o)
	}
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		{Group: "apps", Version: "v1", Resource: "deployments"}:                          "DeploymentList",
		{Group: "apps", Version: "v1", Resource: "statefulsets"}:                         "StatefulSetList",
		{Group: "leaderworkerset.x-k8s.io", Version: "v1", Resource: "leaderworkersets"}: "LeaderWorkerSetList",
		{Group: "keda.sh", Version: "v1alpha1", Resource: "scaledobjects"}:               "ScaledObjectList",
	}, list...)
}

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: llama, namespace: ai}
spec:
  replicas: 0
  template:
    metadata:
      annotations: {pilotlight.dev/ref: llama@champion, other: stays}
      labels: {app: llama}
    spec: {containers: [{name: vllm, image: vllm}]}
`

const statefulSet = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: llama, namespace: ai}
spec:
  updateStrategy: {type: OnDelete}
  template:
    metadata: {annotations: {pilotlight.dev/ref: "models:/llama@champion", pilotlight.dev/model-version: "6"}}
`

const writer = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: writer, namespace: ai}
spec:
  template:
    metadata: {annotations: {pilotlight.dev/ref: llama@champion}, labels: {pilotlight.dev/role: writer}}
`

const another = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: gemma, namespace: ai, annotations: {pilotlight.dev/ref: llama@champion}}
spec:
  template:
    metadata: {annotations: {pilotlight.dev/ref: gemma@champion}}
`

func scaledObject(kind, annotation string) string {
	return `
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: so, namespace: ai, annotations: {` + annotation + `}}
spec: {scaleTargetRef: {name: llama` + kind + `}}
`
}

func TestFind(t *testing.T) {
	found, notes, err := rollout.Find(t.Context(), newClient(t, deployment, statefulSet, writer, another), "", ref(t))
	require.NoError(t, err)
	require.Empty(t, notes)
	require.Len(t, found, 3, "what only the object's own annotation names is none")
	require.Equal(t, "Deployment ai/llama", found[0].ID())
	require.Zero(t, found[0].Replicas, "zero replicas are found too")
	require.Empty(t, found[0].Pinned)
	require.True(t, found[1].Writer)
	require.Equal(t, "StatefulSet ai/llama", found[2].ID())
	require.EqualValues(t, 1, found[2].Replicas, "what Kubernetes takes where the spec says nothing")
	require.Equal(t, "6", found[2].Pinned)
	require.True(t, found[2].OnDelete)

	found, _, err = rollout.Find(t.Context(), newClient(t, deployment), "elsewhere", ref(t))
	require.NoError(t, err)
	require.Empty(t, found)
}

func TestPausedScaledObjectsAreReported(t *testing.T) {
	tests := map[string]struct{ object, want string }{
		"Paused":          {scaledObject("", `autoscaling.keda.sh/paused: "true"`), "so (autoscaling.keda.sh/paused=true)"},
		"PausedAtZero":    {scaledObject("", `autoscaling.keda.sh/paused-replicas: "0"`), "so (autoscaling.keda.sh/paused-replicas=0)"},
		"PausedScaleIn":   {scaledObject(", kind: Deployment", `autoscaling.keda.sh/paused-scale-in: "true"`), "so (autoscaling.keda.sh/paused-scale-in=true)"},
		"Not":             {scaledObject("", `x: "true"`), ""},
		"NoLonger":        {scaledObject("", `autoscaling.keda.sh/paused: "false"`), ""},
		"OfAnotherTarget": {scaledObject(", kind: StatefulSet", `autoscaling.keda.sh/paused: "true"`), ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			client := newClient(t, deployment, tc.object)
			found, _, err := rollout.Find(t.Context(), client, "ai", ref(t))
			require.NoError(t, err)
			require.Equal(t, tc.want, found[0].Paused)
		})
	}
}

func TestWhatMayNotBeReadMattersOnlyWhereItIsNeeded(t *testing.T) {
	refuse := func(client *dynamicfake.FakeDynamicClient, resource string, err error) {
		client.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
	}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "x"}, "", nil)
	client := newClient(t, deployment)
	refuse(client, "leaderworkersets", apierrors.NewNotFound(schema.GroupResource{}, ""))
	refuse(client, "scaledobjects", forbidden)
	found, notes, err := rollout.Find(t.Context(), client, "", ref(t))
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Len(t, notes, 1)
	require.Contains(t, notes[0], "could not see whether a ScaledObject is paused")

	refuse(client, "deployments", forbidden)
	_, _, err = rollout.Find(t.Context(), client, "", ref(t))
	require.ErrorContains(t, err, "listing the deployments")
}

func TestRestartWritesOneAnnotation(t *testing.T) {
	client := newClient(t, deployment)
	deployments := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	get := func() map[string]any {
		o, err := client.Resource(deployments).Namespace("ai").Get(t.Context(), "llama", metav1.GetOptions{})
		require.NoError(t, err)
		return o.Object
	}
	found, _, err := rollout.Find(t.Context(), client, "ai", ref(t))
	require.NoError(t, err)
	want := get()
	changed, err := rollout.Restart(t.Context(), client, found[0], "7")
	require.NoError(t, err)
	require.True(t, changed)
	require.NoError(t, unstructured.SetNestedField(want, "7", "spec", "template", "metadata", "annotations", rollout.VersionAnnotation))
	require.Equal(t, want, get(), "nothing else has changed")

	found, _, err = rollout.Find(t.Context(), client, "ai", ref(t))
	require.NoError(t, err)
	client.ClearActions()
	changed, err = rollout.Restart(t.Context(), client, found[0], "7")
	require.NoError(t, err)
	require.False(t, changed)
	require.Empty(t, client.Actions(), "what is pinned already is not written")
}
