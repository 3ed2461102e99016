package deploy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const files = root + "/deploy/charts/pilotlight/files"

// A rule is one alert as it is written.
type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func rules(t *testing.T) []rule {
	t.Helper()
	data, err := os.ReadFile(files + "/alerts.yaml")
	require.NoError(t, err)
	var all struct {
		Groups []struct {
			Name  string `json:"name"`
			Rules []rule `json:"rules"`
		} `json:"groups"`
	}
	text := strings.NewReplacer("MAX_HELD", "1000", "RUNBOOKS", "docs/runbooks").Replace(string(data))
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), &all))
	require.Len(t, all.Groups, 1)
	return all.Groups[0].Rules
}

// expressions finds every "expr" of a dashboard.
func expressions(node any) (found []string) {
	switch node := node.(type) {
	case map[string]any:
		for key, value := range node {
			if text, ok := value.(string); ok && key == "expr" {
				found = append(found, text)
			}
			found = append(found, expressions(value)...)
		}
	case []any:
		for _, value := range node {
			found = append(found, expressions(value)...)
		}
	}
	return found
}

func known(t *testing.T) Metrics {
	t.Helper()
	ours, err := OurMetrics()
	require.NoError(t, err)
	require.Contains(t, ours, "pilotlight_scaler_known")
	require.Contains(t, ours["pilotlight_scaler_pods"], "state")
	engines, err := EngineMetrics(root + "/scaler/engine/testdata/metrics/vllm-metrics-v1.txt")
	require.NoError(t, err)
	require.Contains(t, engines, "vllm:num_requests_running")
	for name, labels := range engines {
		ours[name] = labels
	}
	return ours
}

func TestExpressionsNameMetricsThatExist(t *testing.T) {
	t.Parallel()
	metrics := known(t)
	for _, r := range rules(t) {
		require.Empty(t, metrics.Problems(r.Expr), r.Alert)
	}
	data, err := os.ReadFile(files + "/dashboard.json")
	require.NoError(t, err)
	var dashboard map[string]any
	require.NoError(t, json.Unmarshal(data, &dashboard))
	exprs := expressions(dashboard)
	require.Greater(t, len(exprs), 25)
	for _, expr := range exprs {
		require.Empty(t, metrics.Problems(expr), expr)
	}
	require.Equal(t, []string{"pilotlight_scaler_gone is exported by nobody"}, metrics.Problems("rate(pilotlight_scaler_gone[1m])"))
	require.Equal(t, []string{"pilotlight_scaler_pods has no label phase"}, metrics.Problems(`pilotlight_scaler_pods{phase="ready"}`))
	require.Len(t, metrics.Problems("sum("), 1)
}

// Reasons and classes that alerts select are ones that the reference lists.
func TestAlertsSelectValuesThatExist(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(root + "/docs/reference/scaler.md")
	require.NoError(t, err)
	for _, r := range rules(t) {
		for _, m := range regexp.MustCompile(`(?:reason|class|where)=~?"([^"]+)"`).FindAllStringSubmatch(r.Expr, -1) {
			for value := range strings.SplitSeq(m[1], "|") {
				require.Regexp(t, "(?m)(^\\| `"+value+"` \\||: running, waiting, held, in_flight)", string(page), "%s: %s", r.Alert, value)
			}
		}
	}
}

// So are the classes of requests that the dashboard tells apart.
func TestTheDashboardSelectsClassesThatExist(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(root + "/docs/reference/activator.md")
	require.NoError(t, err)
	data, err := os.ReadFile(files + "/dashboard.json")
	require.NoError(t, err)
	var dashboard map[string]any
	require.NoError(t, json.Unmarshal(data, &dashboard))
	seen := 0
	for _, expr := range expressions(dashboard) {
		for _, m := range regexp.MustCompile(`pilotlight_activator_\w+{[^}]*class[!=]~?"([^"]+)"`).FindAllStringSubmatch(expr, -1) {
			for class := range strings.SplitSeq(m[1], "|") {
				require.Regexp(t, "`"+class+"`", string(page), expr)
				seen++
			}
		}
	}
	require.Greater(t, seen, 5)
}

func TestEveryAlertHasARunbook(t *testing.T) {
	t.Parallel()
	index, err := os.ReadFile(root + "/docs/runbooks/README.md")
	require.NoError(t, err)
	pages := map[string]bool{"README.md": true}
	for _, r := range rules(t) {
		page := filepath.Base(r.Annotations["runbook_url"])
		text, err := os.ReadFile(filepath.Join(root, "docs", "runbooks", page))
		require.NoError(t, err, r.Alert)
		require.Contains(t, string(text), "Alert `"+r.Alert+"`")
		require.Contains(t, string(index), "| `"+r.Alert+"` | [")
		require.Contains(t, string(index), "]("+page+")")
		require.Contains(t, []string{"warning", "critical"}, r.Labels["severity"], r.Alert)
		require.NotEmpty(t, r.Annotations["summary"], r.Alert)
		pages[page] = true
	}
	got, err := filepath.Glob(filepath.Join(root, "docs", "runbooks", "*.md"))
	require.NoError(t, err)
	for _, page := range got {
		require.True(t, pages[filepath.Base(page)], "%s belongs to no alert", page)
	}
}

// What a scaler with one healthy target exports.
const healthy = `
  pilotlight_scaler_known{namespace="ai",scaled_object="llama",trigger="x"} 1x12000
  pilotlight_scaler_look_duration_seconds_count 0+60x12000
  pilotlight_scaler_leader{namespace="keda",job="pl",pod="a"} 1x12000
  pilotlight_scaler_leader{namespace="keda",job="pl",pod="b"} 0x12000
  pilotlight_scaler_load_requests{namespace="ai",scaled_object="llama",trigger="x",where="held"} 5x12000
  pilotlight_coldstart_learned_seconds{namespace="ai",scaled_object="llama",trigger="x",quantile="0.95"} 100x12000
  pilotlight_demand_source_last_success_timestamp_seconds{source="epp"} 0+60x12000
  pilotlight_agent_pointer_ok{namespace="ai",pod="llama-1"} 1x12000
`

// firing are series that each alert fires at, in place of the healthy ones of
// the same name.
var firing = map[string]string{
	"PilotlightStartStuck":          `pilotlight_scaler_condition{namespace="ai",scaled_object="llama",trigger="x",reason="CreditExpired"} 1x12000`,
	"PilotlightStartFailing":        `pilotlight_scaler_start_failure{namespace="ai",scaled_object="llama",trigger="x",class="crash"} 1x12000`,
	"PilotlightNoCapacity":          `pilotlight_scaler_start_failure{namespace="ai",scaled_object="llama",trigger="x",class="unschedulable"} 1x12000`,
	"PilotlightNobodyScales":        `pilotlight_scaler_look_duration_seconds_count 1000x12000`,
	"PilotlightNoLeader":            `pilotlight_scaler_leader{namespace="keda",job="pl",pod="b"} 0x12000`,
	"PilotlightDemandUnknown":       `pilotlight_scaler_condition{namespace="ai",scaled_object="llama",trigger="x",reason="DemandUnknown"} 1x12000`,
	"PilotlightDecisionUnknown":     `pilotlight_scaler_known{namespace="ai",scaled_object="llama",trigger="x"} 0x12000`,
	"PilotlightDemandSourceFailing": `pilotlight_demand_source_last_success_timestamp_seconds{source="epp"} 100x12000`,
	"PilotlightPointerBroken":       `pilotlight_scaler_condition{namespace="ai",scaled_object="llama",trigger="x",reason="PointerBroken"} 1x12000`,
	"PilotlightAgentPointerFailing": `pilotlight_agent_pointer_ok{namespace="ai",pod="llama-1"} 0x12000`,
	"PilotlightIntegrityFailure":    `pilotlight_scaler_start_failure{namespace="ai",scaled_object="llama",trigger="x",class="integrity"} 1x12000`,
	"PilotlightHoldQueueNearBound":  `pilotlight_scaler_load_requests{namespace="ai",scaled_object="llama",trigger="x",where="held"} 801x12000`,
	"PilotlightColdStartDrift":      `pilotlight_coldstart_learned_seconds{namespace="ai",scaled_object="llama",trigger="x",quantile="0.95"} 100x10000 160x2000`,
	"PilotlightEngineStalled":       `pilotlight_scaler_condition{namespace="ai",scaled_object="llama",trigger="x",reason="EngineStalled"} 1x12000`,
	"PilotlightModelNameConflict":   `pilotlight_scaler_condition{namespace="ai",scaled_object="llama",trigger="x",reason="ModelNameConflict"} 1x12000`,
}

// TestAlertsFire evaluates each expression with Prometheus' own engine, 200
// hours into series that are well, and into such that are not.
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	require.Len(t, firing, len(rules(t)))
	for _, r := range rules(t) {
		t.Run(r.Alert, func(t *testing.T) {
			t.Parallel()
			require.Empty(t, evaluate(t, r.Expr, healthy), "quiet while all is well")
			bad, ok := firing[r.Alert]
			require.True(t, ok, "no series that it fires at")
			name, _, _ := strings.Cut(strings.ReplaceAll(bad, "{", " "), " ")
			var kept []string
			for line := range strings.Lines(healthy) {
				if !strings.HasPrefix(strings.TrimSpace(line), name) {
					kept = append(kept, line)
				}
			}
			require.Len(t, evaluate(t, r.Expr, strings.TrimRight(strings.Join(kept, ""), "\n")+"\n  "+bad+"\n"), 1)
		})
	}
	require.Len(t, evaluate(t, exprOf(t, "PilotlightNobodyScales"), "\n  up 1x12000\n"), 1, "nobody is scraped")
}

func exprOf(t *testing.T, alert string) string {
	t.Helper()
	for _, r := range rules(t) {
		if r.Alert == alert {
			return r.Expr
		}
	}
	t.Fatalf("no alert %s", alert)
	return ""
}

func evaluate(t *testing.T, expr, series string) promql.Vector {
	t.Helper()
	storage := promqltest.LoadedStorage(t, "load 1m"+series)
	defer func() { require.NoError(t, storage.Close()) }()
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	query, err := engine.NewInstantQuery(t.Context(), storage, nil, expr, time.Unix(0, 0).Add(11999*time.Minute))
	require.NoError(t, err)
	defer query.Close()
	vector, err := query.Exec(t.Context()).Vector()
	require.NoError(t, err)
	return vector
}
