// Package exits turns errors into the exit codes that docs/architecture.md
// lists. It is the one place that knows which error of which part means which
// code, so that a script can rely on a number whatever command it calls.
//
// Parts tell their errors apart by sentinels, as errors.Is finds them, and know
// nothing of codes; commands that end in a way of their own (moved, but not
// verified) add [ErrNotVerified].
package exits

import (
	"context"
	"errors"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/internal/exitcode"
	"github.com/pilotlight-dev/pilotlight/internal/s3conf"
	"github.com/pilotlight-dev/pilotlight/registry"
	"github.com/pilotlight-dev/pilotlight/registry/mlflow"
)

// ErrNotVerified: the pointer was moved, but no engine has confirmed it.
var ErrNotVerified = errors.New("moved, not verified")

// What doctor found.
var (
	ErrDoctorWarnings = errors.New("doctor found warnings")
	ErrDoctorErrors   = errors.New("doctor found errors")
)

// Code returns the exit code of an error; 0 for nil. What several codes could
// be said about gets the first of: not verified (the move is done, whatever
// else happened), conflict, integrity, no space, usage, pointer, registry,
// store.
func Code(err error) int {
	switch {
	case err == nil:
		return exitcode.OK
	case is(err, ErrNotVerified):
		return exitcode.NotVerified
	case is(err, ErrDoctorErrors):
		return exitcode.DoctorError
	case is(err, ErrDoctorWarnings):
		return exitcode.DoctorWarning
	case is(err, context.Canceled): // Ctrl-C
		return exitcode.Unexpected
	case is(err, registry.ErrConflict, registry.ErrExists, fetcher.ErrConflict):
		return exitcode.Conflict
	case is(err, fetcher.ErrIntegrity):
		return exitcode.Integrity
	case is(err, fetcher.ErrNoSpace):
		return exitcode.NoSpace
	case is(err, cli.ErrUsage, fetcher.ErrUsage, mlflow.ErrConfig, s3conf.ErrConfig, registry.ErrSyntax) && !errors.Is(err, registry.ErrBroken):
		return exitcode.Usage
	case is(err, registry.ErrNotFound, registry.ErrBroken, registry.ErrUnsupported):
		return exitcode.PointerBroken
	case is(err, registry.ErrPending, registry.ErrUncertain, registry.ErrUnreachable, registry.ErrDenied):
		return exitcode.RegistryUnreachable
	case is(err, fetcher.ErrStoreUnreachable, fetcher.ErrStoreDenied, fetcher.ErrNotPublished):
		return exitcode.StoreUnreachable
	}
	return exitcode.Unexpected
}

func is(err error, targets ...error) bool {
	for _, t := range targets {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}

// With gives an error its code for cli.Run; nil stays nil.
func With(err error) error {
	if err == nil {
		return nil
	}
	return coded{err}
}

type coded struct{ error }

// ExitCode is what cli.Run asks for.
func (c coded) ExitCode() int { return Code(c.error) }
func (c coded) Unwrap() error { return c.error }
