package scalercmd

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/internal/events"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
	"github.com/pilotlight-dev/pilotlight/scaler"
	"github.com/pilotlight-dev/pilotlight/scaler/demand/source"
	"github.com/pilotlight-dev/pilotlight/scaler/moves"
	"github.com/pilotlight-dev/pilotlight/scaler/policy"
	"github.com/pilotlight-dev/pilotlight/scaler/webhook"
)

// section returns one section of the reference page.
func section(t *testing.T, title string) string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/reference/scaler.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(page), "\n## "+title+"\n")
	require.True(t, found, title)
	rest, _, _ = strings.Cut(rest, "\n## ")
	return rest
}

// firsts are the first columns of the rows that begin with a word in backquotes.
func firsts(text string) []string {
	var out []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	return out
}

func TestReferenceHasEveryFlag(t *testing.T) {
	documented := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\| (?:`([^`]*)` )?\\| .+ \\|$").FindAllStringSubmatch(section(t, "Flags"), -1) {
		documented[m[1]] = m[2]
	}
	known := map[string]string{}
	flags := command(cli.Env{}).Flags()
	for _, m := range regexp.MustCompile(`(?m)^ +--([a-z-]+)`).FindAllStringSubmatch(flags.FlagUsages(), -1) {
		known[m[1]] = flags.Lookup(m[1]).DefValue
	}
	require.Equal(t, known, documented)
}

// names is a registerer that only notes what metrics there are.
type names map[string]bool

func (n names) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc)
	go func() { c.Describe(descs); close(descs) }()
	for d := range descs {
		n[regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(d.String())[1]] = true
	}
	return nil
}

func (n names) MustRegister(...prometheus.Collector) {}
func (n names) Unregister(prometheus.Collector) bool { return true }

func TestReferenceHasEveryMetric(t *testing.T) {
	known := names{}
	s, err := scaler.New(scaler.Options{Registerer: known})
	require.NoError(t, err)
	s.Close()
	_, err = source.New(nil, source.Options{Registerer: known})
	require.NoError(t, err)
	_, err = webhook.New(webhook.Options{SecretFile: write(t, "s", "x"), Registerer: known})
	require.NoError(t, err)
	_, err = webhook.NewNudger(nil, nil, known)
	require.NoError(t, err)
	_, err = moves.New(moves.Options{Registerer: known})
	require.NoError(t, err)
	require.NoError(t, known.Register(newColdstarts()))
	require.NoError(t, known.Register((&gate{}).collector()))
	require.NoError(t, known.Register(denials{}))
	documented := names{}
	for _, name := range firsts(section(t, "Metrics")) {
		documented[name] = true
	}
	require.Equal(t, known, documented)
}

func TestReferenceHasEventsFailuresAndSources(t *testing.T) {
	require.ElementsMatch(t, events.Reasons(), firsts(section(t, "Events")))
	var reasons []string
	for _, r := range policy.Reasons() {
		reasons = append(reasons, string(r))
		require.Contains(t, section(t, "Reasons"), "| `"+string(r)+"` | "+r.Text()+" |")
	}
	require.ElementsMatch(t, reasons, firsts(section(t, "Reasons")))
	var failures []string
	for _, f := range workload.Failures() {
		failures = append(failures, string(f))
		says := regexp.MustCompile("(?m)^\\| `" + string(f) + "` \\| .* \\| useless \\|$").MatchString(section(t, "Failed starts"))
		require.Equal(t, f.Hopeless(), says, f)
	}
	require.ElementsMatch(t, failures, firsts(section(t, "Failed starts")))
	keys := []string{"epp", "router", "http-addon", "prometheus"}
	for field := range reflect.TypeFor[source.Entry]().Fields() {
		key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		keys = append(keys, key)
	}
	require.ElementsMatch(t, keys, firsts(section(t, "Demand sources")))
	_, yaml, _ := strings.Cut(section(t, "Demand sources"), "```yaml\n")
	yaml, _, _ = strings.Cut(yaml, "```")
	entries, err := source.Parse([]byte(yaml))
	require.NoError(t, err, "the example is good")
	require.Len(t, entries, 2)
}
