package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pilotlight-dev/pilotlight/test/e2e/plane"
)

// The back-off of restarts; the kubelet's is 10 s to 5 min.
const (
	firstBackoff = time.Second
	lastBackoff  = 10 * time.Second
	noticed      = 200 * time.Millisecond // how long a container that has ended is seen as that
)

// container is a container of a pod that is being run.
type container struct {
	pod           *pod
	spec          *corev1.Container
	init, sidecar bool

	env  []string
	argv []string
	m    mounts

	mu       sync.Mutex
	cmd      *exec.Cmd
	ended    chan struct{} // of cmd
	stopping bool
	state    corev1.ContainerState
	last     corev1.ContainerState
	restarts int32
	started  bool
	ready    bool
}

func newContainer(p *pod, spec *corev1.Container, init, sidecar bool) *container {
	return &container{pod: p, spec: spec, init: init, sidecar: sidecar, state: waiting("PodInitializing")}
}

func waiting(reason string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
}

// prepare finds out what to run.
func (c *container) prepare(ctx context.Context, volumes map[string]string) error {
	c.m = append(newMounts(c.spec, volumes), mount{c.messagePath(), c.pod.dir("termination", c.spec.Name)})
	list, vars, err := c.environment(ctx, c.m)
	if err != nil {
		return fmt.Errorf("container %s: %w", c.spec.Name, err)
	}
	c.env = list
	argv := append(append([]string{}, c.spec.Command...), c.spec.Args...)
	if len(c.spec.Command) == 0 {
		image, _, _ := strings.Cut(path.Base(c.spec.Image), ":")
		argv = append([]string{image}, c.spec.Args...)
	}
	for i := range argv {
		argv[i] = c.m.in(expand(argv[i], vars))
	}
	argv[0] = filepath.Join(c.pod.node.Bin, path.Base(argv[0]))
	c.argv = argv
	return os.MkdirAll(filepath.Dir(c.pod.node.LogPath("", "", "")), 0o750) // names the folder
}

func (c *container) messagePath() string {
	if c.spec.TerminationMessagePath != "" {
		return c.spec.TerminationMessagePath
	}
	return corev1.TerminationMessagePathDefault
}

// runToEnd runs an init container until it succeeds.
func (c *container) runToEnd(ctx context.Context) error {
	for backoff := time.Duration(0); ; backoff = longer(backoff) {
		code, err := c.once(ctx, nil)
		switch {
		case ctx.Err() != nil:
			return errEnded
		case err == nil && code == 0:
			return nil
		}
		if err := c.rest(ctx, backoff); err != nil {
			return err
		}
	}
}

// keepRunning runs a container again whenever it ends.
func (c *container) keepRunning(ctx context.Context) {
	for backoff := time.Duration(0); ctx.Err() == nil; backoff = longer(backoff) {
		probing, stop := context.WithCancel(ctx)
		began := time.Now()
		_, _ = c.once(ctx, func() { go c.probe(probing) }) // its state says how it ended
		stop()
		if time.Since(began) > time.Minute {
			backoff = 0
		}
		if c.rest(ctx, backoff) != nil {
			return
		}
	}
}

func longer(backoff time.Duration) time.Duration {
	return min(max(2*backoff, firstBackoff), lastBackoff)
}

// rest waits before a restart. The first comes as soon as the kubelet has noticed,
// and is not called a crash loop.
func (c *container) rest(ctx context.Context, backoff time.Duration) error {
	c.mu.Lock()
	if c.state.Terminated != nil {
		c.last = c.state
		if backoff > 0 {
			c.state = waiting("CrashLoopBackOff")
		}
	}
	c.restarts++
	c.mu.Unlock()
	c.pod.change()
	select {
	case <-ctx.Done():
		return errEnded
	case <-time.After(max(backoff, noticed)):
		return nil
	}
}

// once runs the process; running is called when it has begun.
func (c *container) once(ctx context.Context, running func()) (code int, err error) {
	if strings.Contains(c.spec.Image, "missing") {
		c.set(waiting("ErrImagePull"), false)
		return -1, errors.New("no such image")
	}
	name := c.pod.node.LogPath(c.pod.object.Namespace, c.pod.object.Name, c.spec.Name)
	out, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // a folder of the run
	if err != nil {
		return -1, err // names the file
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	message := c.pod.dir("termination", c.spec.Name)
	if err := os.MkdirAll(filepath.Dir(message), 0o750); err != nil {
		return -1, err // names the folder
	}
	cmd := exec.Command(c.argv[0], c.argv[1:]...) //nolint:gosec,noctx // what the pod asks for; ended by stop and kill
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = c.env
	c.mu.Lock()
	if ctx.Err() != nil || c.stopping {
		c.mu.Unlock()
		return -1, errEnded
	}
	began := metav1.Now()
	if err := plane.StartBound(cmd); err != nil {
		c.state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 128, Reason: "StartError", Message: err.Error(), StartedAt: began, FinishedAt: began}}
		c.mu.Unlock()
		c.pod.log.Warn("a container cannot be started", "container", c.spec.Name, "error", err)
		return -1, err
	}
	ended := make(chan struct{})
	c.cmd, c.ended = cmd, ended
	c.state = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: began}}
	c.started = c.spec.StartupProbe == nil
	c.ready = c.started && c.spec.ReadinessProbe == nil
	c.mu.Unlock()
	c.pod.change()
	if running != nil {
		running()
	}
	_ = cmd.Wait() // its exit code says more
	close(ended)
	return c.finished(cmd, began, message), nil
}

// finished notes how the process ended.
func (c *container) finished(cmd *exec.Cmd, began metav1.Time, message string) int {
	code := cmd.ProcessState.ExitCode()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		code = 128 + int(ws.Signal())
	}
	reason := "Completed"
	if code != 0 {
		reason = "Error"
	}
	text, _ := os.ReadFile(message) //nolint:gosec // a file of the run; there is one only if it was written
	c.set(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: int32(code), Reason: reason, Message: string(text), StartedAt: began, FinishedAt: metav1.Now(), //nolint:gosec // 0 to 255
	}}, false)
	return code
}

func (c *container) set(state corev1.ContainerState, ready bool) {
	c.mu.Lock()
	c.state, c.ready = state, ready
	if state.Running == nil {
		c.started = false
	}
	c.mu.Unlock()
	c.pod.change()
}

// stop ends the process: preStop's sleep, SIGTERM, and SIGKILL when ctx ends.
func (c *container) stop(ctx context.Context) {
	c.mu.Lock()
	runs := c.state.Running != nil
	c.mu.Unlock()
	if l := c.spec.Lifecycle; runs && l != nil && l.PreStop != nil && l.PreStop.Sleep != nil {
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(l.PreStop.Sleep.Seconds) * time.Second):
		}
	}
	c.mu.Lock()
	c.stopping = true
	cmd, ended := c.cmd, c.ended
	c.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-ended:
	case <-ctx.Done():
		c.kill()
		<-ended
	}
}

func (c *container) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopping = true
	if c.cmd != nil {
		_ = c.cmd.Process.Kill() // it may have ended
	}
}

func (c *container) pid() (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.Running == nil {
		return 0, fmt.Errorf("container %s does not run", c.spec.Name)
	}
	return c.cmd.Process.Pid, nil
}

// waitStarted returns when a sidecar counts as started.
func (c *container) waitStarted(ctx context.Context) error {
	for {
		c.mu.Lock()
		started := c.started
		c.mu.Unlock()
		if started {
			return nil
		}
		select {
		case <-ctx.Done():
			return errEnded
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (c *container) status() corev1.ContainerStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	started := c.started
	return corev1.ContainerStatus{
		Name: c.spec.Name, Image: c.spec.Image, ImageID: c.spec.Image, State: c.state, LastTerminationState: c.last,
		RestartCount: c.restarts, Started: &started, Ready: c.ready || c.init && !c.sidecar && c.state.Terminated != nil && c.state.Terminated.ExitCode == 0,
	}
}
