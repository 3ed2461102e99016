// Package cli holds what the long-running binaries share: logging, listening,
// serving and the one line that says why a program ends.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/pilotlight-dev/pilotlight/internal/buildinfo"
	"github.com/pilotlight-dev/pilotlight/internal/exitcode"
	"github.com/pilotlight-dev/pilotlight/internal/tlsconf"
)

// ErrUsage marks a flag, a file or a setting that is wrong: exit code 2.
var ErrUsage = errors.New("usage")

// Usage makes an ErrUsage whose text is only the message.
func Usage(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

type usageError struct{ error }

func (usageError) Is(target error) bool { return target == ErrUsage }
func (e usageError) Unwrap() error      { return e.error }

// Env is what a program gets from its surroundings.
type Env struct {
	Args           []string
	Getenv         func(string) string
	Stdout, Stderr io.Writer
}

// Run executes a command and returns the exit code: 0, 2 for what the user can
// mend, 1 for the rest. An error is one line on stderr.
func Run(ctx context.Context, cmd *cobra.Command, env Env) int {
	cmd.Version = buildinfo.String()
	cmd.SetVersionTemplate(cmd.Name() + " {{.Version}}\n")
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return Usage("%w (see %s --help)", err, c.CommandPath()) })
	cmd.SetArgs(env.Args)
	cmd.SetOut(env.Stdout)
	cmd.SetErr(env.Stderr)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return exitcode.OK
	}
	code := exitcode.Unexpected
	var coded interface{ ExitCode() int }
	switch {
	case errors.As(err, &coded):
		code = coded.ExitCode()
	case errors.Is(err, ErrUsage), errors.Is(err, tlsconf.ErrFiles):
		code = exitcode.Usage
	}
	text := strings.Join(strings.Fields(err.Error()), " ")
	_, _ = fmt.Fprintf(env.Stderr, "%s: %s (exit %d)\n", cmd.Name(), text, code) // nowhere left to say so
	return code
}

// NoArgs refuses positional arguments.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usage("unexpected argument %q (see %s --help)", args[0], cmd.CommandPath())
	}
	return nil
}

// LogFlags are the flags about logging.
type LogFlags struct{ Format, Level string }

// Add declares the flags.
func (f *LogFlags) Add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.Format, "log-format", "json", "text or json")
	cmd.Flags().StringVar(&f.Level, "log-level", "info", "debug, info, warn or error")
}

// Logger makes the logger that the flags ask for.
func (f *LogFlags) Logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.Level)); err != nil {
		return nil, Usage("--log-level: %q must be debug, info, warn or error", f.Level)
	}
	opts := &slog.HandlerOptions{Level: level}
	switch f.Format {
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	}
	return nil, Usage("--log-format: %q must be text or json", f.Format)
}

// Listen opens a TCP listener and, when it cannot, names the flag and the
// address.
func Listen(ctx context.Context, flag, addr string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, Usage("%s %s: the port is in use: stop the other program or choose another port", flag, addr)
	case err != nil:
		return nil, Usage("%s %s: %w", flag, addr, err)
	}
	return l, nil
}

// ServeHTTP serves h on l until ctx ends, then lets requests finish for at most
// grace. Requests may take as long as they like; only their headers may not.
func ServeHTTP(ctx context.Context, l net.Listener, h http.Handler, grace time.Duration) error {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context {
		return context.WithoutCancel(ctx)
	}}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if err := srv.Shutdown(bounded); err != nil {
		return srv.Close()
	}
	return nil
}
