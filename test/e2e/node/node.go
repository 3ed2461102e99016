package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
)

// Options say which node to play. All but Logger are required.
type Options struct {
	Client kubernetes.Interface
	Name   string
	// Bin holds the binaries that containers run.
	Bin string
	// Dir is for volumes.
	Dir string
	// Logs is for the containers' output; "" is Dir/logs.
	Logs   string
	Logger *slog.Logger // default: discard
	// Env is added to every container's environment.
	Env []string
}

// Node is a node that is being played.
type Node struct {
	Options
	addresses *addresses

	mu   sync.Mutex
	pods map[types.UID]*pod
	jobs sync.WaitGroup
}

// New returns a node; Run plays it.
func New(opts Options) *Node {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Logs == "" {
		opts.Logs = filepath.Join(opts.Dir, "logs")
	}
	return &Node{Options: opts, addresses: &addresses{}, pods: map[types.UID]*pod{}}
}

// Run registers the node and plays it until ctx ends; then all processes are
// killed. Pods stay in the API.
func (n *Node) Run(ctx context.Context) error {
	held, err := n.addresses.claim(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = held.Close() }() // it never carried anything
	if err := n.register(ctx); err != nil {
		return err
	}
	watch := cache.NewListWatchFromClient(n.Client.CoreV1().RESTClient(), "pods", metav1.NamespaceAll, fields.OneTermEqualSelector("spec.nodeName", n.Name))
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: watch, ObjectType: &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { n.seen(ctx, o) },
			UpdateFunc: func(_, o any) { n.seen(ctx, o) },
			DeleteFunc: n.gone,
		},
	})
	informer.RunWithContext(ctx)
	n.jobs.Wait()
	return nil
}

func (n *Node) register(ctx context.Context) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{"kubernetes.io/hostname": n.Name}}}
	nodes := n.Client.CoreV1().Nodes()
	if _, err := nodes.Create(ctx, node, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("registering the node %s: %w", n.Name, err)
	}
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		made, err := nodes.Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return err // named below
		}
		made.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Played", LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}}
		_, err = nodes.UpdateStatus(ctx, made, metav1.UpdateOptions{})
		return err // as above
	})
	if err != nil {
		return fmt.Errorf("registering the node %s: %w", n.Name, err)
	}
	return nil
}

// seen starts a new pod, and tells a running one when it is to end.
func (n *Node) seen(ctx context.Context, o any) {
	object, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	one, known := n.pods[object.UID]
	if !known {
		if object.Status.Phase == corev1.PodSucceeded || object.Status.Phase == corev1.PodFailed {
			return
		}
		one = newPod(n, object)
		n.pods[object.UID] = one
		n.jobs.Go(func() {
			one.run(ctx)
			n.mu.Lock()
			delete(n.pods, object.UID)
			n.mu.Unlock()
		})
	}
	if object.DeletionTimestamp != nil {
		grace := 30 * time.Second
		if s := object.DeletionGracePeriodSeconds; s != nil {
			grace = time.Duration(*s) * time.Second
		}
		one.end(grace)
	}
}

// gone ends a pod that was deleted by force.
func (n *Node) gone(o any) {
	if stale, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = stale.Obj
	}
	object, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if one := n.pods[object.UID]; one != nil {
		one.end(0)
	}
}

// Pid is the process of a pod's container, for tests that stop or kill it.
func (n *Node) Pid(namespace, name, container string) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.pods {
		if p.object.Namespace == namespace && p.object.Name == name {
			return p.pid(container)
		}
	}
	return 0, errors.New("no such pod runs here")
}

// LogPath is where a container's output goes.
func (n *Node) LogPath(namespace, pod, container string) string {
	return filepath.Join(n.Logs, strings.Join([]string{namespace, pod, container}, "_")+".log")
}

// addresses hands out loopback addresses; none twice, so that the address of a
// former pod answers nothing, and none of another run on this machine, whose
// engines would answer in the name of ours.
type addresses struct {
	mu      sync.Mutex
	network int // 127.network.0.0/16
	last    int
}

// claim finds a network that no other node has claimed, for as long as the
// listener is open.
func (a *addresses) claim(ctx context.Context) (net.Listener, error) {
	const first, last = 21, 250
	var err error
	for network := first; network <= last; network++ {
		var l net.Listener
		if l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprintf("127.%d.255.254:65000", network)); err == nil {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.network = network
			return l, nil
		}
	}
	return nil, fmt.Errorf("claiming loopback addresses for pods: %w", err)
}

func (a *addresses) next() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last++
	return fmt.Sprintf("127.%d.%d.%d", a.network, a.last/250, 1+a.last%250)
}
