package activator

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTide(t *testing.T) {
	const mb = 1 << 20
	cases := map[string]struct {
		used []int64
		want []bool
	}{
		"NothingComes":     {[]int64{0, 0, 0}, []bool{false, false, false}},
		"OrdinaryTraffic":  {[]int64{60 * mb, 0, 60 * mb, 0}, []bool{false, false, false, false}},
		"Flood":            {[]int64{64 * mb, 0, 0, 0, 0}, []bool{false, true, true, true, false}},
		"FloodThatStays":   {[]int64{500 * mb, 400 * mb, 100 * mb}, []bool{false, false, false}},
		"FloodThatFalls":   {[]int64{500 * mb, 400 * mb, 60 * mb, 60 * mb, 60 * mb, 60 * mb}, []bool{false, false, true, true, true, false}},
		"FloodAfterAFlood": {[]int64{500 * mb, 0, 500 * mb, 500 * mb, 500 * mb, 0, 0, 0, 0}, []bool{false, true, true, true, false, true, true, true, false}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var tide tide
			var got []bool
			for _, used := range tc.used {
				got = append(got, tide.ebbs(used))
			}
			require.Equal(t, tc.want, got)
		})
	}
}

// The memory of a flood is collected soon after it, a few times, and then
// nothing more is done.
func TestTidy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, err := New(Options{Source: &world{}})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		collected := 0
		go a.Tidy(ctx, func() { collected++ })
		require.True(t, a.memory.take(700<<20, 0))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Zero(t, collected, "nothing is free yet")
		a.memory.used.Store(0)
		time.Sleep(collections*tidyEvery + time.Second)
		synctest.Wait()
		require.Equal(t, collections, collected)
		time.Sleep(time.Hour)
		cancel()
		synctest.Wait()
		require.Equal(t, collections, collected)
	})
}
