package mlflow_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/exitcode"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
	"github.com/pilotlight-dev/pilotlight/scaler/webhook"
	"github.com/pilotlight-dev/pilotlight/test/integration/process"
)

const (
	agents = 3
	// nudgeEvery is how long an agent that has just asked lets a nudge wait.
	nudgeEvery = 5 * time.Second
	// webhookGoal bounds what a move by webhook takes to be published.
	webhookGoal = time.Second
	// poll is the agents' interval where they poll, and jitter what it may be
	// exceeded by.
	poll, jitter = 2 * time.Second, 200 * time.Millisecond
	// slack is granted to a busy machine on top.
	slack = 2 * time.Second
)

// followers are agents that follow the alias of the commands' model.
func followers(tr tracking) []part {
	var idle time.Duration
	return []part{
		{"PublishedByWebhook", func(t *testing.T) { idle = requireByWebhook(t, tr) }},
		{"PublishedByPoll", func(t *testing.T) { requireByPoll(t, tr, idle) }},
		{"RollBackAndWait", func(t *testing.T) { requireWait(t, tr) }},
	}
}

// program is the fetcher's binary under way.
type program struct {
	cmd   *exec.Cmd
	log   bytes.Buffer // to be read once ended is closed
	ended chan struct{}
}

// begin starts the fetcher; it is told to end, and waited for, at the test's end.
func (tr tracking) begin(t *testing.T, args ...string) *program {
	t.Helper()
	p := &program{cmd: exec.Command(tool(t, "PILOTLIGHT_FETCHER"), args...), ended: make(chan struct{})} //nolint:gosec,noctx // the Makefile's binary; ended below
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = environment(tr.variables()), &p.log, &p.log
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // the code is in ProcessState
	}()
	t.Cleanup(func() {
		p.end()
		if t.Failed() {
			t.Log(p.log.String())
		}
	})
	return p
}

func (p *program) end() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.ended:
	case <-time.After(10 * time.Second):
		_ = p.cmd.Process.Kill() // as above
		<-p.ended
	}
}

// cpu is what the program has used so far, as the kernel counts it in
// nanoseconds; 0 where it does not.
func (p *program) cpu() time.Duration {
	var sum int64
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.cmd.Process.Pid))
	for _, file := range files {
		data, err := os.ReadFile(file) //nolint:gosec // the kernel's
		if err != nil {
			continue // the thread has ended
		}
		n, _ := strconv.ParseInt(strings.Fields(string(data) + " 0")[0], 10, 64)
		sum += n
	}
	return time.Duration(sum)
}

// pod is a place where an agent runs.
type pod struct {
	addr, root, link string
	*program
}

func startAgents(t *testing.T, tr tracking, more ...string) []*pod {
	t.Helper()
	pods := make([]*pod, agents)
	for i := range pods {
		p := &pod{addr: process.FreeAddress(t), root: filepath.Join(t.TempDir(), "models")}
		p.program = tr.begin(t, append([]string{"agent", "--model", servedRef, "--root", p.root, "--listen", p.addr, "--log-format", "json"}, more...)...)
		pods[i] = p
	}
	return pods
}

// publishes reports whether the pod's root publishes version n.
func (p *pod) publishes(n int) bool {
	got, err := os.ReadFile(filepath.Join(p.root, "current", "config.json"))
	return err == nil && bytes.Equal(got, servedFiles(n)["config.json"])
}

// untilPublished waits until all pods publish version n and returns how long the
// last of them took.
func untilPublished(t *testing.T, pods []*pod, n int) time.Duration {
	t.Helper()
	began := time.Now()
	for _, p := range pods {
		require.Eventually(t, func() bool { return p.publishes(n) }, time.Minute, 5*time.Millisecond, "version %d", n)
	}
	return time.Since(began)
}

// retain makes the pods publish 1, 2 and 1 again: both versions are on disk then.
func retain(t *testing.T, tr tracking, pods []*pod) {
	t.Helper()
	for _, n := range []int{1, 2, 1} {
		tr.setAlias(t, served, "champion", fmt.Sprint(n))
		untilPublished(t, pods, n)
	}
}

// median is what is bounded: one of three moves may meet a machine that does
// something else.
func median(took []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(took))
	return sorted[len(sorted)/2]
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// fixed are agents that are known from the start.
type fixed struct {
	hash string
	list []workload.Agent
}

func (f fixed) Agents(hash string) []workload.Agent {
	if hash != f.hash {
		return nil
	}
	return f.list
}

// requireByWebhook measures the way from MLflow's webhook over the scaler's
// handler and nudger to the agents, which would not ask by themselves for an hour.
// It returns the CPU time that such an agent uses in a second, since they have
// nothing to do in between.
func requireByWebhook(t *testing.T, tr tracking) (idle time.Duration) {
	t.Helper()
	tr.setAlias(t, served, "champion", "1")
	pods := startAgents(t, tr, "--poll", "1h")
	untilPublished(t, pods, 1)
	known := fixed{hash: webhook.RefHash(servedRef)}
	for _, p := range pods {
		host, port, err := net.SplitHostPort(p.addr)
		require.NoError(t, err)
		number, err := strconv.Atoi(port)
		require.NoError(t, err)
		known.list = append(known.list, workload.Agent{Host: host, Port: number})
	}
	nudger, err := webhook.NewNudger(known, nil, prometheus.NewRegistry())
	require.NoError(t, err)
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	running.Go(func() { nudger.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte(hookSecret), 0o600))
	handler, err := webhook.New(webhook.Options{SecretFile: secret, Nudge: nudger.Nudge})
	require.NoError(t, err)
	ts := httptest.NewServer(handler)
	t.Cleanup(ts.Close)
	tr.subscribe(t, ts.URL)
	time.Sleep(2 * time.Second) // MLflow may know for a second yet that nobody listens

	retain(t, tr, pods)
	var took []time.Duration
	const rest = nudgeEvery + time.Second
	for _, n := range []int{2, 1, 2} {
		before := pods[0].cpu()
		time.Sleep(rest)
		idle += (pods[0].cpu() - before) / (3 * rest / time.Second)
		tr.setAlias(t, served, "champion", fmt.Sprint(n))
		took = append(took, untilPublished(t, pods, n))
	}
	t.Logf("alias moved -> published by all of %d agents, retained, by webhook: %.0f ms (worst of 3, goal %v)", agents, milliseconds(slices.Max(took)), webhookGoal)
	require.Less(t, median(took), webhookGoal+slack)
	return idle
}

// requireByPoll measures the same without a webhook, and what a poll costs over
// what an agent uses that does not poll.
func requireByPoll(t *testing.T, tr tracking, idle time.Duration) {
	t.Helper()
	tr.setAlias(t, served, "champion", "1")
	pods := startAgents(t, tr, "--poll", poll.String())
	untilPublished(t, pods, 1)
	retain(t, tr, pods)
	var took []time.Duration
	for _, n := range []int{2, 1, 2} {
		tr.setAlias(t, served, "champion", fmt.Sprint(n))
		took = append(took, untilPublished(t, pods, n))
	}
	t.Logf("alias moved -> published by all of %d agents, retained, by poll: %.0f ms (worst of 3, polls every %v)", agents, milliseconds(slices.Max(took)), poll)
	require.Less(t, median(took), poll+jitter+slack)

	const watched = 10 * time.Second
	before := pods[0].cpu()
	time.Sleep(watched)
	used := pods[0].cpu() - before
	t.Logf("an agent that polls an unchanged pointer uses %.2f ms of CPU for a poll (%.2f ms for %d, of which %.2f ms it would use anyway)",
		milliseconds(used-idle*watched/time.Second)/float64(watched/poll), milliseconds(used), watched/poll, milliseconds(idle*watched/time.Second))
}

// engine is what an engine shows of itself: a port that refuses while it starts.
type engine struct {
	addr string
	srv  *http.Server
}

func (e *engine) start(ctx context.Context) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", e.addr)
	if err != nil {
		return err
	}
	e.srv = &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), ReadHeaderTimeout: time.Second}
	go func(srv *http.Server) { _ = srv.Serve(l) }(e.srv) // ends with Close
	return nil
}

// live is a pod as Kubernetes runs it: init, then engine and agent, and all of it
// again whenever the agent ends with the code that asks for it.
func (tr tracking) live(ctx context.Context, fetcherBinary string, p *pod, engineAddr string) error {
	run := func(args ...string) (int, string) {
		cmd := exec.CommandContext(ctx, fetcherBinary, append(args, "--model", servedRef, "--root", p.root, "--link", p.link, "--log-format", "json")...) //nolint:gosec // the Makefile's
		var log bytes.Buffer
		cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = environment(tr.variables()), &log, &log, 10*time.Second
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		_ = cmd.Run() // the code says what it was
		return cmd.ProcessState.ExitCode(), log.String()
	}
	for ctx.Err() == nil {
		if code, log := run("init"); code != exitcode.OK && ctx.Err() == nil {
			return fmt.Errorf("init ended with %d: %s", code, log)
		}
		e := engine{addr: engineAddr}
		if err := e.start(ctx); err != nil {
			return err
		}
		code, log := run("agent", "--listen", p.addr, "--poll", "1s", "--on-change", "exit", "--engine-health", "http://"+engineAddr+"/health")
		if err := e.srv.Close(); err != nil {
			return err
		}
		if code != exitcode.RestartPod && ctx.Err() == nil {
			return fmt.Errorf("the agent ended with %d: %s", code, log)
		}
	}
	return nil
}

// requireWait promotes and rolls back, and waits for three pods that restart
// their engines by themselves.
func requireWait(t *testing.T, tr tracking) {
	t.Helper()
	tr.setAlias(t, served, "champion", "1")
	ctx, cancel := context.WithCancel(t.Context())
	binary, errs := tool(t, "PILOTLIGHT_FETCHER"), make([]error, agents)
	var addrs []string
	var running sync.WaitGroup
	for i := range agents {
		dir := t.TempDir()
		p := &pod{addr: process.FreeAddress(t), root: filepath.Join(dir, "models"), link: filepath.Join(dir, "link")}
		engineAddr := process.FreeAddress(t)
		addrs = append(addrs, p.addr)
		running.Go(func() { errs[i] = tr.live(ctx, binary, p, engineAddr) })
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
		require.NoError(t, errors.Join(errs...))
	})
	ask := []string{servedRef, "--yes", "--agents", strings.Join(addrs, ","), "--timeout", "1m"}
	move := func(verb string, more ...string) string {
		began := time.Now()
		out := tr.requireCLI(t, exitcode.OK, append(append([]string{verb}, ask...), more...)...)
		t.Logf("%s --wait took %.1f s", verb, time.Since(began).Seconds())
		return out
	}
	require.Contains(t, move("promote", "--to", "1", "--wait"), "already", "the pods are up")
	require.Contains(t, move("promote", "--to", "2", "--wait", "-m", "try it"), "verified: every engine serves")
	out := move("rollback", "--wait", "-m", "no")
	require.Contains(t, out, "moved from 2 to 1")
	require.Contains(t, out, "verified: every engine serves")
	status := tr.requireCLI(t, exitcode.OK, "status", servedRef, "--agents", strings.Join(addrs, ","))
	require.Equal(t, agents, strings.Count(status, "ready"), status)
}
