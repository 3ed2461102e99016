// Package workload describes what a ScaledObject scales as the cluster (or a
// file) shows it: the pods, the replica count, the bounds. The scaler reads it
// to decide and the activator reads it to route, each through its own
// interface; the implementations are the packages below this one: kube (client-go)
// and static (a file, for use without a cluster).
package workload

import (
	"errors"
	"time"
)

// ErrNotFound is returned for a ScaledObject, or a target of one, that does
// not exist.
var ErrNotFound = errors.New("not found")

// ErrNotReady is returned while the source has not seen the whole cluster yet.
var ErrNotReady = errors.New("not synced yet")

// ErrForbidden is returned when the source may not read what it needs.
var ErrForbidden = errors.New("forbidden")

// Ref names a ScaledObject.
type Ref struct{ Namespace, Name string }

// String renders namespace/name.
func (r Ref) String() string { return r.Namespace + "/" + r.Name }

// Unknown stands for a replica count that could not be read.
const Unknown = -1

// Workload is one ScaledObject's target at one moment.
type Workload struct {
	Ref
	UID         string            // of the ScaledObject, "" where there is no cluster
	Metadata    map[string]string // trigger metadata, where the source knows it
	MinReplicas int               // minReplicaCount
	MaxReplicas int               // maxReplicaCount
	SoleTrigger bool              // the ScaledObject has no other trigger
	Cooldown    time.Duration     // cooldownPeriod
	Tolerance   float64           // of the HPA, the larger of both directions
	Replicas    int               // pods, the terminating ones left out, or Unknown
	Pods        []Pod             // every pod of the target, sorted by name
}

// Failure says why a pod does not get ready.
type Failure string

// The failures, as a held client is told about them.
const (
	FailureNone          Failure = ""
	FailureImage         Failure = "image"         // the image cannot be pulled
	FailureCrash         Failure = "crash"         // a container keeps crashing
	FailurePointer       Failure = "pointer"       // the model pointer is broken (fetcher exit 3)
	FailureIntegrity     Failure = "integrity"     // the model is damaged or incomplete (fetcher exit 4)
	FailureNoSpace       Failure = "no-space"      // the volume is too small (fetcher exit 5)
	FailureStore         Failure = "store"         // registry or store cannot be reached (fetcher exit 6 and 7)
	FailureDeadline      Failure = "deadline"      // nothing is seen to be wrong, but no pod became Ready in time
	FailureUnschedulable Failure = "unschedulable" // no node has room: capacity may still come
)

// Failures lists every failure.
func Failures() []Failure {
	return []Failure{
		FailureImage, FailureCrash, FailurePointer, FailureIntegrity, FailureNoSpace, FailureStore, FailureDeadline, FailureUnschedulable,
	}
}

// Hopeless reports whether waiting cannot help: somebody has to repair
// something first. A pod without a node may still get one, and a store may come
// back.
func (f Failure) Hopeless() bool { return f.Failing() && f != FailureStore }

// Failing reports whether the pod itself keeps failing. One without a node has
// not begun.
func (f Failure) Failing() bool { return f != FailureNone && f != FailureUnschedulable }

// Pod is one pod.
type Pod struct {
	Name        string
	Host        string // IP address, "" while it has none
	Port        int    // overrides the trigger's ports, 0 = does not
	Created     time.Time
	Scheduled   time.Time // zero while it has no node, or where that is not known
	Initialised time.Time // zero while its init containers run, or where that is not known
	ReadyAt     time.Time // zero while not Ready
	LostAt      time.Time // when a pod that was Ready ceased to be; zero for all others
	Template    string    // hash of its pod template, "" where that is not known
	Terminating bool
	Failure     Failure
	Detail      string // what is known of the failure, one line, "" for nothing
	Cost        *int   // its deletion cost, nil without one
}

// Trigger is what one ScaledObject says in our trigger, as written: values that
// KEDA takes from the environment are not filled in.
type Trigger struct {
	Ref
	Metadata map[string]string
}

// Denial is something that the cluster does not let this program do: a right is
// missing.
type Denial struct {
	Resource  string // as RBAC names it
	Namespace string // "" = all
}

// Agent is a pod that follows a model reference.
type Agent struct {
	Namespace, Pod string
	Host           string // IP address
	Port           int    // of its HTTP port
	RefHash        string // first hex digits of the SHA-256 of the reference
}

// Ready reports whether the pod can serve.
func (p Pod) Ready() bool { return !p.ReadyAt.IsZero() && !p.Terminating && p.Host != "" }
