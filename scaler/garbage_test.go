package scaler

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestGCPercent(t *testing.T) {
	cases := map[string]struct {
		live uint64
		want int
	}{
		"Nothing":     {0, 400},
		"Little":      {20 << 20, 400},
		"AtTheBend":   {25 << 20, 400},
		"AsMuch":      {100 << 20, 100},
		"TwiceAsMuch": {200 << 20, 50},
		"VeryMuch":    {1 << 30, 40},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, gcPercent(tc.live)) })
	}
}

// What lives grows, and with it the collector works harder.
func TestGarbageFollowsWhatLives(t *testing.T) {
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	percent := func() int { p := debug.SetGCPercent(100); debug.SetGCPercent(p); return p }
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); Garbage(ctx) }()
		synctest.Wait()
		require.Equal(t, MostGCPercent, percent())
		live := make([]byte, 200<<20)
		runtime.GC()
		time.Sleep(2 * tuneEvery)
		synctest.Wait()
		require.Less(t, percent(), 80)
		runtime.KeepAlive(live)
		stop()
		<-done
	})
}
