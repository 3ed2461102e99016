// Package process starts the servers of integration tests: programs that are
// not Pilotlight's, on loopback, each for the life of one test.
//
// A program is started in a process group of its own and that group is ended by
// its number when the test ends, politely first: MLflow's server is a parent with
// workers, and a worker that is left over would hold its port. What it printed
// is shown when the test has failed. Nothing waits without a bound.
package process

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/freeport"
)

const (
	// grace is how long a program may take to end before it is killed.
	grace = 5 * time.Second
	// shownLog bounds what is shown of a program's output, in bytes.
	shownLog = 64 << 10
)

// Options names a program. Path is required.
type Options struct {
	Path string
	Args []string
	// Env is the program's whole environment; nil is the test's.
	Env []string
	// Dir is the working folder; empty is a new one that the test's end removes.
	Dir string
	// Log is the file that gets what it prints; empty is one of our own.
	Log string
	// Ready is an address to ask until it answers 200; empty does not wait.
	Ready string
	// Within bounds the wait; 0 is a minute.
	Within time.Duration
}

// Start runs a program until t ends and returns when it is ready.
func Start(t *testing.T, opts Options) {
	t.Helper()
	if opts.Dir == "" {
		opts.Dir = t.TempDir()
	}
	if opts.Log == "" {
		opts.Log = filepath.Join(t.TempDir(), "log")
	}
	log, err := os.Create(opts.Log)
	require.NoError(t, err)
	cmd := exec.Command(opts.Path, opts.Args...) //nolint:gosec,noctx // the Makefile's binaries; the group is ended below, which a context cannot do
	cmd.Dir, cmd.Env = opts.Dir, opts.Env
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	running := &leader{ended: make(chan struct{})}
	go func() {
		defer close(running.ended)
		running.err = cmd.Wait()
	}()
	t.Cleanup(func() {
		end(cmd.Process.Pid, running)
		_ = log.Close() // only its reader matters from here on
		if t.Failed() {
			t.Logf("%s printed:\n%s", filepath.Base(opts.Path), tail(log.Name()))
		}
	})
	if opts.Ready == "" {
		return
	}
	if opts.Within <= 0 {
		opts.Within = time.Minute
	}
	require.NoError(t, awaitReady(t.Context(), opts, running), "starting %s", filepath.Base(opts.Path))
}

// leader is the process that was started, the first of its group. err is set once
// ended is closed.
type leader struct {
	ended chan struct{}
	err   error
}

// end asks the group to end, kills what is left of it, and collects its leader.
func end(group int, running *leader) {
	_ = syscall.Kill(-group, syscall.SIGTERM) // fails if it has ended by itself
	select {
	case <-running.ended:
	case <-time.After(grace):
	}
	_ = syscall.Kill(-group, syscall.SIGKILL) // as above; workers outlive their parent
	<-running.ended
}

func tail(path string) string {
	data, err := os.ReadFile(path) //nolint:gosec // the log of this test
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-shownLog):])
}

func awaitReady(ctx context.Context, opts Options, running *leader) error {
	ctx, cancel := context.WithTimeout(ctx, opts.Within)
	defer cancel()
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, opts.Ready, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err == nil {
			_ = resp.Body.Close() // nothing of it is read
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-running.ended:
			return errors.Join(errors.New("it ended before it was ready"), running.err)
		case <-ctx.Done():
			return errors.Join(errors.New("it was not ready in time"), ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// FreeAddress returns a loopback address that nothing listens on, and that
// nobody else is given.
func FreeAddress(t *testing.T) string {
	t.Helper()
	addr, err := freeport.Addr(t.Context())
	require.NoError(t, err)
	return addr
}
