package outlive_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/registry/internal/outlive"
)

func TestEndsAfterTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		after, cancel := outlive.Context(ctx, 10*time.Second)
		defer cancel()
		time.Sleep(time.Hour)
		require.NoError(t, after.Err(), "it lasts as long as its caller")
		leave()
		time.Sleep(9 * time.Second)
		require.NoError(t, after.Err())
		time.Sleep(2 * time.Second)
		require.ErrorIs(t, after.Err(), context.Canceled)

		late, cancelLate := outlive.Context(ctx, 10*time.Second)
		defer cancelLate()
		require.NoError(t, late.Err(), "also when it has ended before")
		time.Sleep(11 * time.Second)
		require.Error(t, late.Err())
	})
}

func TestCancelLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // fails when a goroutine stays
		ctx, leave := context.WithCancel(t.Context())
		after, cancel := outlive.Context(ctx, time.Hour)
		leave()
		synctest.Wait()
		cancel()
		require.Error(t, after.Err())
	})
}
