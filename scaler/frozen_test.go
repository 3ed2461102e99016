package scaler

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pilotlight-dev/pilotlight/internal/demandpb"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

// asking is a cluster that can be asked what the scale target asks for.
type asking struct {
	*cluster
	replicas func() (int, error)
}

func (a asking) Asked(context.Context, workload.Ref) (int, error) { return a.replicas() }

// While the engines cannot be read somebody rolls out a version of which they can.
// The Deployment has one pod more than its replicas for as long as that takes, and
// gets the replicas that the HPA makes of the answer: it must not climb.
func TestARolloutWhileNothingCanBeReadAddsNothing(t *testing.T) {
	r := newRig(t, Options{})
	spec := make(chan int, 1)
	spec <- 2
	r.scaler.opts.Workloads = asking{r.cluster, func() (int, error) {
		n := <-spec
		spec <- n
		return n, nil
	}}
	r.hold(0)
	r.pods(2, 5)
	so := object(map[string]string{"staleAfter": "1s"})
	require.Eventually(t, func() bool { r.hold(0); v, err := r.value(t, so); return err == nil && v == 8 }, soon, time.Millisecond)
	r.blind(2)
	blind := false
	for end := time.Now().Add(2500 * time.Millisecond); time.Now().Before(end) || !blind; time.Sleep(10 * time.Millisecond) {
		n := <-spec
		spec <- n
		r.blind(n + 1)
		r.hold(0)
		v, err := r.value(t, so)
		if err != nil {
			continue // a look that was late
		}
		next := int(v) / 4
		require.Equal(t, 2, next)
		<-spec
		spec <- next
		blind = blind || r.scaler.Targets()[0].Reason == "unknown"
	}
}

// Somebody claims the name of a model that runs. That is told, and is no way to
// take it to zero: an error would not keep KEDA from that.
func TestAClaimedNameFreezesWhatRuns(t *testing.T) {
	m := map[string]string{"targetRequests": "1", "modelName": "llama"}
	r := newRig(t, Options{Triggers: claims{{Ref: llama, Metadata: m}, {Ref: workload.Ref{Namespace: "b", Name: "y"}, Metadata: m}}})
	r.pods(2, 0)
	so := object(nil)
	require.Eventually(t, func() bool {
		r.hold(0)
		return len(r.scaler.Targets()) > 0 && r.scaler.Targets()[0].Error != "" || r.asked(t)
	}, soon, time.Millisecond)
	v, err := r.value(t, so)
	require.NoError(t, err)
	require.InDelta(t, 8, v, 0, "two replicas of four requests, idle as they are")
	active, err := r.client.IsActive(t.Context(), so)
	require.NoError(t, err)
	require.True(t, active.GetResult())
	target := r.scaler.Targets()[0]
	require.Contains(t, target.Error, "b/y")
	require.Equal(t, "unknown", target.Reason)
	require.Equal(t, 2, *target.Replicas)
	r.pods(0, 0)
	require.Eventually(t, func() bool {
		_, err := r.value(t, so)
		return status.Code(err) == codes.InvalidArgument
	}, soon, time.Millisecond, "at zero there is nothing to keep")
}

// Nor does a rollout meanwhile add what it has more for a while.
func TestARolloutUnderAClaimedNameAddsNothing(t *testing.T) {
	m := map[string]string{"targetRequests": "1", "modelName": "llama"}
	r := newRig(t, Options{Triggers: claims{{Ref: llama, Metadata: m}, {Ref: workload.Ref{Namespace: "b", Name: "y"}, Metadata: m}}})
	r.scaler.opts.Workloads = asking{r.cluster, func() (int, error) { return 2, nil }}
	r.pods(2, 0)
	so := object(nil)
	frozen := func() bool {
		_, err := r.value(t, so)
		return err == nil && r.scaler.Targets()[0].Error != ""
	}
	require.Eventually(t, func() bool { r.hold(0); return frozen() }, soon, time.Millisecond)
	for _, n := range []int{3, 1, 4} {
		r.pods(n, 0)
		before := time.Now()
		require.Eventually(t, func() bool { return r.scaler.Targets()[0].DecidedAt.After(before) }, soon, time.Millisecond)
		v, err := r.value(t, so)
		require.NoError(t, err)
		require.InDelta(t, 8, v, 0, "with %d pods", n)
	}
}

// asked asks once, so that the target is looked at, and says that nothing is known.
func (r *rig) asked(t *testing.T) bool {
	t.Helper()
	_, _ = r.value(t, object(nil)) // whatever it says
	return false
}

// After an edit activators are told of the trigger that KEDA asks about, not of
// the one before.
func TestTheStateOfAnEditedTriggerIsTheNewOnes(t *testing.T) {
	r := newRig(t, Options{})
	r.hold(1)
	r.pods(1, 0)
	for _, i := range []int{1, 2} {
		_, err := r.value(t, object(version(i)))
		require.NoError(t, err)
	}
	all := r.scaler.all()
	require.Len(t, all, 2)
	slices.SortFunc(all, func(a, b *target) int { return int(a.used.Load() - b.used.Load()) })
	all[0].used.Store(all[1].used.Load() - 1)
	stuck := *all[0].latest.Load()
	stuck.Terms.Ready, stuck.Terms.Starting, stuck.failedAt, stuck.failure = 0, 1, time.Now(), workload.FailurePointer
	for range 100 {
		all[0].latest.Store(&stuck)
		require.Equal(t, demandpb.State_STATE_READY, r.scaler.TargetState(llama).GetState())
	}
}

// KEDA hears the present state of a target whose first look took long, too.
func TestTheFirstStateIsToldHoweverLate(t *testing.T) {
	r := newRig(t, Options{Patience: time.Millisecond})
	r.hold(0)
	r.pods(1, 0)
	block := make(chan struct{})
	r.set(func(c *cluster) { c.block = block })
	stream, err := r.client.StreamIsActive(t.Context(), object(nil))
	require.NoError(t, err)
	time.Sleep(50 * time.Millisecond) // its patience is long over
	r.set(func(c *cluster) { c.block = nil })
	close(block)
	got, err := stream.Recv()
	require.NoError(t, err)
	require.False(t, got.GetResult(), "nothing to do, and keepAlive is 0")
}
