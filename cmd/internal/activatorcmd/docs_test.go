package activatorcmd

import (
	"context"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/internal/workload"
	"github.com/pilotlight-dev/pilotlight/warmup/activator"
)

const page = "../../../docs/reference/activator.md"

func reference(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	return string(text)
}

// The reference names every flag, and none that does not exist.
func TestEveryFlagIsDocumented(t *testing.T) {
	text := reference(t)
	var f flags
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^ +(--[a-z0-9-]+)`).FindAllStringSubmatch(command(&f).Flags().FlagUsages(), -1) {
		names = append(names, m[1])
		require.Regexp(t, "`"+m[1]+"[` ]", text, "docs/reference/activator.md")
	}
	require.Greater(t, len(names), 30)
	for _, m := range regexp.MustCompile("`(--[a-z0-9-]+)").FindAllStringSubmatch(text, -1) {
		if m[1] != "--served-model-name" { // vLLM's
			require.Contains(t, names, m[1], "a flag in docs/reference/activator.md")
		}
	}
}

type nothing struct{}

func (nothing) All(context.Context) ([]workload.Workload, error) { return nil, nil }

// The same for metrics.
func TestEveryMetricIsDocumented(t *testing.T) {
	registry := &names{}
	_, err := activator.New(activator.Options{Source: nothing{}, Registerer: registry})
	require.NoError(t, err)
	require.NotEmpty(t, registry.all)
	documented := regexp.MustCompile("`(pilotlight_activator_[a-z_]+)`").FindAllStringSubmatch(reference(t), -1)
	var inPage []string
	for _, m := range documented {
		inPage = append(inPage, m[1])
	}
	slices.Sort(inPage)
	slices.Sort(registry.all)
	require.Equal(t, registry.all, slices.Compact(inPage))
}

// names is a registry that only takes down names.
type names struct {
	prometheus.Registerer
	all []string
}

var fqName = regexp.MustCompile(`fqName: "([^"]+)"`)

func (n *names) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc, 100)
	c.Describe(descs)
	close(descs)
	for d := range descs {
		n.all = append(n.all, fqName.FindStringSubmatch(d.String())[1])
	}
	return nil
}

// And for the classes in which requests end.
func TestEveryClassIsDocumented(t *testing.T) {
	text := reference(t)
	for _, class := range activator.Classes() {
		require.Contains(t, text, "`"+class+"`", "docs/reference/activator.md")
	}
}
