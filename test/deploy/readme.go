package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Readme writes a chart's README from its Chart.yaml and values.yaml: every
// value with its default and the comment above it.
func Readme(dir string) (string, error) {
	var chart struct {
		Name        string `yaml:"name"`
		Description string `yaml:"description"`
		KubeVersion string `yaml:"kubeVersion"`
	}
	data, err := os.ReadFile(filepath.Join(dir, "Chart.yaml")) //nolint:gosec // a file of this repository
	if err != nil {
		return "", err // names the file
	}
	if err := yaml.Unmarshal(data, &chart); err != nil {
		return "", fmt.Errorf("reading Chart.yaml: %w", err)
	}
	data, err = os.ReadFile(filepath.Join(dir, "values.yaml")) //nolint:gosec // a file of this repository
	if err != nil {
		return "", err // names the file
	}
	var values yaml.Node
	if err := yaml.Unmarshal(data, &values); err != nil {
		return "", fmt.Errorf("reading values.yaml: %w", err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s.\n\n", chart.Name, chart.Description)
	fmt.Fprintf(&b, "Kubernetes %s, KEDA 2.18 or later. How to begin: [quickstart](../../../docs/quickstart.md). ", strings.TrimSuffix(chart.KubeVersion, "-0"))
	b.WriteString("Ready-made values: [overlays](../../overlays). Unknown values are refused, and so are values that cannot work together.\n\n")
	b.WriteString("This page is made from `values.yaml`.\n\n| Value | Default | Meaning |\n|---|---|---|\n")
	if len(values.Content) > 0 {
		rows(&b, "", values.Content[0])
	}
	return b.String(), nil
}

// rows writes a row for each leaf, and for each group that is explained.
func rows(b *strings.Builder, prefix string, node *yaml.Node) {
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		name, help := prefix+key.Value, comment(key)
		group := value.Kind == yaml.MappingNode && value.Style&yaml.FlowStyle == 0 && len(value.Content) > 0
		if group && explained(value) {
			if help != "" {
				fmt.Fprintf(b, "| `%s` | | %s |\n", name, help)
			}
			rows(b, name+".", value)
			continue
		}
		fmt.Fprintf(b, "| `%s` | `%s` | %s |\n", name, inline(value), help)
	}
}

// explained tells groups of values from values that are objects, such as
// resources, whose keys are Kubernetes' own.
func explained(node *yaml.Node) bool {
	for i := 0; i+1 < len(node.Content); i += 2 {
		switch key := node.Content[i].Value; {
		case comment(node.Content[i]) != "", key == "enabled", key == "annotations" && len(node.Content) == 2, explained(node.Content[i+1]):
			return true
		}
	}
	return false
}

// comment is the text above a key, on one line. A comment that a blank line
// parts from the key is not the key's.
func comment(key *yaml.Node) string {
	text := key.HeadComment
	if i := strings.LastIndex(text, "\n\n"); i >= 0 {
		text = text[i+2:]
	}
	var words []string
	for line := range strings.Lines(text) {
		words = append(words, strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "#")))
	}
	return strings.ReplaceAll(strings.Join(words, " "), "|", `\|`)
}

// inline is a value as flow YAML on one line.
func inline(node *yaml.Node) string {
	flow := *node
	var set func(n *yaml.Node)
	set = func(n *yaml.Node) {
		n.HeadComment, n.LineComment, n.FootComment = "", "", ""
		if n.Kind != yaml.ScalarNode {
			n.Style = yaml.FlowStyle
		}
		for _, c := range n.Content {
			set(c)
		}
	}
	set(&flow)
	out, err := yaml.Marshal(&flow)
	if err != nil {
		return err.Error()
	}
	return strings.ReplaceAll(strings.Join(strings.Fields(string(out)), " "), "|", `\|`)
}
