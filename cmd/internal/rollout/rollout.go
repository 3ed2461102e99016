package rollout

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/agentwatch"
	"github.com/pilotlight-dev/pilotlight/internal/workload/kube"
	"github.com/pilotlight-dev/pilotlight/registry"
)

// VersionAnnotation on a pod template is the version that its pods serve,
// whatever the pointer names.
const VersionAnnotation = "pilotlight.dev/model-version"

// pausedPrefix begins KEDA's annotations that stop it from scaling.
const pausedPrefix = "autoscaling.keda.sh/paused"

// listPage is how many objects one answer of the API server holds.
const listPage = 500

// kind is a kind of workload and where its pod templates are.
type kind struct {
	name      string
	resource  schema.GroupVersionResource
	templates [][]string
	optional  bool // not part of Kubernetes: may not be installed
}

func kinds() []kind {
	template := [][]string{{"spec", "template"}}
	return []kind{
		{name: "Deployment", resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, templates: template},
		{name: "StatefulSet", resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}, templates: template},
		{
			name:      "LeaderWorkerSet",
			resource:  schema.GroupVersionResource{Group: "leaderworkerset.x-k8s.io", Version: "v1", Resource: "leaderworkersets"},
			templates: [][]string{{"spec", "leaderWorkerTemplate", "leaderTemplate"}, {"spec", "leaderWorkerTemplate", "workerTemplate"}},
			optional:  true,
		},
	}
}

// Workload runs engines of a model.
type Workload struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Replicas is what its spec asks for now.
	Replicas int64 `json:"replicas"`
	// Pinned is the version that its templates name; "" if none, or not the same.
	Pinned string `json:"pinned,omitempty"`
	// Writer: its pods have no engine, they fill a volume that others share.
	Writer bool `json:"writer,omitempty"`
	// OnDelete: a StatefulSet that replaces a pod only when somebody deletes it.
	OnDelete bool `json:"onDelete,omitempty"`
	// Paused names the ScaledObject over it that somebody has paused, and the
	// annotation that does it.
	Paused string `json:"paused,omitempty"`

	kind      kind
	templates [][]string // those that the object has
}

// ID names the workload among the others: Deployment ai/llama.
func (w Workload) ID() string { return w.Kind + " " + w.Namespace + "/" + w.Name }

// Find returns the workloads whose pod templates name ref, sorted, in one
// namespace or ("") in all. Notes say what could not be looked at and does not
// matter enough to fail.
func Find(ctx context.Context, client dynamic.Interface, namespace string, ref registry.Ref) (found []Workload, notes []string, err error) {
	for _, k := range kinds() {
		objects, err := list(ctx, client, k.resource, namespace)
		switch {
		case err != nil && k.optional && (apierrors.IsNotFound(err) || apierrors.IsForbidden(err)):
			continue
		case err != nil:
			return nil, nil, fmt.Errorf("listing the %s: %w", k.resource.Resource, err)
		}
		for i := range objects {
			if w, ok := describe(k, &objects[i], ref); ok {
				found = append(found, w)
			}
		}
	}
	slices.SortFunc(found, func(a, b Workload) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	if len(found) == 0 {
		return nil, nil, nil
	}
	objects, err := list(ctx, client, kube.ScaledObjects, namespace)
	switch {
	case apierrors.IsNotFound(err): // no KEDA here
	case err != nil:
		notes = append(notes, fmt.Sprintf("could not see whether a ScaledObject is paused: %v", err))
	}
	for i := range objects {
		markPaused(found, &objects[i])
	}
	return found, notes, nil
}

func list(ctx context.Context, client dynamic.Interface, resource schema.GroupVersionResource, namespace string) ([]unstructured.Unstructured, error) {
	var out []unstructured.Unstructured
	opts := metav1.ListOptions{Limit: listPage}
	for {
		page, err := client.Resource(resource).Namespace(namespace).List(ctx, opts)
		if err != nil {
			return nil, err // its callers name the resource
		}
		out = append(out, page.Items...)
		if opts.Continue = page.GetContinue(); opts.Continue == "" {
			return out, nil
		}
	}
}

// describe reads an object; ok is false if none of its templates names ref.
func describe(k kind, o *unstructured.Unstructured, ref registry.Ref) (w Workload, ok bool) {
	w = Workload{Kind: k.name, Namespace: o.GetNamespace(), Name: o.GetName(), Replicas: 1, kind: k}
	if n, found, _ := unstructured.NestedInt64(o.Object, "spec", "replicas"); found {
		w.Replicas = n
	}
	strategy, _, _ := unstructured.NestedString(o.Object, "spec", "updateStrategy", "type")
	w.OnDelete = strategy == "OnDelete"
	pins := map[string]bool{}
	for _, path := range k.templates {
		if _, there, _ := unstructured.NestedMap(o.Object, path...); !there {
			continue
		}
		w.templates = append(w.templates, path)
		annotations, _, _ := unstructured.NestedStringMap(o.Object, slices.Concat(path, []string{"metadata", "annotations"})...)
		labels, _, _ := unstructured.NestedStringMap(o.Object, slices.Concat(path, []string{"metadata", "labels"})...)
		if text := annotations[agentwatch.RefAnnotation]; text != "" && agentwatch.Names(text, ref) {
			ok = true
		}
		w.Writer = w.Writer || labels[agentwatch.RoleLabel] == agentwatch.RoleWriter
		pins[annotations[VersionAnnotation]] = true
	}
	if len(pins) == 1 {
		for pin := range pins {
			w.Pinned = pin
		}
	}
	return w, ok
}

// markPaused notes at the workload that a ScaledObject scales that it is paused.
func markPaused(found []Workload, so *unstructured.Unstructured) {
	var paused []string
	for name, value := range so.GetAnnotations() {
		if strings.HasPrefix(name, pausedPrefix) && value != "false" {
			paused = append(paused, name+"="+value)
		}
	}
	if len(paused) == 0 {
		return
	}
	slices.Sort(paused)
	target, _, _ := unstructured.NestedStringMap(so.Object, "spec", "scaleTargetRef")
	for i := range found {
		w := &found[i]
		if w.Namespace == so.GetNamespace() && w.Name == target["name"] && cmp.Or(target["kind"], "Deployment") == w.Kind {
			w.Paused = so.GetName() + " (" + strings.Join(paused, ", ") + ")"
		}
	}
}

// Restart pins the workload's templates to a version. It reports whether that
// changed anything: a workload that is pinned to it already serves it, or is on
// its way to.
func Restart(ctx context.Context, client dynamic.Interface, w Workload, version string) (changed bool, err error) {
	if w.Pinned == version {
		return false, nil
	}
	patch := map[string]any{}
	for _, path := range w.templates {
		full := slices.Concat(path, []string{"metadata", "annotations", VersionAnnotation})
		if err := unstructured.SetNestedField(patch, version, full...); err != nil {
			return false, fmt.Errorf("restarting %s: %w", w.ID(), err)
		}
	}
	data, err := json.Marshal(patch)
	if err == nil {
		_, err = client.Resource(w.kind.resource).Namespace(w.Namespace).Patch(ctx, w.Name, types.MergePatchType, data, metav1.PatchOptions{FieldManager: "pilotlight"})
	}
	if err != nil {
		return false, fmt.Errorf("restarting %s: setting %s=%s in its pod template: %w", w.ID(), VersionAnnotation, version, err)
	}
	return true, nil
}
