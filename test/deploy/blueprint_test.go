package deploy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// blueprintChecks are what the files of deploy/cluster promise, each with edits
// that must be noticed: by its check, or by the API server.
func blueprintChecks() map[string]promise {
	return map[string]promise{
		"priorities.yaml": {prioritiesHold, map[string]string{
			"name: training-low}\nvalue: -100\npreemptionPolicy: Never": "name: training-low}\nvalue: -100", "value: 100000": "value: 100", "value: 1000\n": "value: 1000000\n", "name: batch-inference}\nvalue: 1000\npreemptionPolicy: Never": "name: batch-inference}\nvalue: 1000\npreemptionPolicy: Maybe",
		}},
		"policy.yaml": {policyHolds, map[string]string{
			`requests.nvidia.com/gpu: "8"`: `limits.nvidia.com/gpu: "8"`, "gpu-40g.deviceclass": "gpu-40.deviceclass", "default: {memory: 512Mi}": "default: {memory: 512Mi, nvidia.com/gpu: 1}", "limits.memory: 2Ti": "limit.memory: 2Ti", "type: Container": "type: Containers", "defaultRequest: {cpu: 100m": "defaultRequest: {cpus: 100m",
		}},
		"kueue.yaml": {kueueHolds, map[string]string{
			"spec: {clusterQueue: nlp}": "spec: {clusterQueue: nlps}", "spec: {clusterQueue: vision}": "spec: {clusterQueueName: vision}", "name: a100-spot\n          resources": "name: a100\n          resources", "cohortName: gpu\n  queueing": "cohortName: gpus\n  queueing",
			"            - {name: cpu, nominalQuota: 512}\n": "", "value: 100\n": "value: ten\n", "value: spot, effect: NoSchedule": "value: sport, effect: NoSchedule",
		}},
		"training.yaml": {trainingHolds, map[string]string{
			"queue-name: team, kueue": "queue-name: teams, kueue", "priority-class: training-low": "priority-class: training", "suspend: true\n  completions": "suspend: false\n  completions", "suspend: true\n  failurePolicy": "suspended: true\n  failurePolicy", "type: DisruptionTarget": "type: DisruptedTarget",
			"      restartPolicy: Never\n      priorityClassName: training-low": "      priorityClassName: training-low", "claimName: checkpoints}\n---": "claimName: checkpoint}\n---", "metadata: {name: llama-pretrain, namespace: nlp-team, labels: {kueue.x-k8s.io/queue-name: team}}": "metadata: {name: llama-pretrain, namespace: mlops, labels: {kueue.x-k8s.io/queue-name: team}}",
		}},
		"batch.yaml": {batchHolds, map[string]string{
			"authenticationRef: {name: rabbitmq}": "authenticationRef: {name: rabbit}", "queueLength: ": "queue_length: ", "consumerGroup: inference": "group: inference", "scaleTargetRef: {name: kafka-consumers}": "scaleTargetRef: {name: consumers}",
			"podIdentity: {provider: aws}": "podIdentity: {provider: amazon}", "{mode: QueueLength, ": "{mode: Length, ", "minReplicaCount: 0\n  maxReplicaCount: 8\n  pollingInterval: 15\n  success": "minReplicas: 0\n  maxReplicaCount: 8\n  pollingInterval: 15\n  success", "strategy: accurate": "strategy: exact",
		}},
		"hpa.yaml": {hpaHolds, map[string]string{
			"name: vllm_requests_per_second": "name: requests_per_second", "name: dcgm_gpu_utilization": "name: gpu_utilization", `ignoreNullValues: "false"`: `ignoreNullValues: "true"`, `activationThreshold: "1000000"`: `activationThreshold: "0"`, "minReplicas: 1\n  maxReplicas: 4\n  metrics:\n    - type: Pods\n      pods: {metric: {name: vllm": "minReplicas: 0\n  maxReplicas: 4\n  metrics:\n    - type: Pods\n      pods: {metric: {name: vllm",
			"num_requests_running{namespace=\"ai\",model_name=\"llama\"}": "num_requests_waiting{namespace=\"ai\",model_name=\"llama\"}", "averageValue: \"80\"": "average: \"80\"", "modelName: beside": "model: beside",
		}},
		"monitoring.yaml": {monitoringHolds, map[string]string{
			"app: nvidia-dcgm-exporter": "app: dcgm", "port: gpu-metrics": "port: metrics", "honorLabels: true": "honorLabels: false", "DCGM_FI_DEV_XID_ERRORS": "DCGM_XID_ERRORS", "kind: PrometheusRule": "kind: PrometheusRules", "for: 1m\n": "for: a minute\n",
		}},
		"time-slicing.yaml": {slicingHolds, map[string]string{
			"replicas: 4": "replicas: four", "renameByDefault: true": "renameByDefault: false", "timeSlicing:": "timeSlices:", "metadata: {name: time-slicing, namespace: gpu-operator}": "metadata: {name: time-slicing, namespace: mlops}",
		}},
		"dra.yaml": {classesHold, map[string]string{
			`quantity("39Gi")`: `quantity("41Gi")`, `quantity("79Gi")`: `quantity("80Gi")`, `profile == "3g.40gb"`: `profile = "3g.40gb"`, "extendedResourceName: nvidia.com/mig-3g.40gb": "extendedResourceNames: nvidia.com/mig-3g.40gb",
		}},
		"nodes-karpenter.yaml": {nodesHold, map[string]string{
			"name: gpu}\n      expireAfter: Never # a": "name: gpus}\n      expireAfter: Never # a", "values: [spot]": "values: [on-demand]", "taints: [{key: nvidia.com/gpu, effect: NoSchedule}]": "taints: []", "consolidationPolicy: WhenEmpty, consolidateAfter: 2m": "consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: 2m", "instanceStorePolicy: RAID0": "instanceStorePolicy: RAID1",
			"amiSelectorTerms: [{alias: al2023@latest}] # with": "amiSelector: [{alias: al2023@latest}] # with", "operator: In, values: [l4]}": "operator: Is, values: [l4]}",
		}},
	}
}

// TestTheBlueprintKeepsItsPromises looks whether each file of the blueprint does
// what it is for, and breaks it in each of the ways above: the check or the API
// server must notice. Without a server, what only that would notice is left out.
func TestTheBlueprintKeepsItsPromises(t *testing.T) {
	t.Parallel()
	var s *server
	if os.Getenv("PILOTLIGHT_E2E_BIN") != "" {
		s = apiServer(t)
	}
	checks := blueprintChecks()
	files, err := filepath.Glob(filepath.Join(root, "deploy", "cluster", "*.yaml"))
	require.NoError(t, err)
	require.Len(t, files, len(checks), "each file has a check")
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check, ok := checks[name]
			require.True(t, ok, "no check")
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			others := slices.DeleteFunc(blueprint(t), func(d Document) bool { return filepath.Base(d.Source) == name })
			require.NoError(t, check.holds(append(others, mustSplit(t, file, string(text))...)))
			for _, old := range sortedKeys(check.breaks) {
				require.Equal(t, 1, strings.Count(string(text), old), "%q is there once", old)
				docs, err := Split(file, strings.Replace(string(text), old, check.breaks[old], 1))
				if err == nil {
					err = check.holds(append(slices.Clone(others), docs...))
				}
				for _, d := range docs {
					if s != nil && err == nil {
						_, err = s.dryRun(t.Context(), d)
					}
				}
				if s == nil && err == nil {
					continue
				}
				require.Error(t, err, "%q for %q is noticed by nobody", check.breaks[old], old)
				t.Log(err)
			}
		})
	}
}

func mustSplit(t *testing.T, source, text string) objects {
	t.Helper()
	docs, err := Split(source, text)
	require.NoError(t, err)
	return docs
}

// every are the objects of a kind.
func (o objects) every(kind string) (found []map[string]any) {
	for _, d := range o {
		if d.Object.GetKind() == kind {
			found = append(found, d.Object.Object)
		}
	}
	return found
}

func nameOf(obj any) string { return fmt.Sprint(at(obj, "metadata", "name")) }

func prioritiesHold(o objects) error {
	value := func(name string) int64 {
		n, _ := at(o.one("PriorityClass", name), "value").(int64)
		return n
	}
	inference, batch, training := value("inference-high"), value("batch-inference"), value("training-low")
	if inference > 1e9 || inference <= batch || batch <= training || training >= 0 {
		return errors.New("inference, batch inference and training are not in this order")
	}
	return all(is("training", at(o.one("PriorityClass", "training-low"), "preemptionPolicy"), "Never"), is("batch", at(o.one("PriorityClass", "batch-inference"), "preemptionPolicy"), "Never"))
}

func policyHolds(o objects) error {
	hard, _ := at(o.one("ResourceQuota"), "spec", "hard").(map[string]any)
	for _, key := range []string{"requests.nvidia.com/gpu", "limits.memory", "requests.cpu"} {
		if hard[key] == nil {
			return fmt.Errorf("the quota has no %s", key)
		}
	}
	for key := range hard {
		class, ok := strings.CutSuffix(key, ".deviceclass.resource.k8s.io/devices")
		if ok && o.one("DeviceClass", class) == nil {
			return fmt.Errorf("the quota counts devices of a class %s, which nobody has", class)
		}
	}
	if strings.Contains(fmt.Sprint(o.one("LimitRange")), "gpu") {
		return errors.New("a LimitRange with GPUs hands them out")
	}
	return all(is("the default limit", at(o.one("LimitRange"), "spec", "limits", 0, "default", "memory"), "512Mi"), is("the default request", at(o.one("LimitRange"), "spec", "limits", 0, "defaultRequest", "cpu"), "100m"))
}

func kueueHolds(o objects) error {
	for _, queue := range o.every("LocalQueue") {
		if o.one("ClusterQueue", fmt.Sprint(at(queue, "spec", "clusterQueue"))) == nil {
			return fmt.Errorf("the LocalQueue of %v leads to no ClusterQueue", at(queue, "metadata", "namespace"))
		}
	}
	for _, queue := range o.every("ClusterQueue") {
		if err := is("the cohort of "+nameOf(queue), at(queue, "spec", "cohortName"), "gpu"); err != nil {
			return err
		}
		flavors, _ := at(queue, "spec", "resourceGroups", 0, "flavors").([]any)
		for _, flavor := range flavors {
			if o.one("ResourceFlavor", fmt.Sprint(at(flavor, "name"))) == nil {
				return fmt.Errorf("%s uses a flavor %v that is not there", nameOf(queue), at(flavor, "name"))
			}
		}
	}
	// What a flavor's nodes repel, its pods must tolerate.
	return is("the spot flavor's toleration", at(o.one("ResourceFlavor", "a100-spot"), "spec", "tolerations", 1, "value"), at(o.one("ResourceFlavor", "a100-spot"), "spec", "nodeLabels", "pilotlight.dev/capacity"))
}

func trainingHolds(o objects) error {
	for _, kind := range []string{"Job", "JobSet"} {
		job := o.one(kind)
		ns := at(job, "metadata", "namespace")
		if !slices.ContainsFunc(o.every("LocalQueue"), func(q map[string]any) bool {
			return nameOf(q) == at(job, "metadata", "labels", "kueue.x-k8s.io/queue-name") && at(q, "metadata", "namespace") == ns
		}) {
			return fmt.Errorf("the %s waits in no queue of its namespace", kind)
		}
		if err := is(kind+" suspended", at(job, "spec", "suspend"), true); err != nil {
			return err
		}
		for _, template := range podTemplates(job) {
			if o.one("PriorityClass", fmt.Sprint(at(template, "spec", "priorityClassName"))) == nil {
				return fmt.Errorf("the %s's priority class is not there", kind)
			}
			if err := all(is("the label that models avoid", at(template, "metadata", "labels", "workload-type"), "training"), is("the claim", at(template, "spec", "volumes", 0, "persistentVolumeClaim", "claimName"), nameOf(o.one("PersistentVolumeClaim")))); err != nil {
				return err
			}
		}
	}
	class := fmt.Sprint(at(o.one("Job"), "metadata", "labels", "kueue.x-k8s.io/priority-class"))
	return all(is("the WorkloadPriorityClass", nameOf(o.one("WorkloadPriorityClass")), class),
		is("what is no failure", at(o.one("Job"), "spec", "podFailurePolicy", "rules", 0, "onPodConditions", 0, "type"), "DisruptionTarget"))
}

// keys that KEDA's scalers need of a trigger; their values are opaque to the API
// server.
var triggerKeys = map[string][]string{
	"rabbitmq":      {"mode", "queueName", "value"},
	"aws-sqs-queue": {"awsRegion", "queueLength", "queueURL"},
	"kafka":         {"bootstrapServers", "consumerGroup", "lagThreshold", "topic"},
}

func batchHolds(o objects) error {
	seen := map[string]bool{}
	for _, obj := range append(o.every("ScaledJob"), o.every("ScaledObject")...) {
		kind := fmt.Sprint(at(obj, "spec", "triggers", 0, "type"))
		keys, ok := triggerKeys[kind]
		if !ok {
			continue // of hpa.yaml
		}
		seen[kind] = true
		for _, key := range keys {
			if at(obj, "spec", "triggers", 0, "metadata", key) == nil {
				return fmt.Errorf("%s: %s needs %s", nameOf(obj), kind, key)
			}
		}
		if ref := at(obj, "spec", "triggers", 0, "authenticationRef", "name"); ref != nil && o.one("TriggerAuthentication", fmt.Sprint(ref)) == nil {
			return fmt.Errorf("%s: no TriggerAuthentication %v", nameOf(obj), ref)
		}
		if ref := at(obj, "spec", "scaleTargetRef", "name"); ref != nil && o.one("Deployment", fmt.Sprint(ref)) == nil {
			return fmt.Errorf("%s scales %v, which is not there", nameOf(obj), ref)
		}
		if err := is("minReplicaCount of "+nameOf(obj), at(obj, "spec", "minReplicaCount"), 0); err != nil {
			return err
		}
	}
	return all(is("kinds of queues", sortedKeys(seen), sortedKeys(triggerKeys)), is("RabbitMQ's mode", at(o.one("ScaledJob", "rabbitmq-jobs"), "spec", "triggers", 0, "metadata", "mode"), "QueueLength"))
}

// hpaHolds: each metric of an HPA is one that the adapter's values make, and what
// KEDA asks Prometheus cannot stop running requests or wake a sleeping model.
func hpaHolds(o objects) error {
	adapter, err := os.ReadFile(filepath.Join(root, "deploy", "cluster", "values", "prometheus-adapter.yaml"))
	if err != nil {
		return err
	}
	for _, hpa := range o.every("HorizontalPodAutoscaler") {
		metric := fmt.Sprint(at(hpa, "spec", "metrics", 0, "pods", "metric", "name"))
		if !strings.Contains(string(adapter), "name: {as: "+metric+"}") {
			return fmt.Errorf("%s: no adapter makes %s", nameOf(hpa), metric)
		}
	}
	query := fmt.Sprint(at(o.one("ScaledObject", "by-prometheus"), "spec", "triggers", 0, "metadata", "query"))
	for _, part := range []string{"num_requests_waiting", "num_requests_running"} {
		if !strings.Contains(query, part) {
			return fmt.Errorf("by-prometheus does not count %s", part)
		}
	}
	beside := at(o.one("ScaledObject", "beside-pilotlight"), "spec", "triggers")
	return all(is("ignoreNullValues", at(o.one("ScaledObject", "by-prometheus"), "spec", "triggers", 0, "metadata", "ignoreNullValues"), "false"),
		is("our trigger's model", at(beside, 0, "metadata", "modelName"), "beside"), is("activationThreshold", at(beside, 1, "metadata", "activationThreshold"), "1000000"),
		is("the least replicas of an HPA", at(o.one("HorizontalPodAutoscaler", "by-requests"), "spec", "minReplicas"), 1))
}

func monitoringHolds(o objects) error {
	monitor := o.one("ServiceMonitor", "dcgm-exporter")
	for _, d := range o {
		for _, expr := range expressions(d.Object.Object) {
			for _, name := range regexp.MustCompile(`DCGM_\w+`).FindAllString(expr, -1) {
				if !slices.Contains(dcgmMetrics, name) {
					return fmt.Errorf("DCGM's exporter has no %s by default", name)
				}
			}
		}
	}
	if o.one("PrometheusRule", "gpu") == nil {
		return errors.New("no alerts")
	}
	return all(is("the exporter's label", at(monitor, "spec", "selector", "matchLabels", "app"), "nvidia-dcgm-exporter"), is("its port", at(monitor, "spec", "endpoints", 0, "port"), "gpu-metrics"),
		is("honorLabels", at(monitor, "spec", "endpoints", 0, "honorLabels"), true))
}

// slicingHolds compares the plugin's configuration with the values that name it.
func slicingHolds(o objects) error {
	config := o.one("ConfigMap", "time-slicing")
	text, _, _ := unstructured.NestedString(config, "data", "any")
	if err := readsAsPluginConfig(text); err != nil {
		return err
	}
	return is("its namespace", at(config, "metadata", "namespace"), "gpu-operator")
}

func classesHold(o objects) error {
	return all(selectTheirDevices(o), is("the extended resource", at(o.one("DeviceClass", "mig-3g-40gb"), "spec", "extendedResourceName"), "nvidia.com/mig-3g.40gb"))
}

// nodesHold: GPU pools are repelled by their taint, keep nodes that serve, and
// are of a class that is there.
func nodesHold(o objects) error {
	for _, name := range []string{"cpu", "gpu", "spot"} {
		nodes := o.one("NodePool", name)
		if o.one("EC2NodeClass", fmt.Sprint(at(nodes, "spec", "template", "spec", "nodeClassRef", "name"))) == nil {
			return fmt.Errorf("%s: no EC2NodeClass %v", name, at(nodes, "spec", "template", "spec", "nodeClassRef", "name"))
		}
		want := map[string]string{"spot": "spot"}[name]
		if want == "" {
			want = "on-demand"
		}
		if err := is("the capacity of "+name, at(nodes, "spec", "template", "spec", "requirements", 0, "values", 0), want); err != nil {
			return err
		}
		if name == "cpu" {
			continue
		}
		if err := all(is("the taint of "+name, at(nodes, "spec", "template", "spec", "taints", 0, "key"), "nvidia.com/gpu"), is("what ends nodes of "+name, at(nodes, "spec", "disruption", "consolidationPolicy"), "WhenEmpty")); err != nil {
			return err
		}
	}
	return nil
}

// TestValuesOfOthersCharts reads what we give NVIDIA's chart and Prometheus'
// adapter: no server knows them.
func TestValuesOfOthersCharts(t *testing.T) {
	t.Parallel()
	operator := operatorValues(t)
	require.ElementsMatch(t, []string{"daemonsets", "mig", "devicePlugin", "dcgmExporter"}, sortedKeys(operator))
	require.Equal(t, "nvidia.com/gpu", at(operator, "daemonsets", "tolerations", 0, "key"), "or no GPU is ever advertised")
	require.Equal(t, "mixed", at(operator, "mig", "strategy"))
	require.Equal(t, true, at(operator, "dcgmExporter", "enabled"))
	slicing := document(t, "ConfigMap", "time-slicing")
	require.Equal(t, slicing.Object.GetName(), at(operator, "devicePlugin", "config", "name"))
	require.Equal(t, "gpu-operator", slicing.Object.GetNamespace(), "the operator's own")
	require.Empty(t, at(operator, "devicePlugin", "config", "default"), "a node asks for it")

	docs, err := ReadYAML(filepath.Join(root, "deploy", "cluster", "values", "prometheus-adapter.yaml"))
	if err != nil || len(docs) == 0 {
		docs, err = ReadYAML(filepath.Join(root, "deploy", "cluster", "values"))
	}
	require.NoError(t, err)
	metrics := known(t)
	for _, name := range dcgmMetrics {
		metrics[name] = nil
	}
	rules := 0
	for _, d := range docs {
		list, _ := at(d.Object.Object, "rules", "custom").([]any)
		for _, rule := range list {
			series := fmt.Sprint(at(rule, "seriesQuery"))
			require.Empty(t, metrics.Problems(series), series)
			filled := strings.NewReplacer("<<.Series>>", strings.SplitN(series, "{", 2)[0], "<<.LabelMatchers>>", `namespace="ai"`, "<<.GroupBy>>", "pod").Replace(fmt.Sprint(at(rule, "metricsQuery")))
			require.Empty(t, metrics.Problems(filled), filled)
			rules++
		}
	}
	require.Equal(t, 2, rules)
}
