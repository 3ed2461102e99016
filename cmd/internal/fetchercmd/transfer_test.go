package fetchercmd_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/exitcode"
)

func TestTransferFlags(t *testing.T) {
	tests := map[string]struct {
		args  []string
		code  int
		words string
	}{
		"Durable":        {[]string{"--durability", "durable"}, exitcode.OK, `"durability":"durable"`},
		"Ephemeral":      {[]string{"--durability=ephemeral"}, exitcode.OK, `"durability":"ephemeral"`},
		"Auto":           {nil, exitcode.OK, `"reason":`},
		"LastLine":       {[]string{"--connections", "4", "--memory", "128Mi"}, exitcode.OK, `"bottleneck":`},
		"Bandwidth":      {[]string{"--bandwidth", "100M"}, exitcode.OK, `"bottleneck":`},
		"BadDurability":  {[]string{"--durability", "forever"}, exitcode.Usage, "want auto, ephemeral or durable"},
		"NoConnections":  {[]string{"--connections", "0"}, exitcode.Usage, "want 1 to 256"},
		"TooMany":        {[]string{"--connections", "257"}, exitcode.Usage, "want 1 to 256"},
		"BadMemory":      {[]string{"--memory", "lots"}, exitcode.Usage, "such as 256Mi or 100M"},
		"NegativeMemory": {[]string{"--memory", "-5Mi"}, exitcode.Usage, "such as 256Mi or 100M"},
		"Overflow":       {[]string{"--bandwidth", "99999999Ti"}, exitcode.Usage, "such as 256Mi or 100M"},
		"OtherUnit":      {[]string{"--bandwidth", "5MB"}, exitcode.Usage, "such as 256Mi or 100M"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			code, stderr := newSystem(t).init(append([]string{"--log-format", "json"}, tc.args...)...)
			require.Equal(t, tc.code, code, stderr)
			require.Contains(t, stderr, tc.words)
		})
	}
}
