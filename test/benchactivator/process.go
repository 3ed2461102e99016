package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pilotlight-dev/pilotlight/internal/freeport"
	"github.com/pilotlight-dev/pilotlight/test/internal/usage"
)

// readyWithin is how long a child may take to serve.
const readyWithin = 15 * time.Second

// A child is a process of the bench.
type child struct {
	cmd *exec.Cmd
	log string
}

func start(ctx context.Context, c config, name string, program string, args ...string) (*child, error) {
	logName := filepath.Join(c.dir, name+".log")
	out, err := os.Create(logName) //nolint:gosec // a folder of our own
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()                // the child has its own
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // programs that the user names, or this one
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	return &child{cmd, logName}, cmd.Start()
}

// stop ends the child and waits for it.
func (c *child) stop() {
	_ = c.cmd.Process.Kill() // it has nothing to save
	_ = c.cmd.Wait()         // killed
}

// self starts this program in a role; it returns the address it serves on.
func self(ctx context.Context, c config, args ...string) (*child, string, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	addr, err := freeport.Addr(ctx)
	if err != nil {
		return nil, "", err
	}
	p, err := start(ctx, c, args[0], program, append([]string{"role", args[0], addr}, args[1:]...)...)
	if err != nil {
		return nil, "", err
	}
	return p, addr, p.await(ctx, "http://"+addr+"/health")
}

// await waits until the child answers.
func (c *child) await(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		if status, _, err := get(ctx, url); err == nil && status == http.StatusOK {
			return nil
		}
		select {
		case <-ctx.Done():
			text, _ := os.ReadFile(c.log)
			c.stop()
			return fmt.Errorf("%s did not come up: %s", c.cmd.Path, text)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func get(ctx context.Context, url string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// An activator is the real program.
type activator struct {
	*child
	clients, probes string
}

// startActivator runs it with the targets of a file and a scaler's address.
func startActivator(ctx context.Context, c config, targets, scaler string, args ...string) (*activator, error) {
	a := &activator{}
	var err error
	if a.clients, err = freeport.Addr(ctx); err != nil {
		return nil, err
	}
	if a.probes, err = freeport.Addr(ctx); err != nil {
		return nil, err
	}
	args = append([]string{"--listen", a.clients, "--http-listen", a.probes, "--scaler", scaler, "--insecure", "--static-targets", targets, "--id", "bench"}, args...)
	if a.child, err = start(ctx, c, "activator", c.activator, args...); err != nil {
		return nil, err
	}
	return a, a.await(ctx, "http://"+a.probes+"/readyz")
}

// held reads how many requests wait for a target.
func (a *activator) held(ctx context.Context, target string) (int, error) {
	_, page, err := get(ctx, "http://"+a.probes+"/metrics")
	if err != nil {
		return 0, err
	}
	m := regexp.MustCompile(`pilotlight_activator_held_requests\{namespace="bench",scaled_object="` + target + `"\} (\d+)`).FindStringSubmatch(page)
	if m == nil {
		return 0, nil
	}
	return strconv.Atoi(m[1])
}

func (a *activator) awaitHeld(ctx context.Context, target string, n int) error {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if got, err := a.held(ctx, target); err != nil || got == n {
			return err
		}
	}
	got, err := a.held(ctx, target)
	return errors.Join(fmt.Errorf("%d requests are held, not %d", got, n), err)
}

// memory is what the child has in memory now and had at most, in MiB.
func (c *child) memory() (now, peak float64, err error) { return usage.Memory(c.cmd.Process.Pid) }

// cpu is how long the child has computed.
func (c *child) cpu() (time.Duration, error) { return usage.CPU(c.cmd.Process.Pid) }

// A target of the targets file; engine is where its pod is, "" = asleep.
type target struct {
	name     string
	requests int
	engine   string
}

// writeTargets replaces the file in one step.
func writeTargets(file string, targets ...target) error {
	var b strings.Builder
	b.WriteString("targets:\n")
	for _, t := range targets {
		fmt.Fprintf(&b, "- {namespace: bench, name: %s, maxReplicaCount: 1, metadata: {targetRequests: %q, modelName: %s}", t.name, strconv.Itoa(t.requests), t.name)
		if host, port, err := net.SplitHostPort(t.engine); err == nil {
			now := time.Now().UTC().Format(time.RFC3339Nano)
			fmt.Fprintf(&b, ", pods: [{name: %s-0, host: %s, port: %s, created: %s, readyAt: %s}]", t.name, host, port, now, now)
		}
		b.WriteString("}\n")
	}
	if err := os.WriteFile(file+".new", []byte(b.String()), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
