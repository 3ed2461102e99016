package deploy

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"sigs.k8s.io/yaml"
)

// with returns the release with further values, written as YAML.
func with(t *testing.T, base Release, text string) Release {
	t.Helper()
	var values map[string]any
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), &values), text)
	base.Values = loader.MergeMaps(maps.Clone(base.Values), values)
	return base
}

// The programs refuse these values when they start, so the charts do before: a
// pod that never starts says it to nobody.
func TestNoRenderThatItsProgramRefuses(t *testing.T) {
	t.Parallel()
	const zero = "does not match pattern '[1-9]'"
	for values, wants := range map[string]string{
		"scaler: {agentPoll: 500ms}":     "scaler.agentPoll: 500ms is less than 1s",
		"scaler: {interval: 1ms}":        "scaler.interval: 1ms is less than 10ms",
		"scaler: {interval: 9.9ms}":      "scaler.interval: 9.9ms is less than 10ms",
		"scaler: {scrapeTimeout: 0s}":    zero,
		"scaler: {gaugeLag: 0.0s0ms}":    zero,
		"activator: {maxHold: 0s}":       zero,
		"activator: {writeTimeout: 0h}":  zero,
		"activator: {uploadPause: 0s}":   zero,
		"activator: {holdComments: 1ms}": "activator.holdComments: 1ms is less than 1s",
		"scaler: {agentPoll: 0s}":        "", "scaler: {agentPoll: 1s}": "", "scaler: {agentPoll: 0.5s500ms}": "",
		"scaler: {agentPoll: 1.5m}": "", "scaler: {agentPoll: 1h}": "", "scaler: {interval: 10ms}": "", "scaler: {interval: 0.01s}": "",
		"activator: {holdComments: 0s}": "", "activator: {holdComments: ''}": "", "activator: {holdComments: 1m}": "",
	} {
		refused(t, with(t, pilotlight, values), values, wants)
	}
	for set, wants := range map[string]string{
		"interval: 100ms": "scaler.demandSources.router.interval: 100ms must lie between 200ms and 5s",
		"interval: 6s":    "scaler.demandSources.router.interval: 6s must lie between 200ms and 5s",
		"timeout: 9ms":    "scaler.demandSources.router.timeout: 9ms must lie between 10ms and 10s",
		"timeout: 1m":     "scaler.demandSources.router.timeout: 1m must lie between 10ms and 10s",
		"interval: 0s":    "", "interval: 200ms, timeout: 10ms": "", "interval: 5s, timeout: 10s": "", "timeout: 0s": "",
	} {
		values := "scaler: {demandSources: [{name: router, type: router, url: 'http://router.ai', namespaces: [ai], " + set + "}]}"
		refused(t, with(t, pilotlight, values), values, wants)
	}
	for values, wants := range map[string]string{
		"fetcher: {agent: {poll: 1ms}}":                                   "fetcher.agent.poll: 1ms is less than 1s",
		"fetcher: {agent: {poll: 0s}}":                                    zero,
		"fetcher: {agent: {hookTimeout: 0s}}":                             zero,
		"fetcher: {deadline: 0s}":                                         zero,
		"fetcher: {keepFor: 0h}":                                          zero,
		"fetcher: {agent: {port: 8000}}":                                  "fetcher.agent.port: 8000 is the engine's",
		"{engine: {port: 9400}}":                                          "fetcher.agent.port: 9400 is the engine's",
		"{engine: {port: 9400}, fetcher: {agent: {enabled: false}}}":      "",
		"fetcher: {agent: {poll: 1s}}":                                    "",
		"{engine: {port: 9000}, fetcher: {agent: {port: 8000}}}":          "",
		"{fetcher: {agent: {poll: 1m30s, hookTimeout: 1ms, port: 1024}}}": "",
	} {
		refused(t, with(t, model, values), values, wants)
	}
}

func refused(t *testing.T, r Release, values, wants string) {
	t.Helper()
	_, _, err := Render(r)
	if wants == "" {
		require.NoError(t, err, values)
		return
	}
	require.ErrorContains(t, err, wants, values)
}

// A limit is a quantity in whatever form Kubernetes takes: with a suffix, with an
// exponent, or a plain number, which YAML hands over as one.
func TestMemoryLimitsInEveryForm(t *testing.T) {
	t.Parallel()
	for limit, wants := range map[string]string{
		"1536Mi": "", "1610612736": "", "'1610612736'": "", "2e9": "", "'2e9'": "", "2E9": "", "'2E+9'": "", "2G": "", "1.5Gi": "", "1P": "", "1E": "", "1Ei": "", "'1610612736000m'": "",
		"1073741824":       "activator.resources.limits.memory: 1073741824 is less than",
		"'1e9'":            "activator.resources.limits.memory: 1e9 is less than",
		"1Gi":              "activator.resources.limits.memory: 1Gi is less than",
		"'1610612736m'":    "activator.resources.limits.memory: 1610612736m is less than",
		"'1073741824000m'": "activator.resources.limits.memory: 1073741824000m is less than",
	} {
		refused(t, with(t, pilotlight, "activator: {resources: {limits: {memory: "+limit+"}}}"), limit, wants)
	}
}

// The scaler's NetworkPolicy lets it reach agents on the ports that it is told.
func TestAgentsOnOtherPortsAreReached(t *testing.T) {
	t.Parallel()
	docs, _, err := Render(with(t, pilotlight, "networkPolicy: {agentPorts: [9400, 9500]}"))
	require.NoError(t, err)
	text := Text(docs)
	require.Contains(t, text, "port: 9500")
}

// The scaler asks no pod that says port 0; the CLI still finds it by its label.
func TestPodsWithoutAgentSaySo(t *testing.T) {
	t.Parallel()
	docs, _, err := Render(with(t, model, "fetcher: {agent: {enabled: false}}"))
	require.NoError(t, err)
	text := Text(docs)
	require.Contains(t, text, `pilotlight.dev/agent-port: "0"`)
	require.Equal(t, 1, strings.Count(text, "pilotlight.dev/ref-hash:"))
}
