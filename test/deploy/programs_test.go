package deploy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pilotlight-dev/pilotlight/internal/trigger"
)

var (
	helpFlag    = regexp.MustCompile(`(?m)^\s+(?:-\w, )?(--[a-z0-9-]+)(?: (\w+))?\s.*$`)
	helpDefault = regexp.MustCompile(`\(default "?([^")]+)"?\)$`)
)

// binDir holds what binaries has built, for TestMain to remove.
var binDir string

// binaries builds our programs and the engine that is played, once, in one
// command, and returns their folder.
var binaries = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "pilotlight-deploy-bin")
	if err != nil {
		return "", err
	}
	binDir = dir
	out, err := exec.Command("go", "build", "-C", root, "-o", dir+"/", "./cmd/...", "./test/e2e/fakevllm").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building the programs: %w: %s", err, out)
	}
	return dir, nil
})

// A program is one of ours as its --help describes it: flags and their
// defaults, "" where there is none.
type program map[string]string

var programs = sync.OnceValues(func() (map[string]program, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	found := map[string]program{}
	for _, name := range []string{"scaler", "activator", "fetcher init", "fetcher agent"} {
		binary, command, _ := strings.Cut(name, " ")
		out, err := exec.Command(filepath.Join(bin, "pilotlight-"+binary), append(strings.Fields(command), "--help")...).Output()
		if err != nil {
			return nil, fmt.Errorf("asking %s for its flags: %w", name, err)
		}
		p := program{}
		for _, m := range helpFlag.FindAllStringSubmatch(string(out), -1) {
			p[m[1]] = ""
			if def := helpDefault.FindStringSubmatch(strings.TrimSpace(m[0])); def != nil {
				p[m[1]] = def[1]
			}
		}
		found[name] = p
	}
	return found, nil
})

// ourContainers finds the containers that run our programs, with the name of
// the program as in programs and its flags.
func ourContainers(d Document) map[string][]string {
	found := map[string][]string{}
	for _, template := range podTemplates(d.Object.Object) {
		for _, list := range []string{"initContainers", "containers"} {
			containers, _, _ := unstructured.NestedSlice(template, "spec", list)
			for _, one := range containers {
				c := one.(map[string]any)
				image, args := c["image"].(string), []string(nil)
				if name := regexp.MustCompile(`pilotlight-(scaler|activator|fetcher)[:@]`).FindStringSubmatch(image); name != nil {
					args, _, _ = unstructured.NestedStringSlice(c, "args")
					key := name[1]
					if key == "fetcher" {
						key, args = key+" "+args[0], args[1:]
					}
					found[key] = append(found[key], args...)
				}
			}
		}
	}
	return found
}

func TestFlagsAreThoseOfThePrograms(t *testing.T) {
	t.Parallel()
	known, err := programs()
	require.NoError(t, err)
	require.Contains(t, known["scaler"], "--scrape-timeout")
	seen := map[string]bool{}
	for _, c := range renders(t) {
		for _, d := range c.docs {
			for name, args := range ourContainers(d) {
				seen[name] = true
				for _, arg := range args {
					flag, _, _ := strings.Cut(arg, "=")
					_, ok := known[name][flag]
					require.True(t, ok, "%s: %s: %s has no flag %s", c.name, d, name, flag)
				}
			}
		}
	}
	require.Len(t, seen, len(known), "every program is in some chart")
}

// notForCharts are flags that no value of a chart sets, and why.
var notForCharts = map[string]map[string]string{
	"scaler": {
		"--grpc-reflection": "for debugging: scaler.extraArgs",
		"--kubeconfig":      "a pod has a service account",
		"--state-file":      "a pod's state is in ConfigMaps",
		"--state-namespace": "the pod's own, where the chart gives the right to write",
		"--static-targets":  "without a cluster",
	},
	"activator": {
		"--kubeconfig":     "a pod has a service account",
		"--static-targets": "without a cluster",
	},
	"fetcher init": {
		"--dry-run":             "a person asks what would be done",
		"--reader":              "the default, the pod's UID, is handed down",
		"--termination-message": "the default is where the kubelet reads it",
		"--version-pin":         "the pod's annotation is handed down, so that the CLI can set it",
	},
	"fetcher agent": {
		"--error-file":          "for another program on the volume; /status says the same",
		"--exec":                "the image has no program to call; onChange webhook reaches one",
		"--reader":              "the default, the pod's UID, is handed down",
		"--termination-message": "the default is where the kubelet reads it",
		"--touch-file":          "for another program on the volume",
		"--version-pin":         "the pod's annotation is handed down, so that the CLI can set it",
	},
}

// Each flag of a program is set by a chart, by itself or when a value says so
// (some case of this folder has it), or is one that no chart should set.
func TestEveryFlagHasAValue(t *testing.T) {
	t.Parallel()
	known, err := programs()
	require.NoError(t, err)
	set := map[string]map[string]bool{}
	for _, c := range allCases(t) {
		for _, part := range []string{"scaler", "activator", "fetcher"} {
			if values, ok := c.Values[part].(map[string]any); ok {
				delete(values, "extraArgs") // a flag that is given there has no value
			}
		}
		docs, _, err := Render(c.Release)
		require.NoError(t, err, c.name)
		for _, d := range docs {
			for name, args := range ourContainers(d) {
				if set[name] == nil {
					set[name] = map[string]bool{}
				}
				for _, arg := range args {
					flag, _, _ := strings.Cut(arg, "=")
					set[name][flag] = true
				}
			}
		}
	}
	for name, flags := range known {
		for flag := range flags {
			why, left := notForCharts[name][flag]
			switch {
			case flag == "--help" || flag == "--version":
			case left:
				require.False(t, set[name][flag], "%s %s is set, although %s", name, flag, why)
			default:
				require.True(t, set[name][flag], "%s %s: no case of testdata/values sets it: give it a value in the chart, or say in notForCharts why not", name, flag)
			}
		}
		for flag := range notForCharts[name] {
			require.Contains(t, flags, flag, name)
		}
	}
}

func TestDefaultsAreThoseOfTheCode(t *testing.T) {
	t.Parallel()
	known, err := programs()
	require.NoError(t, err)
	compared := 0
	for _, release := range []Release{pilotlight, model} {
		docs, _, err := Render(release)
		require.NoError(t, err)
		for _, d := range docs {
			for name, args := range ourContainers(d) {
				for _, arg := range args {
					flag, value, given := strings.Cut(arg, "=")
					if def := known[name][flag]; given && def != "" && !strings.Contains(def, " ") { // prose is no value
						require.True(t, same(def, value), "%s %s: the chart says %s, the program %s", name, flag, value, def)
						compared++
					}
				}
			}
		}
	}
	require.Greater(t, compared, 25, "defaults were compared")
}

// A pod of the proxy may take what its flags let the program take, and the two
// seconds that requests get to be told that they are cut.
func TestProxiesHaveTimeToLeave(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, c := range renders(t) {
		for _, d := range c.docs {
			given := map[string]time.Duration{}
			for _, arg := range ourContainers(d)["activator"] {
				if flag, value, ok := strings.Cut(arg, "="); ok && slices.Contains([]string{"--shutdown-delay", "--grace", "--drain-hold"}, flag) {
					length, err := time.ParseDuration(value)
					require.NoError(t, err, arg)
					given[flag] = length
				}
			}
			if len(given) == 0 {
				continue
			}
			seen++
			grace, _, err := unstructured.NestedInt64(d.Object.Object, "spec", "template", "spec", "terminationGracePeriodSeconds")
			require.NoError(t, err)
			require.GreaterOrEqual(t, time.Duration(grace)*time.Second, given["--shutdown-delay"]+given["--grace"]+2*time.Second, c.name)
			require.LessOrEqual(t, given["--drain-hold"], given["--grace"], c.name)
		}
	}
	require.Greater(t, seen, 5)
}

// same compares values of flags: 5m is 5m0s, and [*] the list of *.
func same(a, b string) bool {
	a = strings.Trim(a, "[]")
	x, errX := time.ParseDuration(a)
	y, errY := time.ParseDuration(b)
	return a == b || errX == nil && errY == nil && x == y
}

func TestTriggersAreOnesThatTheScalerTakes(t *testing.T) {
	t.Parallel()
	for _, c := range renders(t) {
		for _, d := range c.docs {
			if d.Object.GetKind() != "ScaledObject" {
				continue
			}
			triggers, _, err := unstructured.NestedSlice(d.Object.Object, "spec", "triggers")
			require.NoError(t, err)
			metadata, _, err := unstructured.NestedStringMap(triggers[0].(map[string]any), "metadata")
			require.NoError(t, err, c.name)
			got, err := trigger.Parse(metadata)
			require.NoError(t, err, c.name)
			least, _, err := unstructured.NestedFieldNoCopy(d.Object.Object, "spec", "minReplicaCount")
			require.NoError(t, err)
			require.NoError(t, got.CheckBounds(trigger.Bounds{MinReplicas: int(least.(int64)), SoleTrigger: len(triggers) == 1}), c.name)
			if c.name == "vllm-model/defaults" {
				want, err := trigger.Parse(map[string]string{"targetRequests": metadata["targetRequests"], "modelName": metadata["modelName"]})
				require.NoError(t, err)
				require.Equal(t, want, got, "the chart's defaults are the code's")
			}
		}
	}
}
