package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

const (
	// selectorFor is how old a scale target's selector gets before it is asked
	// for again, up to half as much more, so that thousands are not asked for at
	// once: a Deployment's cannot change, but the target may be replaced.
	selectorFor = 5 * time.Minute

	// selectorRetry is the pause after one could not be read again.
	selectorRetry = 15 * time.Second

	// selectorWithin bounds reading one beside everything else, and selectorsAtOnce
	// how many are read so.
	selectorWithin  = 10 * time.Second
	selectorsAtOnce = 4
)

type selector struct {
	labels.Selector
	generation int64 // of the ScaledObject
	target     scaleTarget
	until      time.Time // then it is asked for again
}

// selector finds out which pods belong to the target. One that is known stands
// until another is: pods that are watched do not cease to be the target's because
// the API server cannot be asked whose they are.
func (s *Source) selector(ctx context.Context, ref workload.Ref, so *unstructured.Unstructured, override string) (labels.Selector, error) {
	if override != "" {
		return s.override(ref, override)
	}
	target, generation, now := targetOf(so), so.GetGeneration(), time.Now()
	s.mu.Lock()
	known, ok := s.selectors[ref]
	ok = ok && known.generation == generation && known.target == target
	old := ok && now.After(known.until)
	if old {
		next := known
		next.until = now.Add(selectorWithin + selectorRetry) // nobody else needs to ask meanwhile
		s.selectors[ref] = next
	}
	s.mu.Unlock()
	if old {
		go s.renew(ref, target, generation)
	}
	if ok {
		return known, nil
	}
	return s.readSelector(ctx, ref, target, generation)
}

// override parses the selector of a trigger. The last one of the ScaledObject that
// could be parsed stands in for one that cannot.
func (s *Source) override(ref workload.Ref, text string) (labels.Selector, error) {
	sel, err := labels.Parse(text)
	s.mu.Lock()
	defer s.mu.Unlock()
	former, ok := s.overrides[ref]
	switch {
	case err == nil:
		s.overrides[ref] = sel
	case ok:
		return former, nil
	default:
		return nil, fmt.Errorf("podSelector of %s: %w", ref, err)
	}
	return sel, nil
}

// renew reads a selector again. That the target is not there any more is the end
// of it; with any other trouble the one that is known stands.
func (s *Source) renew(ref workload.Ref, target scaleTarget, generation int64) {
	ctx, cancel := context.WithTimeout(s.ctx, selectorWithin)
	defer cancel()
	select {
	case s.renewing <- struct{}{}:
		defer func() { <-s.renewing }()
	case <-ctx.Done():
		return // tried again when it is next looked at
	}
	_, err := s.readSelector(ctx, ref, target, generation)
	if err == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.selectors[ref]
	switch {
	case !ok || known.generation != generation || known.target != target:
	case errors.Is(err, workload.ErrNotFound):
		delete(s.selectors, ref)
	default:
		known.until = time.Now().Add(selectorRetry)
		s.selectors[ref] = known
	}
}

func (s *Source) readSelector(ctx context.Context, ref workload.Ref, target scaleTarget, generation int64) (labels.Selector, error) {
	sc, err := s.scale(ctx, ref, target)
	if err != nil {
		return nil, err
	}
	sel, err := labels.Parse(sc.Status.Selector)
	if err != nil || sc.Status.Selector == "" {
		return nil, fmt.Errorf("the scale of %s in %s has no usable selector (%q): set podSelector in the trigger's metadata", target, ref.Namespace, sc.Status.Selector)
	}
	until := time.Now().Add(selectorFor + rand.N(selectorFor/2)) //nolint:gosec // a phase, not a secret
	s.mu.Lock()
	defer s.mu.Unlock()
	s.selectors[ref] = selector{Selector: sel, generation: generation, target: target, until: until}
	return sel, nil
}

// Asked is how many replicas the target of a ScaledObject asks for. It differs
// from how many pods there are during a rollout, under a quota, and while pods come
// and go. It asks the API server.
func (s *Source) Asked(ctx context.Context, ref workload.Ref) (int, error) {
	so, err := s.object(ref)
	if err != nil {
		return workload.Unknown, err
	}
	sc, err := s.scale(ctx, ref, targetOf(so))
	if err != nil {
		return workload.Unknown, err
	}
	return int(sc.Spec.Replicas), nil
}

// scale reads the scale of a target.
func (s *Source) scale(ctx context.Context, ref workload.Ref, target scaleTarget) (*autoscalingv1.Scale, error) {
	gr, err := s.resource(target)
	if err != nil {
		return nil, fmt.Errorf("scaleTargetRef of %s: %w", ref, err)
	}
	sc, err := s.opts.Scales.Scales(ref.Namespace).Get(ctx, gr, target.name, metaGet)
	denial := workload.Denial{Resource: gr.String() + "/scale", Namespace: ref.Namespace}
	if err != nil {
		if err = classify(fmt.Errorf("reading the scale of %s/%s in %s: %w", gr, target.name, ref.Namespace, err)); errors.Is(err, workload.ErrForbidden) {
			s.troubles.note(denial, "get", err, time.Now(), nil)
		}
		return nil, err
	}
	s.troubles.clear(denial)
	return sc, nil
}

// scaleTarget is a scaleTargetRef.
type scaleTarget struct{ apiVersion, kind, name string }

func (t scaleTarget) String() string { return t.kind + " " + t.name }

// targetOf reads scaleTargetRef; KEDA's defaults are apps/v1 and Deployment.
func targetOf(so *unstructured.Unstructured) scaleTarget {
	field := func(name, def string) string {
		v, _, _ := unstructured.NestedString(so.Object, "spec", "scaleTargetRef", name)
		return cmp.Or(v, def)
	}
	return scaleTarget{field("apiVersion", "apps/v1"), field("kind", "Deployment"), field("name", "")}
}

// resource is the resource that a target's kind is served as.
func (s *Source) resource(t scaleTarget) (schema.GroupResource, error) {
	gv, err := schema.ParseGroupVersion(t.apiVersion)
	if err != nil {
		return schema.GroupResource{}, err
	}
	mapping, err := s.opts.Mapper.RESTMapping(schema.GroupKind{Group: gv.Group, Kind: t.kind}, gv.Version)
	if err != nil {
		return schema.GroupResource{}, err
	}
	return mapping.Resource.GroupResource(), nil
}
