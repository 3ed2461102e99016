package retry_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/retry"
)

var (
	errBusy  = errors.New("busy")
	errFinal = errors.New("final")
)

func TestDo(t *testing.T) {
	tests := map[string]struct {
		policy    retry.Policy
		fail      []error // the error of each attempt; beyond them success
		wantCalls int
		wantErr   error
		reason    string
	}{
		"FirstTry":      {wantCalls: 1, reason: "success needs no second call"},
		"Recovers":      {fail: []error{errBusy, errBusy}, wantCalls: 3, reason: "passing errors are repeated"},
		"FinalAtOnce":   {policy: retry.Policy{Retryable: func(err error) bool { return !errors.Is(err, errFinal) }}, fail: []error{errFinal}, wantCalls: 1, wantErr: errFinal, reason: "a final error is not repeated"},
		"AttemptsSpent": {policy: retry.Policy{Attempts: 2}, fail: []error{errBusy, errBusy, errBusy}, wantCalls: 2, wantErr: errBusy, reason: "attempts bound the calls"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				err := retry.Do(t.Context(), tc.policy, func(context.Context, int) error {
					calls++
					if calls <= len(tc.fail) {
						return tc.fail[calls-1]
					}
					return nil
				})
				require.ErrorIs(t, err, tc.wantErr, tc.reason)
				require.Equal(t, tc.wantCalls, calls, tc.reason)
			})
		})
	}
}

func TestDoNamesTheLastFailureWhenTheDeadlineEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		err := retry.Do(ctx, retry.Policy{}, func(context.Context, int) error { return errBusy })
		require.ErrorIs(t, err, errBusy)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 10*time.Second, time.Since(start), "a wait never outlives the context")
	})
}

func TestDoHonoursRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, calls := time.Now(), 0
		err := retry.Do(t.Context(), retry.Policy{Base: time.Millisecond}, func(context.Context, int) error {
			calls++
			if calls == 1 {
				return retry.After(errBusy, 7*time.Second)
			}
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, 7*time.Second, time.Since(start))
	})
}

func TestWaitStaysInItsBounds(t *testing.T) {
	p := retry.Policy{Base: 100 * time.Millisecond, Max: time.Second}
	for attempt, whole := range map[int]time.Duration{1: 100, 2: 200, 3: 400, 4: 800, 5: 1000, 1 << 20: 1000} {
		for range 50 {
			got := p.Wait(attempt)
			require.GreaterOrEqual(t, got, whole*time.Millisecond/2)
			require.LessOrEqual(t, got, whole*time.Millisecond)
		}
	}
}

func TestDoKeepsTheLastFailureWhenWaitAndDeadlineCoincide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		err := retry.Do(ctx, retry.Policy{OnRetry: func(_ int, wait time.Duration, _ error) {
			time.AfterFunc(wait, func() { cancel(context.DeadlineExceeded) })
		}}, func(context.Context, int) error { return errBusy })
		require.ErrorIs(t, err, errBusy)
	})
}

func TestDoDoesNotStartAfterTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errFinal)
	err := retry.Do(ctx, retry.Policy{}, func(context.Context, int) error {
		t.Error("called")
		return nil
	})
	require.ErrorIs(t, err, errFinal)
}

func TestDoNamesTheFailureBeforeTheAttemptThatWasCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errFinal)
		defer cancel()
		err := retry.Do(ctx, retry.Policy{}, func(ctx context.Context, attempt int) error {
			if attempt == 1 {
				return errBusy
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
		require.ErrorIs(t, err, errBusy)
		require.ErrorIs(t, err, errFinal)
	})
}
