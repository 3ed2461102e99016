package deploy

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// root is the repository's, seen from this package.
const root = "../.."

// Release says how a chart is installed.
type Release struct {
	Chart     string // folder below deploy/charts
	Name      string
	Namespace string
	Kube      string // version of Kubernetes, such as v1.36.0
	Values    map[string]any
}

// A Document is one object of a render.
type Document struct {
	Source string // template, or file
	Text   string
	Object unstructured.Unstructured
}

// String names the object.
func (d Document) String() string {
	return fmt.Sprintf("%s %s/%s (%s)", d.Object.GetKind(), d.Object.GetNamespace(), d.Object.GetName(), d.Source)
}

// Render renders a chart as helm template does. Notes is NOTES.txt.
func Render(r Release) (docs []Document, notes string, err error) {
	chart, err := loader.LoadDir(filepath.Join(root, "deploy", "charts", r.Chart))
	if err != nil {
		return nil, "", fmt.Errorf("loading the chart %s: %w", r.Chart, err)
	}
	caps := common.DefaultCapabilities.Copy()
	if r.Kube != "" {
		version, err := common.ParseKubeVersion(r.Kube)
		if err != nil {
			return nil, "", fmt.Errorf("reading the version %s: %w", r.Kube, err)
		}
		caps.KubeVersion = *version
	}
	values, err := util.ToRenderValues(chart, r.Values, common.ReleaseOptions{Name: r.Name, Namespace: r.Namespace, Revision: 1, IsInstall: true}, caps)
	if err != nil {
		return nil, "", err // says which value
	}
	files, err := engine.Render(chart, values)
	if err != nil {
		return nil, "", err // says which template
	}
	for _, name := range sortedKeys(files) {
		if strings.HasSuffix(name, "NOTES.txt") {
			notes = files[name]
			continue
		}
		got, err := Split(name, files[name])
		if err != nil {
			return nil, "", err
		}
		docs = append(docs, got...)
	}
	return docs, notes, nil
}

// Split reads the documents of one YAML text; those without content are left
// out.
func Split(source, text string) ([]Document, error) {
	var docs []Document
	for _, part := range strings.Split("\n"+text, "\n---") {
		part = strings.TrimLeft(part, "\n")
		var obj map[string]any
		data, err := yaml.YAMLToJSONStrict([]byte(part))
		if err == nil {
			err = json.Unmarshal(data, &obj) // whole numbers stay whole
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w:\n%s", source, err, part)
		}
		if len(obj) > 0 {
			docs = append(docs, Document{Source: source, Text: strings.TrimSpace(part), Object: unstructured.Unstructured{Object: obj}})
		}
	}
	return docs, nil
}

// ReadYAML reads the documents of all YAML files of a folder and those below.
func ReadYAML(dir string) ([]Document, error) {
	var docs []Document
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		data, err := os.ReadFile(path) //nolint:gosec // a file of this repository
		if err != nil {
			return err // names the file
		}
		got, err := Split(path, string(data))
		docs = append(docs, got...)
		return err
	})
	return docs, err
}

// Text writes documents one after the other, each with its source.
func Text(docs []Document) string {
	var b bytes.Buffer
	for _, d := range docs {
		fmt.Fprintf(&b, "---\n# Source: %s\n%s\n", d.Source, d.Text)
	}
	return b.String()
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
