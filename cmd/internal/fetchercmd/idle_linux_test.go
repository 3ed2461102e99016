package fetchercmd_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/fetchercmd"
)

// The test binary runs itself as the program, so that its costs can be told from
// those of the registry.
const childEnv = "PILOTLIGHT_TEST_AGENT"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		code := fetchercmd.Process{Args: os.Args[1:], Getenv: os.Getenv, Stdout: os.Stdout, Stderr: os.Stderr, Threads: fetchercmd.Threads}.Main(ctx)
		stop()
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// onCPU is how long the threads of a process have run.
func onCPU(t *testing.T, pid int) (sum time.Duration) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	require.NoError(t, err)
	for _, name := range files {
		data, err := os.ReadFile(name)
		if os.IsNotExist(err) {
			continue // a thread has ended
		}
		require.NoError(t, err)
		fields := strings.Fields(string(data))
		require.NotEmpty(t, fields)
		ns, err := strconv.ParseInt(fields[0], 10, 64)
		require.NoError(t, err)
		sum += time.Duration(ns)
	}
	return sum
}

// TestAnIdleAgentCostsLittle prints what an agent costs while its pointer stands
// still: a process of its own that sleeps between its polls, as in a pod, so with
// cold caches and threads that have to be woken. The goal is 0.2 ms for a poll;
// what is demanded is generous, because the machine may be busy with other tests.
// PILOTLIGHT_TEST_POLLS=60 measures for a minute.
func TestAnIdleAgentCostsLittle(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/schedstat"); err != nil {
		t.Skip("this kernel does not say how long threads have run")
	}
	polls := 4
	if n, err := strconv.Atoi(os.Getenv("PILOTLIGHT_TEST_POLLS")); err == nil {
		polls = n
	}
	s := newSystem(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "agent", "--model", "llama@champion", "--root", s.root, "--listen", "127.0.0.1:0", "--poll", "1s", "--log-format", "json")
	cmd.Env = append(os.Environ(), childEnv+"=1")
	for k, v := range s.env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.Stderr = io.Discard
	require.NoError(t, cmd.Start())
	defer func() {
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, cmd.Wait())
	}()
	asked := func() int { return s.registry.Calls("GET", "registered-models/alias") }
	require.Eventually(t, func() bool { _, err := os.Stat(filepath.Join(s.root, "current", "config.json")); return err == nil }, 30*time.Second, 10*time.Millisecond)
	settled := asked()
	require.Eventually(t, func() bool { return asked() >= settled+2 }, 30*time.Second, 10*time.Millisecond)
	began, cpu := asked(), onCPU(t, cmd.Process.Pid)
	require.Eventually(t, func() bool { return asked() >= began+polls }, time.Duration(polls+30)*2*time.Second, 100*time.Millisecond)
	each := (onCPU(t, cmd.Process.Pid) - cpu) / time.Duration(asked()-began)
	t.Logf("an idle agent takes %.3f ms of CPU for each of %d polls", each.Seconds()*1000, asked()-began)
	require.Less(t, each, 100*time.Millisecond)
}
