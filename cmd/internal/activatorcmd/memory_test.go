package activatorcmd

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/warmup/activator"
)

// The bound of bodies bounds the process, garbage included.
func TestTheMemoryLimitFollowsMaxTotalBytes(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	awake(t, nil, "--max-total-bytes", "500000000")
	limit := debug.SetMemoryLimit(-1)
	require.Equal(t, activator.MemoryLimit(500_000_000)+activator.Ballast, limit)
	require.Greater(t, limit, int64(500_000_000)+activator.Ballast)
}
