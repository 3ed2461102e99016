package transfer

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseTicks(t *testing.T) {
	tests := map[string]struct {
		stat        string
		idle, total int64
	}{
		"Linux":   {"cpu  100 5 50 800 20 0 5 20 60 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n", 820, 1000},
		"Old":     {"cpu 1 2 3 4 5\n", 9, 15},
		"Empty":   {"", 0, 0},
		"Other":   {"intr 1 2 3 4 5 6\n", 0, 0},
		"NoValue": {"cpu a b c d e f\n", 0, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			idle, total := parseTicks(tc.stat)
			require.Equal(t, tc.idle, idle)
			require.Equal(t, tc.total, total)
		})
	}
}

func TestTheMachineSaysHowIdleItIs(t *testing.T) {
	idle, total := readTicks()
	require.Positive(t, total)
	require.LessOrEqual(t, idle, total)
}
