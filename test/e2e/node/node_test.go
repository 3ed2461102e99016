package node

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// An init container that would go on for hours ends with its pod, and with the
// node.
func TestALongInitContainerEnds(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	require.NoError(t, err)
	for _, name := range []string{"TheNode", "ThePod"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ai", Name: "llama", UID: "1"}, Spec: corev1.PodSpec{
				InitContainers: []corev1.Container{{Name: "fetch", Image: "sleep", Args: []string{"10000"}}},
				Containers:     []corev1.Container{{Name: "vllm", Image: "sleep", Args: []string{"10000"}}},
			}}
			n := New(Options{Client: fake.NewClientset(object), Bin: filepath.Dir(sleep), Dir: t.TempDir(), Logs: t.TempDir()})
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			n.seen(ctx, object)
			require.Eventually(t, func() bool { _, err := n.Pid("ai", "llama", "fetch"); return err == nil }, 30*time.Second, 10*time.Millisecond)
			if name == "TheNode" {
				stop()
			} else {
				ending := object.DeepCopy()
				ending.DeletionTimestamp, ending.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Now()}, new(int64(20))
				n.seen(ctx, ending)
			}
			ended := make(chan struct{})
			go func() { n.jobs.Wait(); close(ended) }()
			select {
			case <-ended:
			case <-time.After(30 * time.Second):
				require.Fail(t, "it goes on")
			}
			_, err := n.Pid("ai", "llama", "fetch")
			require.Error(t, err)
		})
	}
}

// Two nodes on one machine, of two runs, never have an address in common.
func TestAddressesAreOfOneNode(t *testing.T) {
	var a, b, c addresses
	held, err := a.claim(t.Context())
	require.NoError(t, err)
	other, err := b.claim(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = other.Close() })
	network := func(addr string) string { return strings.Join(strings.Split(addr, ".")[:2], ".") }
	first, second := a.next(), a.next()
	require.NotEqual(t, first, second)
	require.Equal(t, network(first), network(second))
	require.NotEqual(t, network(first), network(b.next()))

	require.NoError(t, held.Close())
	again, err := c.claim(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = again.Close() })
	require.NotEqual(t, network(b.next()), network(c.next()))
}
