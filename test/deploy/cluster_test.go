package deploy

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/dynamic-resource-allocation/cel"
	"sigs.k8s.io/yaml"
)

// blueprint reads deploy/cluster, without the values of other projects' charts.
func blueprint(t *testing.T) []Document {
	t.Helper()
	all, err := ReadYAML(filepath.Join(root, "deploy", "cluster"))
	require.NoError(t, err)
	var docs []Document
	for _, d := range all {
		if !strings.Contains(d.Source, "cluster/values/") {
			docs = append(docs, d)
		}
	}
	return docs
}

func retail(t *testing.T) []namedCase {
	t.Helper()
	base := model
	base.Namespace, base.Values = "retail", nil
	return casesOf(t, base, filepath.Join(root, "deploy", "retail"))
}

func TestTheServerAcceptsTheBlueprint(t *testing.T) {
	t.Parallel()
	s := apiServer(t)
	s.accepted(t, "cluster", blueprint(t))
}

// dcgmMetrics are some that NVIDIA's exporter has by default.
var dcgmMetrics = []string{"DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_GPU_UTIL"}

func TestPodsOfTheBlueprint(t *testing.T) {
	t.Parallel()
	pods := 0
	for _, d := range blueprint(t) {
		pods += len(podTemplates(d.Object.Object))
		require.Empty(t, podProblems(d), d)
	}
	require.Equal(t, 5, pods)
	metrics := known(t)
	for _, name := range dcgmMetrics {
		metrics[name] = nil
	}
	exprs := 0
	for _, d := range blueprint(t) {
		for _, expr := range append(expressions(d.Object.Object), queries(d)...) {
			require.Empty(t, metrics.Problems(expr), d)
			exprs++
		}
	}
	require.Equal(t, 4, exprs)
}

// queries are those of Prometheus triggers.
func queries(d Document) (found []string) {
	triggers, _, _ := unstructured.NestedSlice(d.Object.Object, "spec", "triggers")
	for _, one := range triggers {
		if query, ok, _ := unstructured.NestedString(one.(map[string]any), "metadata", "query"); ok {
			found = append(found, query)
		}
	}
	return found
}

// pluginConfig is what NVIDIA's device plugin reads of a sharing configuration.
type pluginConfig struct {
	Version string `json:"version"`
	Sharing struct {
		TimeSlicing struct {
			RenameByDefault            bool `json:"renameByDefault"`
			FailRequestsGreaterThanOne bool `json:"failRequestsGreaterThanOne"`
			Resources                  []struct {
				Name     string `json:"name"`
				Replicas int    `json:"replicas"`
			} `json:"resources"`
		} `json:"timeSlicing"`
	} `json:"sharing"`
}

// readsAsPluginConfig reads a sharing configuration as the plugin does, and says
// what is wrong with it.
func readsAsPluginConfig(text string) error {
	var config pluginConfig
	if err := yaml.UnmarshalStrict([]byte(text), &config); err != nil {
		return fmt.Errorf("the plugin's configuration: %w", err)
	}
	slicing := config.Sharing.TimeSlicing
	if config.Version != "v1" || len(slicing.Resources) != 1 || slicing.Resources[0].Replicas != 4 {
		return fmt.Errorf("the plugin's configuration shares nothing by four: %+v", config)
	}
	return is("renameByDefault, since the overlay asks for nvidia.com/gpu.shared", slicing.RenameByDefault, true)
}

func device(kind, profile, memory string) cel.Device {
	d := cel.Device{
		Driver:     "gpu.nvidia.com",
		Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"type": {StringValue: &kind}},
		Capacity:   map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse(memory)}},
	}
	if profile != "" {
		d.Attributes["profile"] = resourcev1.DeviceAttribute{StringValue: &profile}
	}
	return d
}

// devices are as NVIDIA's driver describes them.
func someDevices() map[string]cel.Device {
	return map[string]cel.Device{
		"H100":    device("gpu", "", "81559Mi"), // "80 GB"
		"A100-40": device("gpu", "", "40960Mi"),
		"24GiB":   device("gpu", "", "24Gi"),
		"L4":      device("gpu", "", "23034Mi"),
		"MIG3g":   device("mig", "3g.40gb", "40448Mi"),
		"MIG1g":   device("mig", "1g.10gb", "9856Mi"),
		"Foreign": {Driver: "gpu.amd.com"},
	}
}

// selectTheirDevices evaluates the expressions of the DeviceClasses, as the
// scheduler does.
func selectTheirDevices(o objects) error {
	for name, want := range map[string][]string{"gpu-40g": {"A100-40", "H100"}, "gpu-80g": {"H100"}, "mig-3g-40gb": {"MIG3g"}} {
		expression := fmt.Sprint(at(o.one("DeviceClass", name), "spec", "selectors", 0, "cel", "expression"))
		got, err := selected(expression, someDevices())
		if err = all(err, is("what "+name+" selects", got, want)); err != nil {
			return err
		}
	}
	return nil
}

// The tutorial's expression is accepted, and ends the allocation.
func TestTheTutorialsExpressionBreaksAtAllocation(t *testing.T) {
	t.Parallel()
	naive := cel.GetCompiler(cel.Features{}).CompileCELExpression(`device.driver == "gpu.nvidia.com" && device.attributes["memory"].quantity >= "40Gi"`, cel.Options{})
	require.Nil(t, naive.Error, "the tutorial's expression compiles")
	_, _, err := naive.DeviceMatches(t.Context(), someDevices()["H100"])
	require.ErrorContains(t, err, "no such key", "and ends the allocation")
}

func selected(expression string, devices map[string]cel.Device) (names []string, err error) {
	compiled := cel.GetCompiler(cel.Features{}).CompileCELExpression(expression, cel.Options{})
	if compiled.Error != nil {
		return nil, compiled.Error
	}
	for _, name := range sortedKeys(devices) {
		match, _, err := compiled.DeviceMatches(context.Background(), devices[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if match {
			names = append(names, name)
		}
	}
	return names, nil
}
