package exits_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/cmd/internal/exits"
	"github.com/pilotlight-dev/pilotlight/fetcher"
	"github.com/pilotlight-dev/pilotlight/internal/exitcode"
	"github.com/pilotlight-dev/pilotlight/registry"
	"github.com/pilotlight-dev/pilotlight/registry/mlflow"
)

func TestEveryClassHasItsCode(t *testing.T) {
	tests := map[string]struct {
		err  error
		want int
	}{
		"Done":               {nil, exitcode.OK},
		"Unforeseen":         {errors.New("x"), exitcode.Unexpected},
		"Interrupted":        {fmt.Errorf("%w: %w", context.Canceled, registry.ErrUnreachable), exitcode.Unexpected},
		"Usage":              {cli.Usage("x"), exitcode.Usage},
		"NoRegistrySet":      {mlflow.ErrConfig, exitcode.Usage},
		"NoReference":        {registry.ErrSyntax, exitcode.Usage},
		"BrokenLocation":     {fmt.Errorf("%w: %w", registry.ErrBroken, registry.ErrSyntax), exitcode.PointerBroken},
		"NotFound":           {registry.ErrNotFound, exitcode.PointerBroken},
		"Integrity":          {fetcher.ErrIntegrity, exitcode.Integrity},
		"NoSpace":            {fetcher.ErrNoSpace, exitcode.NoSpace},
		"RegistryDown":       {registry.ErrUnreachable, exitcode.RegistryUnreachable},
		"MovedOrNot":         {registry.ErrUncertain, exitcode.RegistryUnreachable},
		"Overtaken":          {registry.ErrOvertaken, exitcode.Conflict},
		"Pending":            {registry.ErrPending, exitcode.RegistryUnreachable},
		"StoreDown":          {fetcher.ErrStoreUnreachable, exitcode.StoreUnreachable},
		"NotVerified":        {fmt.Errorf("%w: %w", exits.ErrNotVerified, context.DeadlineExceeded), exitcode.NotVerified},
		"InterruptedWaiting": {fmt.Errorf("%w: %w", exits.ErrNotVerified, context.Canceled), exitcode.NotVerified},
		"DoctorErrors":       {fmt.Errorf("%w: 2 errors", exits.ErrDoctorErrors), exitcode.DoctorError},
		"DoctorWarnings":     {fmt.Errorf("%w: 2", exits.ErrDoctorWarnings), exitcode.DoctorWarning},
		"Conflict":           {registry.ErrConflict, exitcode.Conflict},
		"ExistsAlready":      {registry.ErrExists, exitcode.Conflict},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, exits.Code(tc.err))
			err := exits.With(tc.err)
			if tc.err == nil {
				require.NoError(t, err)
				return
			}
			var coded interface{ ExitCode() int }
			require.ErrorAs(t, err, &coded)
			require.Equal(t, tc.want, coded.ExitCode())
			require.ErrorIs(t, err, tc.err)
		})
	}
}
