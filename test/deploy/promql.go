package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	prommodel "github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// Metrics are metric families that somebody exports, with the labels that the
// reference names ("" for those of other programs, whose labels are not known
// here).
type Metrics map[string][]string

var (
	metricRow = regexp.MustCompile("(?m)^\\| `((?:pilotlight)_[a-z_]+)` \\|(.*)$")
	code      = regexp.MustCompile("`([a-z_]+)`")
	family    = regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`)
)

// targetLabels are what the reference calls a target.
var targetLabels = []string{"namespace", "scaled_object", "trigger"}

// OurMetrics reads the tables of docs/reference, which other tests compare with
// what the programs register.
func OurMetrics() (Metrics, error) {
	pages, err := filepath.Glob(filepath.Join(root, "docs", "reference", "*.md"))
	if err != nil {
		return nil, err
	}
	found := Metrics{}
	for _, page := range pages {
		text, err := os.ReadFile(page) //nolint:gosec // a file of this repository
		if err != nil {
			return nil, err // names the file
		}
		for _, m := range metricRow.FindAllStringSubmatch(string(text), -1) {
			first, _, _ := strings.Cut(m[2], "|")
			names := []string{}
			if strings.Contains(first, "target") {
				names = append(names, targetLabels...)
			}
			for _, l := range code.FindAllStringSubmatch(first, -1) {
				names = append(names, l[1])
			}
			if filepath.Base(page) != "scaler.md" {
				names = nil // those pages name no labels
			}
			found[m[1]] = names
		}
	}
	return found, nil
}

// EngineMetrics reads the families of engines' metrics pages.
func EngineMetrics(files ...string) (Metrics, error) {
	found := Metrics{}
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // a file of this repository
		if err != nil {
			return nil, err // names the file
		}
		for _, m := range family.FindAllStringSubmatch(string(text), -1) {
			found[m[1]] = nil
		}
	}
	return found, nil
}

// Problems says what is wrong with an expression: syntax, metrics that nobody
// exports, labels that they do not have.
func (m Metrics) Problems(expr string) []string {
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return []string{err.Error()}
	}
	var problems []string
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		if s, ok := node.(*parser.VectorSelector); ok {
			problems = append(problems, m.selector(s.Name, s.LabelMatchers)...)
		}
		return nil
	})
	return problems
}

func (m Metrics) selector(name string, matchers []*labels.Matcher) []string {
	known, ok := m[name]
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if base, cut := strings.CutSuffix(name, suffix); cut && !ok {
			known, ok = m[base]
		}
	}
	if !ok {
		return []string{name + " is exported by nobody"}
	}
	if known == nil {
		return nil
	}
	var problems []string
	for _, matcher := range matchers {
		if matcher.Name != prommodel.MetricNameLabel && matcher.Name != "le" && !slices.Contains(known, matcher.Name) {
			problems = append(problems, fmt.Sprintf("%s has no label %s", name, matcher.Name))
		}
	}
	return problems
}
