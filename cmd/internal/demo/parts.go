package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/activatorcmd"
	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/cmd/internal/fetchercmd"
	"github.com/pilotlight-dev/pilotlight/cmd/internal/scalercmd"
	"github.com/pilotlight-dev/pilotlight/internal/exitcode"
	"github.com/pilotlight-dev/pilotlight/internal/fake/engine"
)

// Part runs one part of the demo in this process, with the code of its binary.
// It ends when ctx does, or when stdin ends: a child whose parent has died
// goes with it.
func Part(ctx context.Context, env cli.Env, stdin io.Reader) int {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		cancel()
	}()
	if len(env.Args) == 0 {
		return exitcode.Usage
	}
	name := env.Args[0]
	env.Args = env.Args[1:]
	switch name {
	case "scaler":
		return scalercmd.Main(ctx, env)
	case "activator":
		return activatorcmd.Main(ctx, env)
	case "fetcher":
		return fetchercmd.Main(ctx, env.Args, env.Getenv, env.Stdout, env.Stderr)
	case "engine":
		return engineMain(ctx, env)
	}
	return exitcode.Usage
}

// engineMain runs a simulated engine.
func engineMain(ctx context.Context, env cli.Env) int {
	var c engine.Config
	var listen string
	var log cli.LogFlags
	cmd := &cobra.Command{Use: "engine", Args: cli.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		logger, err := log.Logger(env.Stderr)
		if err != nil {
			return err
		}
		c.Logger = logger
		return engine.New(c).Run(cmd.Context(), listen)
	}}
	fs := cmd.Flags()
	fs.StringVar(&listen, "listen", "", "host:port")
	fs.StringVar(&c.Model, "model", "", "served name")
	fs.StringVar(&c.ModelDir, "model-dir", "", "folder with the weights")
	fs.DurationVar(&c.StartDelay, "start-delay", 0, "time to load")
	fs.IntVar(&c.Slots, "slots", 0, "requests at a time")
	fs.DurationVar(&c.DecodeInterval, "decode-interval", 0, "time per token")
	fs.DurationVar(&c.ShutdownTimeout, "shutdown-timeout", 0, "time to finish")
	log.Add(cmd)
	return cli.Run(ctx, cmd, env)
}

// children starts parts as processes of this very program and ends them all.
type children struct {
	self string // path of this program
	logs string // folder for their output

	mu      sync.Mutex
	running sync.WaitGroup
}

// A child is one running part.
type child struct {
	name string
	stop func()        // asks it to end
	done chan struct{} // closed when it has ended
	err  error         // valid after done; nil when it was asked to end
}

// wait returns when the child has ended: an error unless that was asked for.
func (c *child) wait(ctx context.Context) error {
	<-c.done
	if ctx.Err() != nil {
		return nil
	}
	return cmp.Or(c.err, fmt.Errorf("%s ended by itself", c.name))
}

// start runs a part; its output goes to a file of its name.
func (c *children) start(ctx context.Context, name string, env []string, args ...string) (*child, error) {
	logPath := filepath.Join(c.logs, name+".log")
	out, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // a folder of our own
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, c.self, append([]string{"demo-part"}, args...)...) //nolint:gosec // this very program
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 15 * time.Second
	if _, err := cmd.StdinPipe(); err != nil { // stays open as long as we live
		cancel()
		return nil, errors.Join(err, out.Close())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, errors.Join(fmt.Errorf("starting %s: %w", name, err), out.Close())
	}
	ch := &child{name: name, stop: cancel, done: make(chan struct{})}
	c.running.Go(func() {
		defer cancel()
		err := cmd.Wait()
		switch {
		case ctx.Err() != nil:
			err = nil
		case err != nil:
			err = fmt.Errorf("%s ended: %w: %s (log: %s)", name, err, lastLine(logPath), logPath)
		}
		_ = out.Close() // a log
		ch.err = err
		close(ch.done)
	})
	return ch, nil
}

func lastLine(path string) string {
	body, err := os.ReadFile(path) //nolint:gosec // a log of our own
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(body)), "\n")
	return lines[len(lines)-1]
}
