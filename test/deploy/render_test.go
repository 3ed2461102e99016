package deploy

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write golden renders and READMEs anew")

// Keys and certificates that Helm makes differ each time.
var made = regexp.MustCompile(`(?m)^(  (?:ca\.crt|tls\.crt|tls\.key): )\S+$`)

func TestGoldenRenders(t *testing.T) {
	t.Parallel()
	want := map[string]bool{}
	for _, c := range renders(t) {
		got := made.ReplaceAllString(Text(c.docs), "${1}MADE") + "--- NOTES\n" + c.notes
		file := filepath.Join("testdata", "golden", c.name+".yaml")
		want[file] = true
		if *update {
			require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o750))
			require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
			continue
		}
		reviewed, err := os.ReadFile(file)
		require.NoError(t, err, "go test ./... -update writes it; review it")
		require.Empty(t, cmp.Diff(string(reviewed), got), "%s: go test ./... -update writes it anew; review the difference", c.name)
	}
	files, err := filepath.Glob("testdata/golden/*/*.yaml")
	require.NoError(t, err)
	for _, file := range files {
		require.True(t, want[file], "%s belongs to no case", file)
	}
}

func TestRefusedValues(t *testing.T) {
	t.Parallel()
	for _, base := range []Release{pilotlight, model} {
		for _, c := range casesOf(t, base, filepath.Join("testdata/refused/", base.Chart)) {
			t.Run(base.Chart+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				_, _, err := Render(c.Release)
				require.ErrorContains(t, err, c.wants)
				require.NotEmpty(t, c.wants, "the first line says what it wants")
			})
		}
	}
}

// What must hold whatever the values are.
func TestInvariants(t *testing.T) {
	t.Parallel()
	for _, c := range renders(t) {
		require.NotEmpty(t, strings.TrimSpace(c.notes), c.name)
		require.NotContains(t, c.notes, "<no value>", c.name)
		require.NotRegexp(t, `(?m)^\s*fallback:`, Text(c.docs), c.name)
		for _, d := range c.docs {
			require.Empty(t, podProblems(d), "%s: %s", c.name, d)
			if d.Object.GetKind() == "ScaledObject" {
				require.NotContains(t, workloadOf(t, c.docs, d).Object["spec"], "replicas", "%s: KEDA owns the replicas", c.name)
			}
		}
	}
}

// Helm merges maps, so an empty one takes nothing of a default away: values that
// say {} for one that is not empty mean something else than they say.
func TestNoValueIsClearedInVain(t *testing.T) {
	t.Parallel()
	for _, c := range allCases(t) {
		data, err := os.ReadFile(filepath.Join(root, "deploy", "charts", c.Chart, "values.yaml"))
		require.NoError(t, err)
		var defaults map[string]any
		require.NoError(t, yaml.UnmarshalStrict(data, &defaults))
		require.Empty(t, clearedInVain("", defaults, c.Values), c.name)
	}
	require.Equal(t, []string{".a.b"}, clearedInVain("", map[string]any{"a": map[string]any{"b": map[string]any{"c": 1}}}, map[string]any{"a": map[string]any{"b": map[string]any{}}}))
}

func clearedInVain(path string, defaults, values map[string]any) (found []string) {
	for _, key := range sortedKeys(values) {
		value, isMap := values[key].(map[string]any)
		def, hasDefault := defaults[key].(map[string]any)
		switch {
		case isMap && hasDefault && len(value) == 0 && len(def) > 0:
			found = append(found, path+"."+key)
		case isMap && hasDefault:
			found = append(found, clearedInVain(path+"."+key, def, value)...)
		}
	}
	return found
}
