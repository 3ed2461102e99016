package plane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A Process is a program that the plane, or a test, has started. Its output
// goes to a file.
type Process struct {
	Name string
	Log  string // path of its output

	cmd  *exec.Cmd
	done chan struct{}
	err  error // valid after done
}

// Run starts a program. Its output is appended to NAME.log in dir. It gets
// SIGTERM when ctx ends, and is killed 10 s later.
func Run(ctx context.Context, dir, name string, env []string, path string, args ...string) (*Process, error) {
	log := filepath.Join(dir, name+".log")
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // a folder of the run
	if err != nil {
		return nil, err // names the file
	}
	cmd := exec.CommandContext(ctx, path, args...) //nolint:gosec // a binary of the run
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	if err := StartBound(cmd); err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", name, err), out.Close())
	}
	p := &Process{Name: name, Log: log, cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		_ = out.Close() // a log
		close(p.done)
	}()
	return p, nil
}

// Pid is its process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when it has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is how it ended, once Done is closed; nil for exit code 0.
func (p *Process) Err() error { return p.err }

// ExitCode is valid once Done is closed; -1 when a signal ended it.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

// Signal sends a signal; one that has ended is no error.
func (p *Process) Signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signalling %s: %w", p.Name, err)
	}
	return nil
}

// Stop sends SIGTERM and waits, killing it after grace.
func (p *Process) Stop(grace time.Duration) error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
	}
	return p.Kill()
}

// Kill kills it and waits.
func (p *Process) Kill() error {
	err := p.Signal(syscall.SIGKILL)
	<-p.done
	return err
}

// Tail is the end of its output, for messages.
func (p *Process) Tail() string {
	data, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	const most = 2000
	data = bytes.TrimSpace(data)
	return strings.ToValidUTF8(string(data[max(0, len(data)-most):]), "?")
}
