package trigger

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// row is a line of the reference's table of keys.
var row = regexp.MustCompile("(?m)^\\| `([A-Za-z]+)` \\| (?:`([^`]*)`|(required)|) ?\\| (.*) \\|$")

// The reference has every key with its default, and no other.
func TestReferenceHasEveryKey(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/scaler.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "\n## Trigger metadata\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	documented := map[string]string{}
	for _, m := range row.FindAllStringSubmatch(section, -1) {
		documented[m[1]] = m[2] + m[3]
	}
	known := map[string]string{}
	for _, k := range Keys() {
		known[k.Name] = k.Default
		if k.Required {
			known[k.Name] = "required"
		}
	}
	require.Equal(t, known, documented)
}

// The page about the policy names every key, too.
func TestEveryKeyIsExplained(t *testing.T) {
	page, err := os.ReadFile("../../docs/policy.md")
	require.NoError(t, err)
	for _, k := range Keys() {
		require.Contains(t, string(page), "`"+k.Name+"`", "docs/policy.md")
	}
}
