package deploy

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"sigs.k8s.io/yaml"
)

// How the charts are installed, as NOTES.txt and the quickstart say it.
var (
	pilotlight = Release{Chart: "pilotlight", Name: "pilotlight", Namespace: "keda", Kube: "v1.36.0"}
	model      = Release{Chart: "vllm-model", Name: "llama", Namespace: "ai", Kube: "v1.36.0", Values: map[string]any{
		"model": map[string]any{"name": "llama", "ref": "s3://models/llama"},
	}}
)

// A namedCase is a release with the values of one file.
type namedCase struct {
	name string
	Release
	wants string // of a refused one
}

// casesOf reads the values files of a folder over a release's own.
func casesOf(t *testing.T, base Release, dir string) []namedCase {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files, dir)
	var cases []namedCase
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		var values map[string]any
		require.NoError(t, yaml.UnmarshalStrict(data, &values), file)
		c := namedCase{name: strings.TrimSuffix(filepath.Base(file), ".yaml"), Release: base}
		c.Values = loader.MergeMaps(maps.Clone(base.Values), values)
		if first, _, _ := strings.Cut(string(data), "\n"); strings.HasPrefix(first, "# wants: ") {
			c.wants = strings.TrimPrefix(first, "# wants: ")
		}
		cases = append(cases, c)
	}
	return cases
}

// A rendered case. Documents are shared by all tests: nobody may change them.
type rendered struct {
	namedCase
	docs  []Document
	notes string
}

var (
	renderOnce sync.Once
	allRenders []rendered
)

// renders are the renders of allCases, made once.
func renders(t *testing.T) []rendered {
	t.Helper()
	renderOnce.Do(func() {
		for _, c := range allCases(t) {
			docs, notes, err := Render(c.Release)
			require.NoError(t, err, c.name)
			allRenders = append(allRenders, rendered{namedCase: c, docs: docs, notes: notes})
		}
	})
	require.NotEmpty(t, allRenders, "rendering has failed in another test")
	return allRenders
}

// allCases are those that must work: the matrix of this folder and the
// overlays that users get.
func allCases(t *testing.T) []namedCase {
	t.Helper()
	overlays := filepath.Join(root, "deploy", "overlays")
	var all []namedCase
	add := func(prefix string, cases []namedCase) {
		for _, c := range cases {
			c.name = prefix + c.name
			all = append(all, c)
		}
	}
	add("pilotlight/", casesOf(t, pilotlight, "testdata/values/pilotlight"))
	add("pilotlight/overlay-", casesOf(t, pilotlight, filepath.Join(overlays, "pilotlight")))
	add("vllm-model/", casesOf(t, model, "testdata/values/vllm-model"))
	add("vllm-model/overlay-", casesOf(t, model, filepath.Join(overlays, "model")))
	add("retail/", retail(t))
	return all
}
