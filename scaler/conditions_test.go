package scaler

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pilotlight-dev/pilotlight/internal/demandpb"
	"github.com/pilotlight-dev/pilotlight/internal/events"
	"github.com/pilotlight-dev/pilotlight/internal/trigger"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
	"github.com/pilotlight-dev/pilotlight/scaler/policy"
)

// diary is what was said about ScaledObjects.
type diary struct {
	mu   sync.Mutex
	said []string // object, reason and message
}

func (d *diary) Warn(o events.Object, reason, message string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.said = append(d.said, o.Namespace+"/"+o.Name+"/"+o.UID+" "+reason+" "+message)
}

func (d *diary) Note(o events.Object, reason, message string) { d.Warn(o, "normal "+reason, message) }

func (d *diary) all() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string{}, d.said...)
}

func TestConditions(t *testing.T) {
	now := time.Now()
	pods := func(failures ...workload.Failure) (w workload.Workload) {
		for _, f := range failures {
			w.Pods = append(w.Pods, workload.Pod{Name: "p", Failure: f, Detail: "models:/llama@champion: no such alias"})
		}
		return w
	}
	sound := policy.Decision{Known: true, At: now}
	with := func(change func(*policy.Decision)) policy.Decision {
		d := sound
		change(&d)
		return d
	}
	cases := map[string]struct {
		o    outcome
		want []condition
	}{
		"Sound":    {outcome{Decision: sound, Workload: pods()}, nil},
		"Pointer":  {outcome{Decision: sound, Workload: pods("", workload.FailurePointer)}, []condition{{events.PointerBroken, "pod p does not start: the model reference is broken (models:/llama@champion: no such alias)"}}},
		"Image":    {outcome{Decision: sound, Workload: pods(workload.FailureImage)}, []condition{{events.StartFailing, "pod p does not start: its image cannot be pulled (models:/llama@champion: no such alias)"}}},
		"NoRoom":   {outcome{Decision: sound, Workload: pods(workload.FailureUnschedulable)}, nil}, // the scheduler says so itself
		"Both":     {outcome{Decision: sound, Workload: pods(workload.FailureUnschedulable, workload.FailurePointer)}, []condition{{events.PointerBroken, "pod p does not start: the model reference is broken (models:/llama@champion: no such alias)"}}},
		"Failed":   {outcome{Decision: with(func(d *policy.Decision) { d.Reason = policy.ReasonStartFailed }), failed: "why"}, []condition{{events.StartFailed, "no pod became Ready in time; another start is tried after a pause (why)"}}},
		"Overdue":  {outcome{Decision: with(func(d *policy.Decision) { d.Terms.Expired = 1 })}, []condition{{events.CreditExpired, "a starting pod takes longer than it should and is not counted on any more: another is asked for beside it"}}},
		"OnlyFail": {outcome{Decision: with(func(d *policy.Decision) { d.Terms.Expired, d.Terms.Failing = 1, 1 })}, nil}, // said as StartFailing
		"Stalled":  {outcome{Decision: with(func(d *policy.Decision) { d.Terms.Stalled = true })}, []condition{{events.EngineStalled, "there is load and no engine has made a token for 5m0s: more replicas would not help"}}},
		"Rollout":  {outcome{Decision: sound, silentSince: now.Add(-5 * time.Second)}, nil},
		"Silent":   {outcome{Decision: sound, silentSince: now.Add(-time.Minute)}, []condition{{events.DemandUnknown, "no activator reports: nothing shrinks, and what is at zero stays there"}}},
		"Twice":    {outcome{conflict: "taken"}, []condition{{events.ModelNameConflict, "taken"}}},
		"Unseen":   {outcome{Decision: sound, Err: workload.ErrNotReady, Workload: pods(workload.FailureImage)}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			target := newTarget(key{Ref: llama}, trigger.Trigger{DemandFrom: trigger.DemandActivator}, Options{}.withDefaults(), nil)
			require.Equal(t, tc.want, target.conditions(&tc.o, now))
		})
	}
}

// A start that nothing but a repair can save is told to those who wait at once,
// and its reason is still known when the pod is gone.
func TestHopelessStartFailsFast(t *testing.T) {
	d := &diary{}
	r := newRig(t, Options{Events: d})
	r.hold(1)
	_, err := r.value(t, object(nil))
	require.NoError(t, err)
	fail := func(f workload.Failure) {
		r.set(func(c *cluster) {
			w := c.workloads[llama]
			w.UID, w.Replicas = "1234", 1
			w.Pods = []workload.Pod{{Name: "a", Created: time.Now(), Failure: f, Detail: "gone"}}
			c.workloads[llama] = w
		})
	}
	state := func() *demandpb.TargetState { return r.scaler.TargetState(llama) }
	fail(workload.FailureUnschedulable)
	require.Eventually(t, func() bool { return state().GetReason() == "unschedulable" }, soon, time.Millisecond)
	require.Equal(t, demandpb.State_STATE_STARTING, state().GetState(), "a node may still come")
	fail(workload.FailurePointer)
	require.Eventually(t, func() bool { return state().GetState() == demandpb.State_STATE_FAILED }, soon, time.Millisecond)
	require.Equal(t, "pointer", state().GetReason())
	require.Equal(t, []string{"ai/llama/1234 PointerBroken pod a does not start: the model reference is broken (gone)"}, d.all(), "said once")
	require.Equal(t, &FailureStatus{workload.FailurePointer, "pod a does not start: the model reference is broken (gone)"}, r.scaler.Targets()[0].Failure)

	r.pods(1, 0)
	require.Eventually(t, func() bool { return state().GetState() == demandpb.State_STATE_READY }, soon, time.Millisecond)
	require.Empty(t, state().GetReason(), "a Ready pod forgives")
}

func TestFailureIsRememberedAfterScaleIn(t *testing.T) {
	now := time.Now()
	o := &outcome{Workload: workload.Workload{Pods: []workload.Pod{{Name: "a", Failure: workload.FailureImage}}}}
	o.Terms.Starting = 1
	o.note(now)
	require.Equal(t, workload.FailureImage, o.failure)
	o.Workload, o.Terms.Starting, o.Reason = workload.Workload{}, 0, policy.ReasonStartFailed
	o.note(now)
	require.Equal(t, workload.FailureImage, o.failure, "the pod is gone, its reason is not")
	o.Reason, o.Active = policy.ReasonLoad, true
	o.note(now)
	require.Empty(t, o.failure, "another try begins")
	slow := &outcome{Workload: workload.Workload{Pods: []workload.Pod{{Name: "a"}}}}
	slow.Terms.Starting, slow.Reason = 1, policy.ReasonStartFailed
	slow.note(now)
	require.Equal(t, workload.FailureDeadline, slow.failure, "nothing is wrong but the time")
	slow.Workload.Pods[0].Failure = workload.FailureUnschedulable
	slow.note(now)
	require.Equal(t, workload.FailureUnschedulable, slow.failure, "what is known says more")
	for _, f := range []workload.Failure{workload.FailureUnschedulable, workload.FailureStore, workload.FailureNone} {
		require.False(t, hopeless(workload.Workload{Pods: []workload.Pod{{Failure: workload.FailureImage}, {Failure: f}}}), "one of two may still come")
	}
	require.False(t, hopeless(workload.Workload{}))
}

func TestConflicts(t *testing.T) {
	claim := func(namespace, name, model, aliases string) workload.Trigger {
		m := map[string]string{"targetRequests": "1", "modelName": model}
		if aliases != "" {
			m["modelAliases"] = aliases
		}
		return workload.Trigger{Ref: workload.Ref{Namespace: namespace, Name: name}, Metadata: m}
	}
	source := claim("c", "x", "llama", "")
	source.Metadata["demandFrom"] = "epp"
	env := claim("d", "x", "llama", "")
	env.Metadata["modelNameFromEnv"] = "MODEL"
	broken := claim("e", "x", "llama", "")
	broken.Metadata["nonsense"] = "1"
	all := []workload.Trigger{
		claim("a", "x", "llama", ""), claim("b", "y", "mistral", "chat,llama"), claim("b", "z", "Llama", ""),
		source, env, broken,
	}
	got := conflicts(all, NamesCluster)
	require.Equal(t, map[workload.Ref]string{
		{Namespace: "a", Name: "x"}: `"llama" is claimed by b/y too: both are refused until one of them is changed`,
		{Namespace: "b", Name: "y"}: `"llama" is claimed by a/x too: both are refused until one of them is changed`,
	}, got, "names are exact; who is not routed to claims nothing")
	require.Empty(t, conflicts(all, NamesNamespace))
	many := []workload.Trigger{claim("a", "1", "m", ""), claim("a", "2", "m", ""), claim("a", "3", "m", ""), claim("a", "4", "m", ""), claim("a", "5", "m", "")}
	require.Contains(t, conflicts(many, NamesNamespace)[workload.Ref{Namespace: "a", Name: "1"}], "and 1 more")
}

type claims []workload.Trigger

func (c claims) Triggers(context.Context) ([]workload.Trigger, error) { return c, nil }

func TestNameClaimedTwiceIsRefused(t *testing.T) {
	d := &diary{}
	m := map[string]string{"targetRequests": "1", "modelName": "llama"}
	r := newRig(t, Options{Events: d, Triggers: claims{{Ref: llama, Metadata: m}, {Ref: workload.Ref{Namespace: "b", Name: "y"}, Metadata: m}}})
	require.Eventually(t, func() bool {
		_, err := r.value(t, object(nil))
		return status.Code(err) == codes.InvalidArgument
	}, soon, time.Millisecond)
	_, err := r.value(t, object(nil))
	require.ErrorContains(t, err, "modelName")
	require.ErrorContains(t, err, "b/y")
	require.Eventually(t, func() bool { return len(d.all()) == 1 }, soon, time.Millisecond)
	require.Contains(t, d.all()[0], "ai/llama/ ModelNameConflict")
}

// It is said where people look, once for each ScaledObject that the pod serves.
func TestASwapIsToldToThePodsScaledObject(t *testing.T) {
	d := &diary{}
	r := newRig(t, Options{Events: d})
	r.hold(0)
	r.pods(1, 0)
	r.set(func(c *cluster) {
		w := c.workloads[llama]
		w.UID, w.Pods[0].Name = "1234", "llama-0"
		c.workloads[llama] = w
	})
	for _, i := range []int{1, 2} { // an edited trigger
		_, err := r.value(t, object(version(i)))
		require.NoError(t, err)
	}
	require.False(t, r.scaler.Swapped("prod", []string{"llama-0"}, "of another namespace"))
	require.False(t, r.scaler.Swapped("ai", []string{"writer"}, "of nobody's"))
	require.Eventually(t, func() bool { return r.scaler.Swapped("ai", []string{"writer", "llama-0"}, "version 8") }, soon, time.Millisecond)
	require.Equal(t, []string{"ai/llama/1234 normal ModelSwapped version 8"}, d.all())
	quiet := newRig(t, Options{})
	require.False(t, quiet.scaler.Swapped("ai", []string{"llama-0"}, "to nobody"))
}
