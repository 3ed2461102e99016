package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path"
	"time"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/internal/retry"
)

// Action is what happens on a change.
type Action string

// The actions.
const (
	None    Action = "none"
	Exec    Action = "exec"
	Webhook Action = "webhook"
	Exit    Action = "exit"
)

// Limits of hooks.
const (
	DefaultHookTimeout = 30 * time.Second
	hookAttempts       = 5
	maxHookOutput      = 4 << 10 // bytes of a program's output that are logged
)

// OnChange says what to do when another version than the engine's is
// published. The zero value does nothing.
type OnChange struct {
	Action Action
	// Command is the program of Exec and its arguments. It gets the variables
	// PILOTLIGHT_REF, _DIGEST, _VERSION, _PREVIOUS_DIGEST and _PATH.
	Command []string
	// URL gets the POST of Webhook: {ref, digest, version, previousDigest}.
	URL string
	// Timeout bounds one attempt of Exec and Webhook; 0 means
	// DefaultHookTimeout. A failed attempt is repeated a few times, unless
	// another change comes first; so a hook may run twice for one version.
	Timeout time.Duration
}

func (o OnChange) check() error {
	switch o.Action {
	case "", None, Exit:
		return nil
	case Exec:
		if len(o.Command) == 0 || o.Command[0] == "" {
			return fmt.Errorf("%w: on change exec: no program given", fetcher.ErrUsage)
		}
		return nil
	case Webhook:
		u, err := url.Parse(o.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return fmt.Errorf("%w: on change webhook: want an http:// or https:// URL", fetcher.ErrUsage) // which may hold a password
		}
		return nil
	}
	return fmt.Errorf("%w: on change %q: want none, exec, webhook or exit", fetcher.ErrUsage, o.Action)
}

// event is a change to act on.
type event struct {
	Ref      string `json:"ref"`
	Digest   string `json:"digest"`
	Version  string `json:"version"`
	Previous string `json:"previousDigest"`
}

// act does what a publication asks for. With a link of the pod's own, what
// counts is whether the engine's version differs from the published one, also
// when that happened before this process began; without one, whether `current`
// was seen to move.
func (a *Agent) act(ctx context.Context, moved bool) error {
	published := a.published()
	if published == nil || a.opts.OnChange.Action == "" || a.opts.OnChange.Action == None {
		return nil
	}
	ev := event{Ref: a.opts.Ref, Digest: published.Digest, Version: published.Version, Previous: a.previous()}
	if a.opts.Link != nil {
		loaded, err := a.opts.Link.Version()
		if err != nil || loaded == "" || loaded == shortOf(published.Digest) {
			return err // nothing is loaded, or this
		}
		ev.Previous = loaded
	} else if !moved || ev.Previous == "" {
		return nil
	}
	if a.opts.OnChange.Action == Exit {
		return a.restart(ctx, ev)
	}
	select { // the latest wins
	case <-a.hooks:
	default:
	}
	a.hooks <- ev
	return nil
}

// restart asks for a restart of the pod's containers, once per version: if they
// are not restarted, asking again would only restart the agent for ever.
func (a *Agent) restart(ctx context.Context, ev event) error {
	if a.opts.Link != nil {
		mark, err := a.opts.Link.Thawed()
		if err != nil {
			return err
		}
		if mark == shortOf(ev.Digest) {
			a.log.ErrorContext(ctx, "the pod's containers were not restarted after the agent had asked for it: the container needs a restart rule RestartAllContainers for exit code 88", "version", ev.Version)
			return nil
		}
		if err := a.opts.Link.Thaw(shortOf(ev.Digest)); err != nil {
			return err
		}
	}
	a.metrics.hooks.WithLabelValues(string(Exit), "ok").Inc()
	a.log.InfoContext(ctx, "asking for a restart of the pod's containers", "version", ev.Version, "digest", shortOf(ev.Digest))
	return ErrRestart
}

// runHooks runs programs and web hooks beside the loop. A change that comes
// while one is being repeated takes its place.
func (a *Agent) runHooks(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case ev := <-a.hooks:
			a.runHook(ctx, ev)
		}
	}
}

func (a *Agent) runHook(ctx context.Context, ev event) {
	o := a.opts.OnChange
	run := func(ctx context.Context, _ int) error { return a.webhook(ctx, ev) }
	if o.Action == Exec {
		run = func(ctx context.Context, _ int) error { return a.exec(ctx, ev) }
	}
	policy := retry.Policy{
		Base: time.Second, Max: time.Minute, Attempts: hookAttempts,
		Retryable: func(error) bool { return len(a.hooks) == 0 },
		OnRetry: func(attempt int, wait time.Duration, err error) {
			a.metrics.hooks.WithLabelValues(string(o.Action), "failed").Inc()
			a.log.WarnContext(ctx, "the hook failed and will be repeated", "action", string(o.Action), "attempt", attempt, "wait", wait.String(), "error", err)
		},
	}
	err := retry.Do(ctx, policy, func(ctx context.Context, attempt int) error {
		timeout := o.Timeout
		if timeout <= 0 {
			timeout = DefaultHookTimeout
		}
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return run(ctx, attempt)
	})
	switch {
	case ctx.Err() != nil:
	case err != nil:
		a.metrics.hooks.WithLabelValues(string(o.Action), "failed").Inc()
		a.log.ErrorContext(ctx, "the hook failed", "action", string(o.Action), "version", ev.Version, "error", err)
	default:
		a.metrics.hooks.WithLabelValues(string(o.Action), "ok").Inc()
		a.log.InfoContext(ctx, "the hook ran", "action", string(o.Action), "version", ev.Version)
	}
}

func (a *Agent) exec(ctx context.Context, ev event) error {
	command := a.opts.OnChange.Command
	cmd := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // what the user gave us to run
	cmd.WaitDelay = time.Second                                 // its children may keep the output open
	cmd.Env = append(os.Environ(),
		"PILOTLIGHT_REF="+ev.Ref, "PILOTLIGHT_DIGEST="+ev.Digest, "PILOTLIGHT_VERSION="+ev.Version,
		"PILOTLIGHT_PREVIOUS_DIGEST="+ev.Previous, "PILOTLIGHT_PATH="+a.opts.Store.CurrentPath())
	out := &tail{limit: maxHookOutput}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("running %s: %w: %s", path.Base(command[0]), err, out)
	}
	return nil
}

// tail keeps the beginning of what is written to it.
type tail struct {
	bytes.Buffer
	limit int
}

func (t *tail) Write(p []byte) (int, error) {
	if room := t.limit - t.Len(); room > 0 {
		_, _ = t.Buffer.Write(p[:min(room, len(p))]) // never fails
	}
	return len(p), nil
}

func (a *Agent) webhook(ctx context.Context, ev event) error {
	body, err := json.Marshal(ev)
	if err != nil {
		return fmt.Errorf("encoding the web hook's body: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.opts.OnChange.URL, bytes.NewReader(body))
	if err != nil {
		return errors.New("building the web hook's request failed") // the error quotes the URL
	}
	req.Header.Set("Content-Type", "application/json")
	client := &http.Client{
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the URL, which may hold a password
		}
		return fmt.Errorf("calling the web hook at %s: %w", req.URL.Host, err)
	}
	_, _ = io.CopyN(io.Discard, resp.Body, maxHookOutput) // its text is nobody's business
	_ = resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("calling the web hook at %s: it answers %s", req.URL.Host, resp.Status)
	}
	return nil
}

func shortOf(digest string) string { return fetcher.Manifest{Digest: digest}.Short() }
