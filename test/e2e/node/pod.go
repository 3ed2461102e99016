package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pod is a pod that is being run.
type pod struct {
	node   *Node
	object *corev1.Pod // as it was when it was first seen
	ip     string
	log    *slog.Logger

	ending chan struct{} // closed when it is to end
	once   sync.Once
	grace  time.Duration // valid once ending is closed

	mu         sync.Mutex
	containers []*container // init containers first
	conditions map[corev1.PodConditionType]metav1.Time
	changed    chan struct{} // capacity one: the status is to be written
}

func newPod(n *Node, object *corev1.Pod) *pod {
	p := &pod{
		node: n, object: object, ip: n.addresses.next(), ending: make(chan struct{}), changed: make(chan struct{}, 1),
		conditions: map[corev1.PodConditionType]metav1.Time{},
		log:        n.Logger.With("pod", object.Namespace+"/"+object.Name),
	}
	for i := range object.Spec.InitContainers {
		c := &object.Spec.InitContainers[i]
		sidecar := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		p.containers = append(p.containers, newContainer(p, c, true, sidecar))
	}
	for i := range object.Spec.Containers {
		p.containers = append(p.containers, newContainer(p, &object.Spec.Containers[i], false, false))
	}
	return p
}

// end asks the pod to end; the first call decides, except that 0 is at once.
func (p *pod) end(grace time.Duration) {
	p.once.Do(func() {
		p.grace = grace
		close(p.ending)
	})
	if grace == 0 {
		for _, c := range p.containers {
			c.kill()
		}
	}
}

func (p *pod) pid(name string) (int, error) {
	for _, c := range p.containers {
		if c.spec.Name == name {
			return c.pid()
		}
	}
	return 0, fmt.Errorf("no container %q", name)
}

// run plays the pod from its first container to its last.
func (p *pod) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var work sync.WaitGroup
	work.Go(func() { p.writeStatus(ctx) })
	running, stop := context.WithCancel(ctx)
	work.Go(func() {
		select {
		case <-p.ending:
		case <-ctx.Done():
		}
		stop() // starts nothing more
	})
	p.change()
	work.Go(func() { // an init container may be at work for long, and is ended with the pod
		if err := p.start(running, &work); err != nil && ctx.Err() == nil && running.Err() == nil {
			p.log.Error("the pod cannot be played", "error", err)
		}
	})
	<-running.Done()
	if ctx.Err() == nil {
		p.terminate(ctx)
	}
	for _, c := range p.containers {
		c.kill()
	}
	cancel()
	work.Wait()
	p.forget()
}

// start runs init containers and then all others. It returns when all have been
// started; they go on until ctx ends.
func (p *pod) start(ctx context.Context, work *sync.WaitGroup) error {
	volumes, err := p.volumes(ctx)
	if err != nil {
		return err
	}
	for _, c := range p.containers {
		if err := c.prepare(ctx, volumes); err != nil {
			return err
		}
	}
	for _, c := range p.containers {
		switch {
		case c.init && !c.sidecar:
			if err := c.runToEnd(ctx); err != nil {
				return err
			}
		default:
			work.Go(func() { c.keepRunning(ctx) })
			if c.sidecar {
				if err := c.waitStarted(ctx); err != nil {
					return err
				}
			}
		}
		p.change()
	}
	return nil
}

// terminate ends the containers within the grace period: the main ones first,
// then sidecars.
func (p *pod) terminate(ctx context.Context) {
	deadline, cancel := context.WithTimeout(ctx, p.grace)
	defer cancel()
	p.change()
	for _, sidecars := range []bool{false, true} {
		var all sync.WaitGroup
		for _, c := range p.containers {
			if c.sidecar == sidecars {
				all.Go(func() { c.stop(deadline) })
			}
		}
		all.Wait()
	}
}

// forget removes the pod from the API, as the kubelet does when nothing of it
// runs any more.
func (p *pod) forget() {
	select {
	case <-p.ending:
	default:
		return // the node has gone, not the pod
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	now := int64(0)
	err := p.node.Client.CoreV1().Pods(p.object.Namespace).Delete(ctx, p.object.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &p.object.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		p.log.Warn("the pod cannot be removed", "error", err)
	}
}

func (p *pod) change() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// writeStatus keeps the status in the API as it is, a moment later.
func (p *pod) writeStatus(ctx context.Context) {
	const gather = 20 * time.Millisecond // changes come together
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.changed:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(gather):
		}
		if err := p.putStatus(ctx); err != nil && ctx.Err() == nil {
			p.log.Warn("the status will be written again", "error", err)
			p.change()
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}
}

func (p *pod) putStatus(ctx context.Context) error {
	pods := p.node.Client.CoreV1().Pods(p.object.Namespace)
	now, err := pods.Get(ctx, p.object.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && now.UID != p.object.UID:
		return nil
	case err != nil:
		return err // names the pod
	}
	qos := now.Status.QOSClass // set by the API server, for good
	now.Status = p.status()
	now.Status.QOSClass = qos
	_, err = pods.UpdateStatus(ctx, now, metav1.UpdateOptions{})
	return err // names the pod
}

func (p *pod) dir(parts ...string) string {
	return filepath.Join(append([]string{p.node.Dir, "pods", string(p.object.UID)}, parts...)...)
}

var errEnded = errors.New("the pod is ending")
