package fetchercmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/fetcher/agent"
	"github.com/pilotlight-dev/pilotlight/internal/buildinfo"
	"github.com/pilotlight-dev/pilotlight/internal/exitcode"
	"github.com/pilotlight-dev/pilotlight/internal/s3conf"
	"github.com/pilotlight-dev/pilotlight/registry"
	"github.com/pilotlight-dev/pilotlight/registry/mlflow"
)

const program = "pilotlight-fetcher"

const exitCodesHelp = `Exit codes:
  0  done: <root>/current names the complete version
  1  unexpected error, or interrupted
  2  usage or configuration: a flag, a variable, or the root itself is wrong
  3  the pointer is broken: no such model, alias or version, or it leads nowhere
     usable (no bucket, no objects, a place that --allow-location does not permit)
  4  integrity: content, size, completeness or names are wrong, or the store
     changed while it was read, or the version holds no weights
  5  no space on the volume
  6  the registry did not answer until the deadline, or refused, or the version
     was still being registered
  7  the object store did not answer until the deadline, or refused; with
     --offline the version is not on disk; with --read-only the writer has
     published nothing until the deadline
  9  other processes removed the version from the root while this one published it
  88 the agent asks for a restart of the pod's containers (--on-change exit)
On every code but 0 nothing that was published is touched. 6 and 7 come after
--deadline when nobody answers, at once when access is refused; 2 to 5 at once.`

// Main runs the program and returns its exit code. It writes results to stdout,
// logs and, on failure, one line that says what is wrong and where to stderr.
func Main(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	return Process{Args: args, Getenv: getenv, Stdout: stdout, Stderr: stderr}.Main(ctx)
}

// Process is what the program has of a process.
type Process struct {
	Args           []string // without the program's name
	Getenv         func(string) string
	Stdout, Stderr io.Writer
	// Threads is told when there is work for many threads, and when there is not;
	// nil where the process is not the program's alone.
	Threads func(many bool)
}

// Main is the function Main in this process.
func (p Process) Main(ctx context.Context) int {
	app := &app{getenv: p.Getenv, stdout: p.Stdout, stderr: p.Stderr, effort: effort{threads: p.Threads}}
	root := app.command()
	root.SetArgs(p.Args)
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitcode.OK
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("interrupted: %w", err)
	}
	code := exitCode(ctx, err)
	app.report(ctx, code, err)
	return code
}

// app holds what the commands share.
type app struct {
	getenv         func(string) string
	stdout, stderr io.Writer
	flags          runFlags
	dryRun         bool
	agent          agentFlags
	prime          primeFlags
	effort         effort
	log            *slog.Logger // set once the flags are parsed
	json           bool
}

func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:           program,
		Short:         "Fetch a model version and publish it atomically",
		Long:          "Fetch a model version through a registry pointer and publish it atomically.\n\n" + exitCodesHelp,
		Version:       buildinfo.String(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          usageArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help() // writing to stdout failed
		},
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetVersionTemplate(program + " {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w: %w (see %s --help)", fetcher.ErrUsage, err, cmd.CommandPath())
	})
	root.AddCommand(a.initCommand(), a.agentCommand())
	return root
}

func usageArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%w: unexpected argument %q (see %s --help)", fetcher.ErrUsage, args[0], cmd.CommandPath())
	}
	return nil
}

// exitCode is the one place where an error becomes a number.
func exitCode(ctx context.Context, err error) int {
	switch {
	case err == nil:
		return exitcode.OK
	case ctx.Err() != nil:
		return exitcode.Unexpected
	case isAny(err, agent.ErrRestart):
		return exitcode.RestartPod
	case isAny(err, fetcher.ErrIntegrity):
		return exitcode.Integrity
	case isAny(err, fetcher.ErrNoSpace):
		return exitcode.NoSpace
	case isAny(err, fetcher.ErrConflict):
		return exitcode.Conflict
	case isAny(err, fetcher.ErrUsage, mlflow.ErrConfig, s3conf.ErrConfig, registry.ErrSyntax) && !errors.Is(err, registry.ErrBroken):
		return exitcode.Usage
	case isAny(err, registry.ErrNotFound, registry.ErrBroken, registry.ErrUnsupported):
		return exitcode.PointerBroken
	case isAny(err, registry.ErrPending, registry.ErrUnreachable, registry.ErrDenied):
		return exitcode.RegistryUnreachable
	case isAny(err, fetcher.ErrStoreUnreachable, fetcher.ErrStoreDenied, fetcher.ErrNotPublished):
		return exitcode.StoreUnreachable
	}
	return exitcode.Unexpected
}

func isAny(err error, targets ...error) bool {
	for _, t := range targets {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}

// report writes the one line about the failure, and the termination message
// by which others recognise the cause.
func (a *app) report(ctx context.Context, code int, err error) {
	text := strings.Join(strings.Fields(err.Error()), " ")
	switch {
	case a.json && code == exitcode.RestartPod: // as it was told to
		a.log.InfoContext(ctx, "ending", "code", code, "reason", text)
	case a.json:
		a.log.ErrorContext(ctx, "failed", "code", code, "error", text)
	default:
		_, _ = fmt.Fprintf(a.stderr, "%s: %s (exit %d)\n", program, text, code) // nowhere left to say so
	}
	if path := a.terminationPath(); path != "" {
		if werr := writeTermination(path, code, text, a.flags.model); werr != nil && a.log != nil {
			a.log.WarnContext(ctx, "could not write the termination message", "error", werr)
		}
	}
}

const (
	defaultTermination = "/dev/termination-log"
	// maxTermination is below the 4096 bytes that the kubelet reads.
	maxTermination = 3000
)

// terminationPath returns the file to write to: the flag's, else Kubernetes'
// own if it is there.
func (a *app) terminationPath() string {
	if a.flags.termination != "" {
		return a.flags.termination
	}
	if info, err := os.Stat(defaultTermination); err == nil && info.Mode().IsRegular() {
		return defaultTermination
	}
	return ""
}

// writeTermination writes in place: the file is a mount of its own and cannot
// be replaced.
func writeTermination(path string, code int, reason, ref string) error {
	if len(reason) > maxTermination {
		reason = strings.ToValidUTF8(reason[:maxTermination], "") + "..."
	}
	data, err := json.Marshal(struct {
		Code   int    `json:"code"`
		Reason string `json:"reason"`
		Ref    string `json:"ref"`
	}{code, reason, ref})
	if err != nil {
		return fmt.Errorf("encoding the termination message: %w", err)
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil { //nolint:gosec // the kubelet reads it as another user
		return fmt.Errorf("writing the termination message: %w", err)
	}
	return nil
}
