package deploy

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// A promise is what an overlay is for: what its render has that a render without
// it has not, and ways to break it that must be noticed, by the chart or by the
// promise.
type promise struct {
	holds  func(docs objects) error
	breaks map[string]string // text of the overlay's file, and what takes its place
}

// objects are the documents of one render.
type objects []Document

// one is the only object of a kind, or the one with that name; empty if there
// is none.
func (o objects) one(kind string, name ...string) map[string]any {
	for _, d := range o {
		if d.Object.GetKind() == kind && (len(name) == 0 || d.Object.GetName() == name[0]) {
			return d.Object.Object
		}
	}
	return nil
}

// at is what is at a path of keys and indices below something; nil if there is
// nothing.
func at(node any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			m, _ := node.(map[string]any)
			node = m[step]
		case int:
			l, _ := node.([]any)
			if step >= len(l) {
				return nil
			}
			node = l[step]
		}
	}
	return node
}

// pod is the spec of the model's pods: those of the Deployment that is no
// writer, or of the leaders of a LeaderWorkerSet.
func (o objects) pod() map[string]any {
	spec, _ := at(o.one("LeaderWorkerSet"), "spec", "leaderWorkerTemplate", "leaderTemplate", "spec").(map[string]any)
	for _, d := range o {
		if d.Object.GetKind() == "Deployment" && !strings.HasSuffix(d.Object.GetName(), "-writer") {
			spec, _ = at(d.Object.Object, "spec", "template", "spec").(map[string]any)
		}
	}
	return spec
}

// container finds a container of the model's pods.
func (o objects) container(name string) map[string]any {
	for _, list := range []string{"initContainers", "containers"} {
		containers, _ := at(o.pod(), list).([]any)
		for _, one := range containers {
			if at(one, "name") == name {
				return one.(map[string]any)
			}
		}
	}
	return nil
}

func (o objects) has(container string, args ...string) error {
	got, _, _ := unstructured.NestedStringSlice(o.container(container), "args")
	for _, arg := range args {
		if !slices.Contains(got, arg) {
			return fmt.Errorf("%s has no argument %s", container, arg)
		}
	}
	return nil
}

// metadata is that of our trigger.
func (o objects) metadata(key string) any {
	return at(o.one("ScaledObject"), "spec", "triggers", 0, "metadata", key)
}

// is compares what is somewhere with what should be there.
func is(what string, got, want any) error {
	if fmt.Sprint(got) != fmt.Sprint(want) {
		return fmt.Errorf("%s is %v, not %v", what, got, want)
	}
	return nil
}

func (o objects) limit(resource string) any {
	return at(o.container("engine"), "resources", "limits", resource)
}

func (o objects) tolerates(taint string) bool {
	key, value, _ := strings.Cut(taint, "=")
	tolerations, _ := at(o.pod(), "tolerations").([]any)
	return slices.ContainsFunc(tolerations, func(one any) bool {
		return at(one, "key") == key && (at(one, "operator") == "Exists" || at(one, "value") == value)
	})
}

// valuesOf reads an overlay over a release, with one text in it replaced.
func valuesOf(t *testing.T, base Release, file, old, replacement string) (Release, error) {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	if old != "" {
		require.Equal(t, 1, strings.Count(string(data), old), "%s: %q is there once", file, old)
	}
	var values map[string]any
	if err := yaml.UnmarshalStrict([]byte(strings.Replace(string(data), old, replacement, 1)), &values); err != nil {
		return base, err
	}
	base.Values = loader.MergeMaps(maps.Clone(base.Values), values)
	if name, ok := at(values, "model", "name").(string); ok {
		base.Name = name
	}
	return base, nil
}

// TestOverlaysKeepTheirPromises demands a promise of each overlay, and of each
// model of the retailer, looks whether
// it holds, and breaks the overlay in each of the ways that it lists: the chart
// must refuse that, or the promise must be broken. A check that passes whatever
// an overlay says would be none.
func TestOverlaysKeepTheirPromises(t *testing.T) {
	t.Parallel()
	shop := model
	shop.Namespace, shop.Values = "retail", nil
	for dir, set := range map[string]struct {
		base     Release
		promises map[string]promise
	}{
		"overlays/model":      {model, modelPromises(t)},
		"overlays/pilotlight": {pilotlight, pilotlightPromises(t)},
		"retail":              {shop, retailPromises(t)},
	} {
		files, err := filepath.Glob(filepath.Join(root, "deploy", dir, "*.yaml"))
		require.NoError(t, err)
		require.Len(t, files, len(set.promises), "each overlay of %s has a promise", dir)
		for _, file := range files {
			name := strings.TrimSuffix(filepath.Base(file), ".yaml")
			t.Run(dir+"/"+name, func(t *testing.T) {
				t.Parallel()
				p, ok := set.promises[name]
				require.True(t, ok, "no promise")
				keeps := func(old, replacement string) error {
					r, err := valuesOf(t, set.base, file, old, replacement)
					if err != nil {
						return err
					}
					docs, _, err := Render(r)
					if err != nil {
						return err
					}
					return p.holds(docs)
				}
				require.NoError(t, keeps("", ""))
				require.NotEmpty(t, p.breaks)
				for _, old := range sortedKeys(p.breaks) {
					err := keeps(old, p.breaks[old])
					require.Error(t, err, "%q for %q is noticed by nobody", p.breaks[old], old)
					t.Log(err)
				}
			})
		}
	}
}

// all are the faults of several checks.
func all(faults ...error) error { return errors.Join(faults...) }

// argsOf are the arguments of a container, on one line.
func argsOf(container any) string {
	var b strings.Builder
	args, _ := at(container, "args").([]any)
	for _, arg := range args {
		fmt.Fprint(&b, arg, " ")
	}
	return b.String()
}
