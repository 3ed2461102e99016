package deploy

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// modelWith renders the model's chart with values of one's own.
func modelWith(t *testing.T, values map[string]any) []Document {
	t.Helper()
	r := model
	r.Values = loader.MergeMaps(maps.Clone(model.Values), values)
	docs, _, err := Render(r)
	require.NoError(t, err)
	return docs
}

// admitted gives a pod what Kueue does when it admits it to a flavor.
func admitted(t *testing.T, flavor string) func(*corev1.Pod) {
	t.Helper()
	spec, _, err := unstructured.NestedMap(document(t, "ResourceFlavor", flavor).Object.Object, "spec")
	require.NoError(t, err)
	var f struct {
		NodeLabels  map[string]string   `json:"nodeLabels"`
		Tolerations []corev1.Toleration `json:"tolerations"`
	}
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &f))
	return func(p *corev1.Pod) {
		maps.Copy(p.Spec.NodeSelector, f.NodeLabels)
		p.Spec.Tolerations = append(p.Spec.Tolerations, f.Tolerations...)
	}
}

// What deploy/cluster/priorities.yaml promises: a model displaces training, and
// neither training nor batch inference displaces anybody. They wait.
func TestInferenceDisplacesTraining(t *testing.T) {
	t.Parallel()
	p := newPool(t, "displaced")
	p.priorities()
	p.node("a", "4", map[string]string{"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, gpuTaint)
	finetune := document(t, "Job", "llama-finetune")
	p.start("training", finetune, admitted(t, "h100")) // all four GPUs
	require.Equal(t, map[string]int{"a": 1}, p.placed("training", 1))

	p.start("batch", document(t, "ScaledJob", "rabbitmq-jobs"), nil)
	require.Contains(t, p.waits("batch"), "not eligible due to preemptionPolicy=Never")
	require.Nil(t, p.pods("training")[0].DeletionTimestamp, "batch inference displaces nobody, though its priority is higher")

	p.deploy(modelWith(t, map[string]any{"priorityClassName": "inference-high"}), 1)
	require.Eventually(t, func() bool { return p.pods("training")[0].DeletionTimestamp != nil }, time.Minute, 100*time.Millisecond, "training is told to go: %s", p.why("llama"))
	reasons := map[corev1.PodConditionType]string{}
	for _, c := range p.pods("training")[0].Status.Conditions {
		reasons[c.Type] = c.Reason
	}
	require.Equal(t, corev1.PodReasonPreemptionByScheduler, reasons[corev1.DisruptionTarget], "which the Job's podFailurePolicy does not count")
	p.gone("training")
	require.Equal(t, map[string]int{"a": 1}, p.placed("llama", 1))
	require.Equal(t, map[string]int{"a": 1}, p.placed("batch", 1), "there is room now")

	p.start("again", finetune, admitted(t, "h100"))
	p.waits("again")
	require.Nil(t, p.pods("llama")[0].DeletionTimestamp, "training displaces nobody")
}

// Training in any namespace keeps a model off a node, and a model keeps
// training off: avoidPods.
func TestModelsAndTrainingKeepApart(t *testing.T) {
	t.Parallel()
	p := newPool(t, "apart")
	p.node("a", "8", nil, gpuTaint)
	p.node("b", "8", nil, gpuTaint)
	elsewhere := newPool(t, "apart-training")
	training := func(in *pool, name, node string) {
		pod := aPod(name, "1")
		pod.Labels = map[string]string{"workload-type": "training"}
		pod.Spec.Tolerations = []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists}}
		in.own(&pod.Spec)
		pod.Spec.NodeSelector = map[string]string{poolLabel: p.name}
		if node != "" {
			pod.Spec.NodeSelector[corev1.LabelHostname] = p.name + "-" + node
		}
		_, err := p.Client.CoreV1().Pods(in.name).Create(t.Context(), pod, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	training(elsewhere, "first", "a")
	require.Len(t, elsewhere.placed("first", 1), 1)
	p.deploy(modelWith(t, nil), 3)
	require.Equal(t, map[string]int{"b": 3}, p.placed("llama", 3), "all of them beside each other rather than beside training")
	training(elsewhere, "second", "b")
	require.Contains(t, elsewhere.waits("second"), "didn't satisfy existing pods anti-affinity rules")
}

// Replicas spread over zones, but a zone that has no node holds none of them up.
func TestModelsSpreadOverZones(t *testing.T) {
	t.Parallel()
	p := newPool(t, "zones")
	for _, zone := range []string{"a", "b", "c"} {
		p.node(zone, "8", map[string]string{corev1.LabelTopologyZone: zone}, gpuTaint)
	}
	p.deploy(modelWith(t, nil), 6)
	require.Equal(t, map[string]int{"a": 2, "b": 2, "c": 2}, p.placed("llama", 6))

	one := newPool(t, "one-zone")
	one.node("a", "8", map[string]string{corev1.LabelTopologyZone: "a"}, gpuTaint)
	one.node("full", "", map[string]string{corev1.LabelTopologyZone: "b"}, gpuTaint)
	one.deploy(modelWith(t, nil), 4)
	require.Equal(t, map[string]int{"a": 4}, one.placed("llama", 4))
}

// pools reads the table of node pools in deploy/cluster/README.md.
func pools(t *testing.T, p *pool) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "deploy", "cluster", "README.md"))
	require.NoError(t, err)
	rows := regexp.MustCompile(`(?m)^\| (system|cpu|gpu|spot) \|([^|]*)\|([^|]*)\|`).FindAllStringSubmatch(string(page), -1)
	require.Len(t, rows, 4)
	for _, row := range rows {
		labels := map[string]string{}
		for _, m := range regexp.MustCompile("`([^=`]+)=([^`]+)`").FindAllStringSubmatch(row[2], -1) {
			labels[m[1]] = m[2]
		}
		require.NotEmpty(t, labels)
		var taints []corev1.Taint
		for _, m := range regexp.MustCompile("`([^=:`]+)(?:=([^:`]+))?:(\\w+)`").FindAllStringSubmatch(row[3], -1) {
			taints = append(taints, corev1.Taint{Key: m[1], Value: m[2], Effect: corev1.TaintEffect(m[3])})
		}
		gpus := ""
		switch row[1] {
		case "gpu":
			gpus, labels["nvidia.com/gpu.product"] = "8", "NVIDIA-L4"
		case "spot":
			gpus, labels["nvidia.com/gpu.product"] = "8", "NVIDIA-A100-SXM4-80GB"
		}
		p.node(row[1], gpus, labels, taints...)
	}
}

// The NodePools of Karpenter have the labels and taints of the table.
func TestNodePoolsAreThoseOfTheTable(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "deploy", "cluster", "README.md"))
	require.NoError(t, err)
	for _, name := range []string{"cpu", "gpu", "spot"} {
		template, _, err := unstructured.NestedMap(document(t, "NodePool", name).Object.Object, "spec", "template")
		require.NoError(t, err)
		labels, _, err := unstructured.NestedStringMap(template, "metadata", "labels")
		require.NoError(t, err)
		var has []string
		for _, key := range sortedKeys(labels) {
			has = append(has, "`"+key+"="+labels[key]+"`")
		}
		slices.SortFunc(has, func(a, b string) int { return strings.Compare(b, a) }) // the pool first, as in the table
		taints, _, err := unstructured.NestedSlice(template, "spec", "taints")
		require.NoError(t, err)
		var repels []string
		for _, one := range taints {
			taint := one.(map[string]any)
			text := taint["key"].(string)
			if value, ok := taint["value"]; ok {
				text += "=" + value.(string)
			}
			repels = append(repels, "`"+text+":"+taint["effect"].(string)+"`")
		}
		row := strings.Join([]string{"", name, strings.Join(has, ", "), strings.Join(repels, ", "), ""}, " | ")
		require.Contains(t, strings.ReplaceAll(string(page), "|  |", "| |"), strings.ReplaceAll(strings.TrimSpace(row), "|  |", "| |"))
	}
}

// Everything that this repository ships for a cluster lands on the pool that
// the blueprint means it for, and on spot nodes only what says that it may.
func TestEverythingLandsOnItsPool(t *testing.T) {
	t.Parallel()
	p := newPool(t, "pools")
	p.priorities()
	pools(t, p)
	overlay := func(name string) []Document {
		i := slices.IndexFunc(renders(t), func(r rendered) bool { return r.name == name })
		require.GreaterOrEqual(t, i, 0, name)
		var docs []Document
		for _, d := range renders(t)[i].docs {
			if d.Object.GetKind() == "Deployment" && !strings.HasSuffix(d.Object.GetName(), "-writer") {
				d.Object = *d.Object.DeepCopy()
				d.Object.SetName(strings.ReplaceAll(name, "/", "-") + "-" + d.Object.GetName())
				docs = append(docs, d)
			}
		}
		require.NotEmpty(t, docs, name)
		return docs
	}
	for name, want := range map[string]string{
		"vllm-model/defaults":         "gpu",
		"vllm-model/overlay-spot":     "spot",
		"vllm-model/overlay-cpu-int8": "cpu",
		"retail/assistant":            "gpu",
		"retail/classifier":           "cpu",
		"retail/recommender":          "spot",
	} {
		p.deploy(overlay(name), 1)
		require.Equal(t, map[string]int{want: 1}, p.placed(strings.ReplaceAll(name, "/", "-"), 1), name)
	}
	p.deploy(overlay("pilotlight/defaults"), 2)
	for node := range p.placed("pilotlight-defaults", 4) {
		require.Contains(t, []string{"system", "cpu"}, node, "Pilotlight needs no GPU")
	}
	for _, name := range []string{"rabbitmq-jobs", "sqs-jobs"} {
		p.start(name, document(t, "ScaledJob", name), nil)
		require.Equal(t, map[string]int{"gpu": 1}, p.placed(name, 1), name)
	}
	p.start("kafka", document(t, "Deployment", "kafka-consumers"), nil)
	require.Equal(t, map[string]int{"gpu": 1}, p.placed("kafka", 1))

	finetune := document(t, "Job", "llama-finetune")
	p.start("unadmitted", finetune, nil)
	require.Contains(t, p.waits("unadmitted"), "untolerated taint", "training has no node that Kueue has not given it")
	p.gone("unadmitted")
	p.start("training", finetune, admitted(t, "a100-spot"))
	require.Contains(t, p.waits("training"), "anti-affinity", "a model that avoids training is on the spot node")
	p.scaled(t, p.name, "vllm-model-overlay-spot-llama", 0)
	require.Eventually(t, func() bool {
		left := p.pods("vllm-model-overlay-spot")
		for _, one := range left {
			p.gone(one.Name)
		}
		return len(left) == 0
	}, time.Minute, 100*time.Millisecond)
	require.Equal(t, map[string]int{"spot": 1}, p.placed("training", 1))
}
