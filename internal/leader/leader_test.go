package leader_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/pilotlight-dev/pilotlight/internal/leader"
)

func cluster(pods ...string) *fake.Clientset {
	var objects []runtime.Object
	for _, name := range pods {
		objects = append(objects, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "pilotlight", Name: name, Labels: map[string]string{leader.Label: "true"}}})
	}
	return fake.NewClientset(objects...)
}

func options(c *fake.Clientset, pod string) leader.Options {
	return leader.Options{
		Client: c, Namespace: "pilotlight", Lease: "scaler", Pod: pod,
		Duration: 20 * time.Second, Renew: 15 * time.Second, Retry: 50 * time.Millisecond,
	}
}

// labelled are the pods that the Service would find.
func labelled(t *testing.T, c *fake.Clientset) []string {
	t.Helper()
	list, err := c.CoreV1().Pods("pilotlight").List(context.WithoutCancel(t.Context()), metav1.ListOptions{LabelSelector: leader.Label + "=true"})
	require.NoError(t, err)
	names := []string{}
	for _, p := range list.Items {
		names = append(names, p.Name)
	}
	return names
}

func TestOneIsActiveAndHandsOver(t *testing.T) {
	c := cluster("a", "b")
	var active, most atomic.Int32
	work := func(ctx context.Context) error { //nolint:unparam // as Run asks for
		most.Store(max(most.Load(), active.Add(1)))
		<-ctx.Done()
		time.Sleep(20 * time.Millisecond) // writes its state
		active.Add(-1)
		return nil
	}
	ctxA, stopA := context.WithCancel(t.Context())
	a, b := leader.New(options(c, "a")), leader.New(options(c, "b"))
	doneA, doneB := make(chan error, 1), make(chan error, 1)
	go func() { doneA <- a.Run(ctxA, work) }()
	require.Eventually(t, a.Leading, 30*time.Second, 5*time.Millisecond)
	ctxB, stopB := context.WithCancel(t.Context())
	go func() { doneB <- b.Run(ctxB, work) }()
	require.Eventually(t, func() bool { l := labelled(t, c); return len(l) == 1 && l[0] == "a" }, 30*time.Second, 5*time.Millisecond)
	require.False(t, b.Leading())

	began := time.Now()
	stopA()
	require.NoError(t, <-doneA)
	require.Eventually(t, func() bool { l := labelled(t, c); return b.Leading() && len(l) == 1 && l[0] == "b" }, 30*time.Second, 5*time.Millisecond)
	require.Less(t, time.Since(began), 10*time.Second, "it does not wait for the Lease to expire")
	stopB()
	require.NoError(t, <-doneB)
	require.EqualValues(t, 1, most.Load(), "never two at once")
	require.Empty(t, labelled(t, c))
}

func TestALostLeaseEndsTheWork(t *testing.T) {
	c := cluster("a")
	var broken atomic.Bool
	c.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		return broken.Load(), nil, errors.New("the API server is away")
	})
	opts := options(c, "a")
	opts.Duration, opts.Renew = time.Second, 500*time.Millisecond
	e := leader.New(opts)
	begun, ended := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- e.Run(t.Context(), func(ctx context.Context) error { close(begun); <-ctx.Done(); close(ended); return nil })
	}()
	<-begun
	broken.Store(true)
	require.ErrorIs(t, <-done, leader.ErrLost)
	<-ended
	require.False(t, e.Leading())
}

func TestTheWorksOwnErrorEndsIt(t *testing.T) {
	boom := errors.New("boom")
	e := leader.New(options(cluster("a"), "a"))
	require.ErrorIs(t, e.Run(t.Context(), func(context.Context) error { return boom }), boom)
}

func TestAStandbyThatIsStoppedJustEnds(t *testing.T) {
	c := cluster("a", "b")
	ctx, stop := context.WithCancel(t.Context())
	a := leader.New(options(c, "a"))
	go func() { _ = a.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil }) }()
	require.Eventually(t, a.Leading, 30*time.Second, 5*time.Millisecond)
	standby, stopStandby := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer stopStandby()
	require.NoError(t, leader.New(options(c, "b")).Run(standby, func(context.Context) error { return errors.New("never") }))
	require.True(t, a.Leading())
	stop()
}

// Without rights a replica stands by, says so once, and leads when they come.
func TestMissingRightsAreWaitedFor(t *testing.T) {
	for _, verb := range []string{"get", "create"} {
		t.Run(verb, func(t *testing.T) {
			c := cluster("a")
			var denied, tries atomic.Int32
			denied.Store(1)
			c.PrependReactor(verb, "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
				tries.Add(1)
				return denied.Load() == 1, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "scaler", errors.New("no rule"))
			})
			var log bytes.Buffer // written before anything below is true
			opts := options(c, "a")
			opts.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
			e := leader.New(opts)
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- e.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil }) }()
			require.Eventually(t, func() bool { return tries.Load() > 5 }, 30*time.Second, 5*time.Millisecond)
			require.False(t, e.Leading())
			denied.Store(0)
			require.Eventually(t, e.Leading, 30*time.Second, 5*time.Millisecond)
			stop()
			require.NoError(t, <-done)
			require.Equal(t, 1, strings.Count(log.String(), "a right is missing"), log.String())
		})
	}
}
