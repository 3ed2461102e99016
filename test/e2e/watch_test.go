package e2e

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/pilotlight-dev/pilotlight/test/e2e/plane"
	"github.com/pilotlight-dev/pilotlight/test/e2e/timeline"
)

// watch notices what happens to a scenario's objects, and when.
type watch struct {
	began time.Time

	mu           sync.Mutex
	replicas     int32 // asked for, -1 while there is no Deployment
	ready        int32
	keda         *timeline.KEDA
	hpa          *autoscalingv2.HorizontalPodAutoscaler
	moves        []timeline.Move
	looks        []float64
	polls, syncs []float64
	lastActive   string
	object       json.RawMessage
	objectAt     float64
	pods         []*seenPod
}

type seenPod struct {
	uid              string
	at, ready, ended float64 // 0 = not yet
}

func newWatch(began time.Time) *watch { return &watch{began: began, replicas: -1} }

// run watches a namespace until ctx ends; the function it returns waits for
// that.
func (w *watch) run(ctx context.Context, client kubernetes.Interface, dyn dynamic.Interface, ns string) (wait func()) {
	typed := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(ns))
	objects := dynamicinformer.NewFilteredDynamicSharedInformerFactory(dyn, 0, ns, nil)
	for _, one := range []struct {
		informer cache.SharedIndexInformer
		see      func(obj any, at float64, gone bool)
	}{
		{typed.Apps().V1().Deployments().Informer(), w.seeDeployment},
		{typed.Autoscaling().V2().HorizontalPodAutoscalers().Informer(), w.seeHPA},
		{typed.Core().V1().Pods().Informer(), w.seePod},
		{objects.ForResource(plane.ScaledObjects).Informer(), w.seeObject},
	} {
		see := func(obj any, gone bool) {
			w.mu.Lock()
			defer w.mu.Unlock()
			one.see(obj, time.Since(w.began).Seconds(), gone)
		}
		_, _ = one.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{ // fails only once it was stopped
			AddFunc:    func(obj any) { see(obj, false) },
			UpdateFunc: func(_, obj any) { see(obj, false) },
			DeleteFunc: func(obj any) { see(obj, true) },
		})
	}
	typed.Start(ctx.Done())
	objects.Start(ctx.Done())
	return func() {
		typed.Shutdown()
		objects.Shutdown()
	}
}

// see adds the present state to a point; w.mu is held.
func (w *watch) see(p *timeline.Point) {
	p.Replicas, p.Ready = w.replicas, w.ready
	p.KEDA = w.keda
	if w.hpa == nil {
		return
	}
	status := w.hpa.Status
	p.HPA = &timeline.HPA{Desired: status.DesiredReplicas, Current: status.CurrentReplicas}
	for _, m := range status.CurrentMetrics {
		if m.External != nil && m.External.Current.AverageValue != nil {
			value := m.External.Current.AverageValue.AsApproximateFloat64()
			p.HPA.Metric = &value
		}
	}
}

func (w *watch) seeDeployment(obj any, at float64, gone bool) {
	d, ok := obj.(*appsv1.Deployment)
	if !ok || gone || d.Spec.Replicas == nil {
		w.replicas, w.ready = -1, 0
		return
	}
	if before := w.replicas; before >= 0 && before != *d.Spec.Replicas {
		w.moves = append(w.moves, timeline.Move{Seconds: at, From: before, To: *d.Spec.Replicas, By: scaledBy(d)})
	}
	w.replicas, w.ready = *d.Spec.Replicas, d.Status.ReadyReplicas
}

// scaledBy is whose the replicas are: who has set them last. Zero is nobody's,
// since it is left out of what is written; only KEDA goes there.
func scaledBy(d *appsv1.Deployment) string {
	for _, f := range d.ManagedFields {
		var owns struct {
			Spec struct {
				Replicas *struct{} `json:"f:replicas"`
			} `json:"f:spec"`
		}
		if f.FieldsV1 == nil || json.Unmarshal(f.FieldsV1.GetRawBytes(), &owns) != nil || owns.Spec.Replicas == nil {
			continue
		}
		switch f.Manager {
		case "keda", "keda-operator":
			return timeline.ByKEDA
		case "kube-controller-manager":
			return timeline.ByHPA
		}
		return f.Manager
	}
	if *d.Spec.Replicas == 0 {
		return timeline.ByKEDA
	}
	return "somebody"
}

func (w *watch) seeHPA(obj any, at float64, gone bool) {
	h, ok := obj.(*autoscalingv2.HorizontalPodAutoscaler)
	if !ok || gone {
		w.hpa = nil
		return
	}
	if w.hpa != nil && !reflect.DeepEqual(h.Status, w.hpa.Status) {
		w.syncs = append(w.syncs, at)
	}
	w.hpa = h
}

func (w *watch) seeObject(obj any, at float64, gone bool) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok || gone {
		w.keda = nil
		return
	}
	if w.object == nil {
		w.object, _ = json.Marshal(map[string]any{ // plain values
			"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "metadata": map[string]any{"name": u.GetName()}, "spec": u.Object["spec"],
		})
		w.objectAt = at
	}
	w.keda = &timeline.KEDA{}
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, one := range conditions {
		c, _ := one.(map[string]any)
		for kind, to := range map[string]*string{"Ready": &w.keda.Ready, "Active": &w.keda.Active, "Fallback": &w.keda.Fallback, "Paused": &w.keda.Paused} {
			if c["type"] == kind {
				*to = fmt.Sprint(c["status"])
			}
		}
	}
	last, _, _ := unstructured.NestedString(u.Object, "status", "lastActiveTime")
	// A push wakes; it is the polls of a target that runs that show the loop.
	if last != w.lastActive && w.replicas > 0 && (len(w.moves) == 0 || at-w.moves[len(w.moves)-1].Seconds > afterPush) {
		w.polls = append(w.polls, at)
	}
	w.lastActive = last
}

func (w *watch) seePod(obj any, at float64, gone bool) {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	p, ok := obj.(*corev1.Pod)
	if !ok || p.Labels["app"] != "llama" {
		return
	}
	i := slices.IndexFunc(w.pods, func(s *seenPod) bool { return s.uid == string(p.UID) })
	if i < 0 {
		i = len(w.pods)
		w.pods = append(w.pods, &seenPod{uid: string(p.UID), at: at})
	}
	seen := w.pods[i]
	if seen.ready == 0 && isReady(*p) {
		seen.ready = at
	}
	if seen.ended == 0 && (gone || p.DeletionTimestamp != nil) {
		seen.ended = at
	}
}

// afterPush is how long after the replicas moved KEDA may still be writing down
// why, in seconds.
const afterPush = 1

// trace is what was noticed of what drives a scenario.
func (w *watch) trace(ended float64) *timeline.Trace {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := &timeline.Trace{
		Began: w.objectAt, Replicas: max(w.replicas, 0), ScaledObject: w.object,
		Looks: slices.Clone(w.looks), Polls: slices.Clone(w.polls), Syncs: slices.Clone(w.syncs),
	}
	for _, m := range slices.Backward(w.moves) {
		if m.Seconds >= w.objectAt {
			t.Replicas = m.From // before the first of them
		}
	}
	for _, p := range w.pods {
		s := timeline.Start{At: w.asked(p.at)}
		s.Lived = cmp.Or(p.ended, ended) - s.At
		if p.ready > 0 {
			s.Took = p.ready - s.At
		}
		t.Starts = append(t.Starts, s)
	}
	return t
}

// asked is when the replicas last grew before a pod was seen: it is then that it
// was asked for.
func (w *watch) asked(seen float64) float64 {
	for _, m := range slices.Backward(w.moves) {
		if m.Seconds <= seen && m.To > m.From {
			return m.Seconds
		}
	}
	return seen
}

// requests reads from the activator's log when requests came, how long each
// waited, and how long it was served.
func requests(log string, began time.Time) ([]timeline.Request, error) {
	f, err := os.Open(log) //nolint:gosec // a log of the run
	if err != nil {
		return nil, err // names the file
	}
	defer f.Close() //nolint:errcheck // only read
	var all []timeline.Request
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var e struct {
			Time       time.Time     `json:"time"`
			Msg        string        `json:"msg"`
			Target     string        `json:"target"`
			Class      string        `json:"class"`
			Took, Held time.Duration // nanoseconds
		}
		if json.Unmarshal(lines.Bytes(), &e) != nil || e.Msg != "request" || e.Target == "" {
			continue
		}
		all = append(all, timeline.Request{
			At: e.Time.Add(-e.Took).Sub(began).Seconds(), Held: e.Held.Seconds(), Served: (e.Took - e.Held).Seconds(),
			Gone: e.Class != "ok",
		})
	}
	slices.SortStableFunc(all, func(a, b timeline.Request) int { return cmp.Compare(a.At, b.At) })
	return all, nil
}
