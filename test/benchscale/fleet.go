package main

import (
	"fmt"
	"strconv"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"

	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

// A fleet is what there is to scale. Objects and pods have numbers; all else
// follows from them. The first asleep objects have no pod, the others share the
// pods evenly.
type fleet struct {
	objects, asleep, pods, namespaces int
	port                              int // of every engine
}

// size is that of the whole measurement; small is for a test.
var (
	size  = fleet{objects: 2000, asleep: 200, pods: 4000, namespaces: 20}
	small = fleet{objects: 50, asleep: 10, pods: 100, namespaces: 2}
)

const (
	maxReplicas    = 8
	targetRequests = 16
)

func (f fleet) namespace(n int) string { return fmt.Sprintf("team-%02d", n) }

func (f fleet) ref(i int) workload.Ref {
	return workload.Ref{Namespace: f.namespace(i % f.namespaces), Name: fmt.Sprintf("model-%04d", i)}
}

// model is the served name: as long as that of the page, so that pages keep
// their size.
func (f fleet) model(i int) string { return fmt.Sprintf("meta-llama/Llama-3.1-%04d-Instruct", i) }

// metadata is the trigger's.
func (f fleet) metadata(i int) map[string]string {
	return map[string]string{
		"scalerAddress": "pilotlight-scaler.pilotlight:6000", "targetRequests": strconv.Itoa(targetRequests),
		"modelName": f.model(i), "metricsPort": strconv.Itoa(f.port),
	}
}

// object is how KEDA names object i.
func (f fleet) object(i int) *pb.ScaledObjectRef {
	return &pb.ScaledObjectRef{Namespace: f.ref(i).Namespace, Name: f.ref(i).Name, ScalerMetadata: f.metadata(i)}
}

// podsOf are the numbers of the pods of object i: from first, up to but without
// end.
func (f fleet) podsOf(i int) (first, end int) {
	if i < f.asleep {
		return 0, 0
	}
	awake, n := f.objects-f.asleep, i-f.asleep
	return n * f.pods / awake, (n + 1) * f.pods / awake
}

// objectOf is the object that pod k belongs to: the last one whose pods begin at
// k or before.
func (f fleet) objectOf(k int) int {
	awake := f.objects - f.asleep
	return f.asleep + ((k+1)*awake-1)/f.pods
}

// host is the address of pod k. Linux gives the whole of 127.0.0.0/8 to
// loopback.
func (f fleet) host(k int) string { return fmt.Sprintf("127.20.%d.%d", k/250, 1+k%250) }

func (f fleet) pod(k int) string { return fmt.Sprintf("%s-%d", f.ref(f.objectOf(k)).Name, k) }
