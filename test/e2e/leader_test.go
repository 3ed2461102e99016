package e2e

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pilotlight-dev/pilotlight/test/e2e/plane"
)

// replica is one of several scalers: a process, and the pod it believes to be.
type replica struct {
	name         string
	keda, demand string
	debug        string

	mu      sync.Mutex
	process *plane.Process
	off     bool // it is to stay down
}

// run starts the process, and again whenever it ends by itself, as a kubelet
// does: a holder that cannot renew its Lease ends. The replica is locked.
func (s *scenario) run(r *replica) error {
	p, err := plane.Run(context.Background(), s.logs(), r.name, []string{"POD_NAME=" + r.name, "POD_NAMESPACE=" + s.ns}, filepath.Join(s.bin, "pilotlight-scaler"),
		"--kubeconfig", s.rights.scaler, "--namespace", s.ns, "--leader-elect", "--interval", "500ms",
		"--listen", r.keda, "--demand-listen", r.demand, "--http-listen", r.debug)
	if err != nil {
		return err // names the program
	}
	r.process, r.off = p, false
	go func() {
		<-p.Done()
		time.Sleep(time.Second)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.process == p && !r.off {
			_ = s.run(r) // an error is seen by who waits for a leader
		}
	}()
	return nil
}

// end sends the process a signal, for good.
func (r *replica) end(signal syscall.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.off = true // the one that runs now is the last
	return r.process.Signal(signal)
}

// replicaOf starts a scaler that takes part in an election.
func (s *scenario) replicaOf(name string) *replica {
	s.t.Helper()
	r := &replica{name: name, keda: freeAddr(s.t), demand: freeAddr(s.t), debug: freeAddr(s.t)}
	pods := s.Client.CoreV1().Pods(s.ns)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "pilotlight-scaler"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "scaler", Image: "pilotlight-scaler"}}},
	}
	_, err := pods.Create(s.t.Context(), pod, metav1.CreateOptions{})
	require.NoError(s.t, err)
	s.revive(r)
	return r
}

// revive starts a replica, or starts it again.
func (s *scenario) revive(r *replica) {
	s.t.Helper()
	if r.process != nil {
		<-r.process.Done() // its ports are free; nobody else starts it
	}
	r.mu.Lock()
	err := s.run(r)
	p := r.process
	r.mu.Unlock()
	require.NoError(s.t, err)
	s.t.Cleanup(func() {
		_ = r.end(syscall.SIGKILL)
		r.mu.Lock()
		defer r.mu.Unlock()
		<-r.process.Done()
	})
	s.ready("http://"+r.debug+"/readyz", p)
}

// service carries connections to the replica that is labelled, as a Service with
// that selector would. What is open stays.
type service struct {
	s    *scenario
	addr string
	to   func(*replica) string
	all  []*replica
}

func (s *scenario) service(addr string, to func(*replica) string, all ...*replica) {
	s.t.Helper()
	l, err := (&net.ListenConfig{}).Listen(s.t.Context(), "tcp", addr)
	require.NoError(s.t, err)
	v := &service{s: s, addr: addr, to: to, all: all}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { v.carry(c) })
		}
	})
	s.t.Cleanup(func() { _ = l.Close() })
}

// leader is the labelled replica, nil if there is not exactly one.
func (s *scenario) leader(all ...*replica) *replica {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), 2*time.Second)
	defer cancel()
	list, err := s.Client.CoreV1().Pods(s.ns).List(ctx, metav1.ListOptions{LabelSelector: "pilotlight.dev/leader=true"})
	if err != nil || len(list.Items) != 1 {
		return nil
	}
	for _, r := range all {
		if r.name == list.Items[0].Name {
			return r
		}
	}
	return nil
}

func (v *service) carry(c net.Conn) {
	r := v.s.leader(v.all...)
	if r == nil {
		_ = c.Close() // no endpoint
		return
	}
	w := &wire{to: v.to(r), conns: map[net.Conn]struct{}{}}
	w.carry(c)
}

// Two replicas under load: one stops, its successor is killed, and the load never
// loses a replica.
func TestTwoScalersHandOver(t *testing.T) {
	t.Parallel()
	s := play(t, options{noScaler: true, noScaled: true})
	a, b := s.replicaOf("scaler-a"), s.replicaOf("scaler-b")
	s.service(s.keda, func(r *replica) string { return r.keda }, a, b)
	s.service(s.demand, func(r *replica) string { return r.demand }, a, b)
	s.service(s.debug, func(r *replica) string { return r.debug }, a, b)
	s.awaitLeader(a, b)
	s.startActivator()
	s.scaledObject(options{spec: patient(nil)})
	s.awaitScaledObject()
	l := s.press(6, 100) // one and a half replicas
	s.await(2, 90*time.Second)

	first := s.awaitLeader(a, b)
	s.standsBy(without(first, a, b)[0])
	s.mark("the active replica stops")
	holders := s.holders()
	began := time.Now()
	require.NoError(t, first.end(syscall.SIGTERM))
	require.Contains(t, holders(), "", "it gives the Lease back, so that nobody waits until it runs out")
	second := s.awaitLeader(without(first, a, b)...)
	graceful := time.Since(began)
	s.atLeastTwo(15 * time.Second)

	s.revive(first)
	s.mark("its successor is killed")
	began = time.Now()
	require.NoError(t, second.end(syscall.SIGKILL))
	s.awaitLeader(first)
	killed := time.Since(began)
	s.atLeastTwo(15 * time.Second)
	_, bad := l.end()
	require.Empty(t, bad)
	t.Logf("handed over in %v when stopped, %v when killed", graceful.Round(10*time.Millisecond), killed.Round(10*time.Millisecond))
	require.Less(t, killed, 30*time.Second, "10 s, and what a busy machine takes to see it")
	s.mark("no clients")
	s.await(0, 3*time.Minute)
}

// holders watches whose the Lease is. The function that it returns waits until it
// is somebody else's than the first one's and lists them in their order; "" is
// nobody: it was given back.
func (s *scenario) holders() func() []string {
	s.t.Helper()
	ctx, stop := context.WithTimeout(context.WithoutCancel(s.t.Context()), 90*time.Second)
	s.t.Cleanup(stop)
	w, err := s.Client.CoordinationV1().Leases(s.ns).Watch(ctx, metav1.ListOptions{})
	require.NoError(s.t, err)
	return func() (names []string) {
		defer stop()
		for e := range w.ResultChan() {
			l, ok := e.Object.(*coordinationv1.Lease)
			if !ok {
				continue
			}
			name := ""
			if l.Spec.HolderIdentity != nil {
				name = *l.Spec.HolderIdentity
			}
			if len(names) == 0 || names[len(names)-1] != name {
				names = append(names, name)
			}
			if name != "" && name != names[0] {
				return names
			}
		}
		require.FailNow(s.t, "nobody else has taken the Lease", "holders: %q", names)
		return nil
	}
}

// standsBy demands that a replica answers nothing that KEDA might take for an
// answer.
func (s *scenario) standsBy(r *replica) {
	s.t.Helper()
	conn, err := grpc.NewClient(r.keda, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(s.t, err)
	defer func() { _ = conn.Close() }()
	ctx, cancel := s.now()
	defer cancel()
	_, err = pb.NewExternalScalerClient(conn).IsActive(ctx, &pb.ScaledObjectRef{Namespace: s.ns, Name: "llama", ScalerMetadata: map[string]string{"targetRequests": "4", "modelName": "llama"}})
	require.Equal(s.t, codes.Unavailable, status.Code(err), err)
	require.ErrorContains(s.t, err, "stands by")
}

func without(r *replica, all ...*replica) (rest []*replica) {
	for _, one := range all {
		if one != r {
			rest = append(rest, one)
		}
	}
	return rest
}

func (s *scenario) awaitLeader(of ...*replica) *replica {
	s.t.Helper()
	var r *replica
	eventually(s.t, 60*time.Second, "one replica is active", func() (string, bool) {
		r = s.leader(of...)
		return fmt.Sprint(r), r != nil
	})
	return r
}

// atLeastTwo demands that the replicas stay at or above two.
func (s *scenario) atLeastTwo(while time.Duration) {
	s.t.Helper()
	for end := time.Now().Add(while); time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
		if wanted, _ := s.replicas(); wanted != unknown {
			require.GreaterOrEqual(s.t, wanted, int32(2), "the load has not changed")
		}
	}
}
