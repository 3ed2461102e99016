// Package leader makes one of several replicas the active one, and tells the
// world by a label on its pod.
//
// All replicas are healthy and Ready; else a rollout with maxUnavailable 0, or the
// drain of a node, would wait for ever for standbys. Who is active is a Lease
// (client-go's leader election), and who is meant by the Service is a label: its
// selector names pilotlight.dev/leader=true, so that clients find the holder only.
//
// # Hand-over
//
// A replica that stops gives its label back, ends its work, and then releases the
// Lease: another takes it within Retry, and labels its own pod. One that is killed
// holds the Lease until it expires. A replica that cannot renew in time must not go
// on: Run returns ErrLost, and the program ends, to begin anew as a standby.
//
// A label outlives a killed container. So every replica begins by taking its own
// away, and a new holder takes those of all others.
package leader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Label marks the pod of the active replica.
const Label = "pilotlight.dev/leader"

// The times of the election. A killed holder is replaced within Duration and a
// little more than Retry, which stays below 10 s.
const (
	DefaultDuration = 7 * time.Second // how long a Lease stands without being renewed
	DefaultRenew    = 4 * time.Second // how long the holder tries to renew before it gives up
	DefaultRetry    = time.Second     // between attempts
)

// ErrLost means that the Lease could not be renewed: another may be active.
var ErrLost = errors.New("the Lease is lost: another replica may be active")

// Options say who takes part. Client, Namespace, Lease and Pod are required.
type Options struct {
	Client    kubernetes.Interface
	Namespace string
	// Lease is the name of the Lease; one for each group of replicas.
	Lease string
	// Pod is the name of this replica's pod, which identifies it.
	Pod string

	Duration, Renew, Retry time.Duration
	Logger                 *slog.Logger // default: discard
}

// Elector takes part in one election.
type Elector struct {
	opts    Options
	log     *slog.Logger
	leading atomic.Bool
}

// New returns an Elector; Run takes part.
func New(opts Options) *Elector {
	if opts.Duration <= 0 {
		opts.Duration = DefaultDuration
	}
	if opts.Renew <= 0 {
		opts.Renew = DefaultRenew
	}
	if opts.Retry <= 0 {
		opts.Retry = DefaultRetry
	}
	log := opts.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Elector{opts: opts, log: log.With("lease", opts.Namespace+"/"+opts.Lease, "pod", opts.Pod)}
}

// Leading reports whether this replica is the active one.
func (e *Elector) Leading() bool { return e.leading.Load() }

// Run waits for the Lease, calls lead, and holds the Lease until lead has
// returned. lead's context ends when ctx does; what lead still writes then is read
// by the successor, which begins only afterwards. When the Lease is lost, lead's
// context ends too, and Run returns ErrLost without waiting for more than Renew.
// It returns nil when ctx ends.
func (e *Elector) Run(ctx context.Context, lead func(context.Context) error) error {
	if err := e.label(ctx, e.opts.Pod, false); err != nil {
		e.log.Warn("this pod's label could not be taken away: the Service may find a standby", "error", err)
	}
	// The election outlives ctx by the time that lead takes to end.
	holding, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	led := make(chan error, 1)
	lost := make(chan struct{})
	working, stopWork := context.WithCancel(ctx)
	defer stopWork()
	began := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: e.opts.Lease, LeaseDuration: e.opts.Duration, RenewDeadline: e.opts.Renew, RetryPeriod: e.opts.Retry, ReleaseOnCancel: true,
		Lock: &patient{Every: e.opts.Retry, log: e.log, Interface: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: e.opts.Namespace, Name: e.opts.Lease}, Client: e.opts.Client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: e.opts.Pod},
		}},
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {
				close(began)
				led <- e.lead(working, lead)
			},
			OnStoppedLeading: func() { close(lost) },
			OnNewLeader: func(id string) {
				if id != "" && id != e.opts.Pod {
					e.log.Info("another replica is active", "active", id)
				}
			},
		},
	})
	if err != nil {
		return fmt.Errorf("preparing the election: %w", err)
	}
	go elector.Run(holding)
	select {
	case <-began:
	case <-ctx.Done():
		release()
		<-lost
		return nil
	}
	select {
	case err := <-led:
		release()
		<-lost
		return err // lead's, as it is
	case <-lost:
		stopWork()
		err := fmt.Errorf("%w (it was not renewed for %v)", ErrLost, e.opts.Renew)
		select {
		case lerr := <-led:
			return errors.Join(err, lerr)
		case <-time.After(e.opts.Renew):
			return err
		}
	}
}

// lead does the work, with the label for as long as it lasts.
func (e *Elector) lead(ctx context.Context, work func(context.Context) error) error {
	e.log.Info("this replica is the active one")
	e.leading.Store(true)
	defer e.leading.Store(false)
	if err := e.unlabelOthers(ctx); err != nil {
		e.log.Warn("labels of other replicas could not be taken away", "error", err)
	}
	done := make(chan struct{})
	labelled := make(chan struct{})
	go func() {
		defer close(labelled)
		e.keepLabel(ctx)
	}()
	go func() { // the label goes first, so that nobody new comes
		defer close(done)
		<-ctx.Done()
		<-labelled
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if err := e.label(bounded, e.opts.Pod, false); err != nil {
			e.log.Warn("this pod's label could not be taken away", "error", err)
		}
	}()
	err := work(ctx)
	if ctx.Err() != nil {
		<-done
	}
	return err
}

// keepLabel labels this pod, trying until it works or ctx ends.
func (e *Elector) keepLabel(ctx context.Context) {
	said := ""
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := e.label(ctx, e.opts.Pod, true)
		if err == nil || ctx.Err() != nil {
			return
		}
		if said != err.Error() {
			said = err.Error()
			e.log.Warn("this pod cannot be labelled, trying on: the Service does not find it", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

func (e *Elector) label(ctx context.Context, pod string, on bool) error {
	var value any
	if on {
		value = "true"
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{Label: value}}})
	if err != nil {
		return fmt.Errorf("labelling the pod %s: %w", pod, err)
	}
	if _, err := e.opts.Client.CoreV1().Pods(e.opts.Namespace).Patch(ctx, pod, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("labelling the pod %s: %w", pod, err)
	}
	return nil
}

// instanceLabel tells two installations in one namespace apart.
const instanceLabel = "app.kubernetes.io/instance"

func (e *Elector) unlabelOthers(ctx context.Context) error {
	pods := e.opts.Client.CoreV1().Pods(e.opts.Namespace)
	own, err := pods.Get(ctx, e.opts.Pod, metav1.GetOptions{})
	if err != nil {
		return err // names the pod
	}
	set := labels.Set{Label: "true"}
	if v, ok := own.Labels[instanceLabel]; ok {
		set[instanceLabel] = v
	}
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: set.String()})
	if err != nil {
		return fmt.Errorf("listing labelled pods: %w", err)
	}
	var errs []error
	for _, p := range list.Items {
		if p.Name != e.opts.Pod {
			errs = append(errs, e.label(ctx, p.Name, false))
		}
	}
	return errors.Join(errs...)
}
