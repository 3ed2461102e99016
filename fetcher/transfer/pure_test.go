package transfer

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestClimber plays a network that carries perConnection each and cap at most,
// in MB/s, for some ticks, on a machine with some of its processors idle.
func TestClimber(t *testing.T) {
	tests := map[string]struct {
		ceiling       int
		perConnection float64
		capacity      float64
		idle          float64
		ticks         int
		least, most   int
		reason        string
	}{
		"SlowConnections": {256, 5, 1e9, 1, 20, 256, 256, "each brings as much as the first: all of them, within 5 s"},
		"FullAtOnce":      {256, 1000, 500, 1, 400, 16, 32, "more bring nothing"},
		"FullAt64":        {256, 5, 320, 1, 400, 64, 128, "the doubling that brings nothing is taken back, and tried again later"},
		"Ceiling":         {24, 5, 1e9, 1, 40, 24, 24, "never above what memory pays for"},
		"DeadNetwork":     {256, 0, 0, 1, 40, 16, 16, "no rate says nothing"},
		"BusyMachine":     {256, 5, 1e9, 0.01, 40, 16, 16, "more connections would share the same processors"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := climber{limit: min(startLarge, tc.ceiling), ceiling: tc.ceiling}
			high := 0
			for range tc.ticks {
				c.tick(interval{rate: min(float64(c.limit)*tc.perConnection, tc.capacity), saturated: true, idle: tc.idle})
				require.LessOrEqual(t, c.limit, tc.ceiling)
				high = max(high, c.limit)
			}
			require.GreaterOrEqual(t, c.limit, tc.least, tc.reason)
			require.LessOrEqual(t, high, tc.most, tc.reason)
		})
	}
}

func TestClimberHalvesAndRests(t *testing.T) {
	c := climber{limit: 128, ceiling: 256}
	require.Equal(t, 64, c.tick(interval{rate: 100, saturated: true, refused: true, idle: 1}))
	for range climbAfter {
		require.Equal(t, 64, c.tick(interval{rate: 1000, saturated: true, idle: 1}), "it rests, whatever the rate")
	}
	for range climbWait {
		c.tick(interval{rate: 100, saturated: true, idle: 1})
	}
	require.Equal(t, 128, c.limit)
	for range 10 {
		c.tick(interval{rate: 100, saturated: true, refused: true, idle: 1})
	}
	require.Equal(t, 1, c.limit, "never none")
}

func TestClimberWaitsWhileThereIsTooLittleToDo(t *testing.T) {
	c := climber{limit: 16, ceiling: 256}
	for range 40 {
		require.Equal(t, 16, c.tick(interval{rate: 1000, idle: 1}))
	}
}

func TestBottleneck(t *testing.T) {
	const s = time.Second
	tests := map[string]struct {
		evidence evidence
		want     Bottleneck
		reason   string
	}{
		"Network":   {evidence{wall: 10 * s, cpu: 6 * s, processors: 2, read: 120 * s, write: 30 * s}, Network, "connections mostly waited for bytes"},
		"Disk":      {evidence{wall: 10 * s, cpu: 6 * s, processors: 2, read: 30 * s, write: 120 * s}, Disk, "connections mostly waited for writes"},
		"CPU":       {evidence{wall: 10 * s, cpu: 18 * s, processors: 2, read: 30 * s, write: 120 * s}, CPU, "90 % busy: waiting was computing"},
		"Throttled": {evidence{wall: 10 * s, cpu: s, processors: 2, read: 60 * s, write: 10 * s, refused: 40 * s}, StoreThrottle, "over a third of the time"},
		"Capped":    {evidence{wall: 10 * s, cpu: s, processors: 2, read: 60 * s, refused: 40 * s, capped: 50 * s}, BandwidthCap, "what we were told beats all"},
		"Nothing":   {evidence{wall: s, processors: 2}, NothingToDo, "no connection did anything"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, why := tc.evidence.bottleneck()
			require.Equal(t, tc.want, got, tc.reason)
			require.NotEmpty(t, why)
		})
	}
}

func TestBuffersAreAlignedAndReused(t *testing.T) {
	b := newBuffers()
	first, err := b.get(smallBuffer)
	require.NoError(t, err)
	require.Len(t, first, smallBuffer)
	require.Equal(t, smallBuffer, cap(first), "padding stays inside")
	require.Zero(t, uintptr(unsafe.Pointer(&first[0]))%bufferAlign) //nolint:gosec // only the address is looked at
	b.put(first[:10])
	again, err := b.get(smallBuffer)
	require.NoError(t, err)
	require.Same(t, &first[0], &again[0])
	big, err := b.get(largeBuffer)
	require.NoError(t, err)
	require.Len(t, big, largeBuffer)
	require.NoError(t, b.close())
}

func TestAffordable(t *testing.T) {
	require.Equal(t, 256, affordable(1<<30, 256), "the default budget pays for all")
	require.Equal(t, 103, affordable(256<<20, 256))
	require.Equal(t, 1, affordable(0, 256))
	require.Equal(t, 16, affordable(1<<30, 16))
}

func TestSlowDownHalvesOnceASecond(t *testing.T) {
	b := newBoard(nil, Options{}.withDefaults(), 256)
	now := time.Now()
	for range 50 {
		b.slowDown(now)
	}
	require.Equal(t, [2]int{8, 128}, b.limit)
	b.slowDown(now.Add(time.Second))
	require.Equal(t, [2]int{4, 64}, b.limit)
	for range 100 {
		b.recover(small)
	}
	require.Equal(t, 256, b.limit[small])
}
