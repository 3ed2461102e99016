package usage

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheNameOfAProgramMayHoldAnything(t *testing.T) {
	got, err := parseCPU("7 (a ) b (c) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 9 0 1 2 3")
	require.NoError(t, err)
	require.Equal(t, 3*time.Second, got)
	_, err = parseCPU("7 (cut) S 1 7")
	require.ErrorContains(t, err, "too few fields")
	_, err = parseCPU("")
	require.Error(t, err)
}

func TestOfThisProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no /proc")
	}
	before, err := CPU(os.Getpid())
	require.NoError(t, err)
	now, peak, err := Memory(os.Getpid())
	require.NoError(t, err)
	require.Positive(t, now)
	require.GreaterOrEqual(t, peak, now)
	after, err := CPU(os.Getpid())
	require.NoError(t, err)
	require.GreaterOrEqual(t, after, before)
	_, err = CPU(-1)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, _, err = Memory(-1)
	require.ErrorIs(t, err, os.ErrNotExist)
}
