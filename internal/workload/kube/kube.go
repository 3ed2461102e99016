// Package kube reads workloads from a Kubernetes cluster.
//
// ScaledObjects are watched (in one namespace or in all), pods only in
// namespaces that somebody has asked about, and both are kept without what is
// not needed. The scale target's selector comes from its scale subresource, so
// that anything that can be scaled can be a target; it is asked for again when
// the ScaledObject changes and every few minutes.
//
// Rights needed: get, list and watch on pods and scaledobjects, get on */scale.
package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/tools/cache"

	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

// ScaledObjects is the resource that KEDA defines.
var ScaledObjects = schema.GroupVersionResource{Group: "keda.sh", Version: "v1alpha1", Resource: "scaledobjects"}

// Options configures a Source. The clients are required.
type Options struct {
	Dynamic   dynamic.Interface
	Client    kubernetes.Interface
	Scales    scale.ScalesGetter
	Mapper    meta.RESTMapper
	Namespace string       // watch only this one; "" = all
	Logger    *slog.Logger // default: discard
}

// Source serves workloads from watches. See New.
type Source struct {
	opts    Options
	ctx     context.Context //nolint:containedctx // the life of the informers, which outlive the call that starts them
	objects cache.GenericLister
	synced  cache.InformerSynced

	troubles troubles

	mu         sync.Mutex
	namespaces map[string]*pods
	selectors  map[workload.Ref]selector
	overrides  map[workload.Ref]labels.Selector // of triggers, the last that could be parsed
	renewing   chan struct{}                    // holds one for each selector that is read again
	leftOut    map[workload.Ref]string          // why, as last said
}

// New returns a Source whose watches end with ctx. It does not wait for them:
// see Synced.
func New(ctx context.Context, opts Options) *Source {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(opts.Dynamic, 0, opts.Namespace, nil)
	objects := factory.ForResource(ScaledObjects)
	s := &Source{
		opts: opts, ctx: ctx, objects: objects.Lister(), synced: objects.Informer().HasSynced,
		namespaces: map[string]*pods{}, selectors: map[workload.Ref]selector{}, overrides: map[workload.Ref]labels.Selector{}, renewing: make(chan struct{}, selectorsAtOnce), leftOut: map[workload.Ref]string{},
		troubles: troubles{log: opts.Logger},
	}
	// Neither call fails on an informer that has not been started.
	_ = objects.Informer().SetTransform(dropManagedFields)
	_ = objects.Informer().SetWatchErrorHandler(func(_ *cache.Reflector, err error) {
		s.troubles.watch(s.objectsDenial(), err, time.Now(), newer(objects.Informer()))
	})
	factory.Start(ctx.Done())
	return s
}

// Synced reports whether the ScaledObjects have been listed.
func (s *Source) Synced() bool { return s.synced() }

// Workload returns the ScaledObject ref with its target's pods. podSelector,
// when not empty, takes the place of the target's own selector.
func (s *Source) Workload(ctx context.Context, ref workload.Ref, podSelector string) (workload.Workload, error) {
	if !s.synced() {
		return workload.Workload{}, fmt.Errorf("%w: scaledobjects", workload.ErrNotReady)
	}
	so, err := s.object(ref)
	if err != nil {
		return workload.Workload{}, err
	}
	w := describe(ref, so)
	sel, err := s.selector(ctx, ref, so, podSelector)
	if err != nil {
		return workload.Workload{}, err
	}
	list, err := s.pods(ctx, ref.Namespace, sel)
	if err != nil {
		return workload.Workload{}, err
	}
	w.Replicas = 0
	for _, p := range list {
		pod := convert(p)
		if !pod.Terminating {
			w.Replicas++
		}
		w.Pods = append(w.Pods, pod)
	}
	slices.SortFunc(w.Pods, func(a, b workload.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return w, nil
}

// All returns every ScaledObject that has a trigger of ours. One whose pods
// cannot be read is left out and logged; the others are not its hostages.
func (s *Source) All(ctx context.Context) ([]workload.Workload, error) {
	if !s.synced() {
		return nil, fmt.Errorf("%w: scaledobjects", workload.ErrNotReady)
	}
	objects, err := s.objects.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	var out []workload.Workload
	seen := map[workload.Ref]bool{}
	for _, obj := range objects {
		so, ok := obj.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		ref := workload.Ref{Namespace: so.GetNamespace(), Name: so.GetName()}
		metadata := describe(ref, so).Metadata
		if metadata == nil {
			continue
		}
		seen[ref] = true
		w, err := s.Workload(ctx, ref, metadata["podSelector"])
		s.leaveOut(ref, err)
		if err != nil {
			continue
		}
		out = append(out, w)
	}
	s.forgetLeftOut(seen)
	slices.SortFunc(out, func(a, b workload.Workload) int { return cmp.Compare(a.String(), b.String()) })
	return out, nil
}

// Triggers lists what every ScaledObject with a trigger of ours says there. It
// reads no pod, so that it costs little.
func (s *Source) Triggers(context.Context) ([]workload.Trigger, error) {
	if !s.synced() {
		return nil, fmt.Errorf("%w: scaledobjects", workload.ErrNotReady)
	}
	objects, err := s.objects.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	var out []workload.Trigger
	for _, obj := range objects {
		so, ok := obj.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		if metadata, _ := own(so); metadata != nil {
			out = append(out, workload.Trigger{Ref: workload.Ref{Namespace: so.GetNamespace(), Name: so.GetName()}, Metadata: metadata})
		}
	}
	return out, nil
}

// Agents lists the pods that follow the model reference with this hash, in the
// namespaces whose pods are watched: those with targets.
func (s *Source) Agents(refHash string) []workload.Agent {
	return s.agents(labels.SelectorFromSet(labels.Set{RefHashLabel: refHash}))
}

// AllAgents is Agents for whatever reference.
func (s *Source) AllAgents() []workload.Agent {
	labelled, err := labels.NewRequirement(RefHashLabel, selection.Exists, nil)
	if err != nil {
		return nil // of a label that cannot be
	}
	return s.agents(labels.NewSelector().Add(*labelled))
}

func (s *Source) agents(following labels.Selector) []workload.Agent {
	s.mu.Lock()
	watched := slices.Collect(maps.Values(s.namespaces))
	s.mu.Unlock()
	var out []workload.Agent
	for _, p := range watched {
		list, err := selected(p.indexer, following)
		if err != nil {
			continue // it has none over an index that there is
		}
		for _, pod := range list {
			if a, ok := agent(pod); ok {
				out = append(out, a)
			}
		}
	}
	slices.SortFunc(out, func(a, b workload.Agent) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod))
	})
	return out
}

func (s *Source) object(ref workload.Ref) (*unstructured.Unstructured, error) {
	obj, err := s.objects.ByNamespace(ref.Namespace).Get(ref.Name)
	if apierrors.IsNotFound(err) {
		if denial := s.troubles.lost(s.objectsDenial(), time.Now()); denial != nil {
			return nil, classify(fmt.Errorf("scaledobject %s is not known: %w", ref, denial))
		}
		return nil, fmt.Errorf("%w: scaledobject %s", workload.ErrNotFound, ref)
	}
	if err != nil {
		return nil, err
	}
	so, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("scaledobject %s has type %T", ref, obj)
	}
	return so, nil
}

// newer returns a function that reports whether an informer has listed anything
// since.
func newer(informer cache.SharedIndexInformer) func() bool {
	then := informer.LastSyncResourceVersion()
	return func() bool { return informer.LastSyncResourceVersion() != then }
}

// classify gives an API error the sentinel that callers know.
func classify(err error) error {
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return errors.Join(workload.ErrForbidden, err)
	case apierrors.IsNotFound(err):
		return errors.Join(workload.ErrNotFound, err)
	}
	return err
}
