package deploy

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/pilotlight-dev/pilotlight/scaler/demand/source"
)

// classes are the DeviceClasses that a model may name: the blueprint's, and
// those that NVIDIA's driver brings; by name, with the extended resource that
// they serve.
func classes(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{"gpu.nvidia.com": "", "mig.nvidia.com": "", "vfio.gpu.nvidia.com": ""}
	for _, d := range blueprint(t) {
		if d.Object.GetKind() == "DeviceClass" {
			found[d.Object.GetName()], _, _ = unstructured.NestedString(d.Object.Object, "spec", "extendedResourceName")
		}
	}
	return found
}

// demandNames are the sources of demand that the overlays of the scaler define.
func demandNames(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{"activator": true, "none": true}
	for _, c := range renders(t) {
		if !strings.HasPrefix(c.name, "pilotlight/overlay-") {
			continue
		}
		entries, err := sourcesOf(c.docs)
		require.NoError(t, err)
		for _, e := range entries {
			found[e.Name] = true
		}
	}
	return found
}

func sourcesOf(docs objects) ([]source.Entry, error) {
	text, _ := at(docs.one("ConfigMap", "pilotlight-scaler-demand-sources"), "data", "sources.yaml").(string)
	if text == "" {
		return nil, nil
	}
	return source.Parse([]byte(text))
}

func modelPromises(t *testing.T) map[string]promise {
	t.Helper()
	return map[string]promise{
		"device-plugin": {func(o objects) error {
			return all(is("the limit", o.limit("nvidia.com/gpu"), "1"), is("the node", at(o.pod(), "nodeSelector", "nvidia.com/gpu.present"), "true"))
		}, map[string]string{"resource: nvidia.com/gpu": "resource: nvidia.com/gpus", "count: 1": "count: 0", "gpu.present": "gpu.absent"}},
		"dra":                   {draPromise(t), map[string]string{"deviceClassName: gpu-40g": "deviceClassName: gpu-40", "mode: dra": "mode: devicePlugin", "count: 2": "count: 1"}},
		"dra-first-available":   {firstAvailablePromise(t), map[string]string{`"3g.40gb"`: `"3g.40"`, "firstAvailable:": "firstavailable:", "mig.nvidia.com": "mig.nvidia", "gpu-40g": "gpu-400g"}},
		"dra-extended-resource": {extendedPromise(t), map[string]string{"resource: nvidia.com/mig-3g.40gb": "resource: nvidia.com/mig-4g.40gb", "mode: devicePlugin": "mode: dra"}},
		"mig-single": {func(o objects) error {
			product := fmt.Sprint(at(o.pod(), "nodeSelector", "nvidia.com/gpu.product"))
			if !regexp.MustCompile(`-MIG-\dg\.\d+gb$`).MatchString(product) {
				return fmt.Errorf("%s is no product of equal slices", product)
			}
			return is("the limit", o.limit("nvidia.com/gpu"), "1")
		}, map[string]string{"resource: nvidia.com/gpu": "resource: nvidia.com/mig-3g.40gb", "-MIG-3g.40gb": ""}},
		"mig-mixed": {func(o objects) error {
			return all(is("the limit", o.limit("nvidia.com/mig-3g.40gb"), "1"), is("the node", at(o.pod(), "nodeSelector", "nvidia.com/mig.strategy"), at(operatorValues(t), "mig", "strategy")))
		}, map[string]string{"resource: nvidia.com/mig-3g.40gb": "resource: nvidia.com/gpu", "strategy: mixed": "strategy: single"}},
		"time-slicing": {slicingPromise(t), map[string]string{`"0.22"`: `"0.3"`, "gpu.shared": "gpu", "gpuMemoryUtilization": "gpuMemory"}},
		"rwx":          {sharedPromise, map[string]string{"ReadWriteMany": "ReadWriteOnce", "type: pvc": "type: emptyDir"}},
		"rwo": {func(o objects) error {
			return all(is("the volume", at(o.one("PersistentVolumeClaim"), "spec", "accessModes", 0), "ReadWriteOnce"), is("the strategy", at(o.one("Deployment"), "spec", "strategy", "type"), "Recreate"),
				is("maxReplicaCount", at(o.one("ScaledObject"), "spec", "maxReplicaCount"), 1))
		}, map[string]string{"maxReplicas: 1": "maxReplicas: 2", "ReadWriteOnce": "ReadWriteMany", "type: pvc": "type: emptyDir"}},
		"r2":               {r2Promise, map[string]string{"region: auto": "region: us-east-1", "endpoint: https://0123456789abcdef0123456789abcdef": "endpoint: https://00000000000000000000000000000000", "secretName: r2-credentials": `secretName: ""`}},
		"image-volume":     {imagePromise, map[string]string{"@sha256:": ":", "type: image": "type: emptyDir", `ref: ""`: "ref: s3://models/llama", "subPath: llama": `subPath: ""`}},
		"gateway":          {gatewayPromise(t), map[string]string{"demandFrom: epp": "demandFrom: ep", "gateway: inference-gateway": `gateway: ""`, "objectivePriority: 100": "objectivePriority: 0", "endpointPicker: llm-epp": "endpointPicker: epp", "enabled: true": "enabled: false"}},
		"production-stack": {demandPromise(t, "router"), map[string]string{"demandFrom: router": "demandFrom: stack"}},
		"http-addon":       {demandPromise(t, "http-addon"), map[string]string{"demandFrom: http-addon": "demandFrom: activator"}},
		"sglang": {func(o objects) error {
			return all(is("the engine", o.metadata("engine"), "sglang"), is("the command", at(o.container("engine"), "command", 2), "sglang.launch_server"), o.has("engine", "--enable-metrics"),
				is("the image", imageOf(o), "lmsysorg/sglang"))
		}, map[string]string{"kind: sglang": "kind: vllm", "tag: v0.5.12": "tags: v0.5.12"}},
		"tgi": {func(o objects) error {
			return all(is("the engine", o.metadata("engine"), "tgi"), o.has("engine", "--model-id=/serving/model/.pilotlight/model"), is("the image", imageOf(o), "ghcr.io/huggingface/text-generation-inference"))
		}, map[string]string{"kind: tgi": "kind: vllm", "tag: 3.3.7": "tag: 3.3"}},
		"multi-node": {groupPromise, map[string]string{"kind: LeaderWorkerSet": "kind: Deployment", "size: 2}\ngpu": "size: 1}\ngpu", "gpu: {count: 8}": "gpu: {count: 4}", "ReadWriteMany": "ReadWriteOnce", "maxReplicas: 2": "maxReplicas: 0"}},
		"spot":       {spotPromise, map[string]string{"value: spot": "value: sport", "graceSeconds: 110": "graceSeconds: 150", "capacity: spot": "capacity: on-demand", "tolerationSeconds: 15": "tolerationSeconds: 300"}},
		"restart-in-place": {func(o objects) error {
			return all(o.has("agent", "--on-change=exit"), is("the rule", at(o.container("agent"), "restartPolicyRules", 0, "action"), "RestartAllContainers"),
				is("the code", at(o.container("agent"), "restartPolicyRules", 0, "exitCodes", "values", 0), 88), is("maxReplicaCount", at(o.one("ScaledObject"), "spec", "maxReplicaCount"), 1))
		}, map[string]string{"onChange: exit": "onChange: none", "maxReplicas: 1": "maxReplicas: 2", "allowLocations": "allowLocation"}},
		"cpu-int8": {func(o objects) error {
			if o.tolerates("nvidia.com/gpu") || o.limit("nvidia.com/gpu") != nil {
				return errors.New("a CPU model asks for GPU nodes")
			}
			return all(o.has("engine", "--quantization=compressed-tensors"), is("the node", at(o.pod(), "nodeSelector", "pilotlight.dev/pool"), "cpu"))
		}, map[string]string{"mode: none, count: 0": "mode: devicePlugin, count: 1", "tolerations: []": "topologySpread: true", "--quantization=compressed-tensors": "--quantization=awq", "pool: cpu": "pool: gpu"}},
	}
}

func imageOf(o objects) string {
	repository, _, _ := strings.Cut(fmt.Sprint(at(o.container("engine"), "image")), ":")
	return repository
}

func draPromise(t *testing.T) func(o objects) error {
	return func(o objects) error {
		request := at(o.one("ResourceClaimTemplate"), "spec", "spec", "devices", "requests", 0, "exactly")
		if _, ok := classes(t)[fmt.Sprint(at(request, "deviceClassName"))]; !ok {
			return fmt.Errorf("nobody has a DeviceClass %v", at(request, "deviceClassName"))
		}
		return all(is("the count", at(request, "count"), 2), is("the claim", at(o.container("engine"), "resources", "claims", 0, "name"), "gpu"),
			is("the template", at(o.pod(), "resourceClaims", 0, "resourceClaimTemplateName"), at(o.one("ResourceClaimTemplate"), "metadata", "name")), o.has("engine", "--tensor-parallel-size=2"))
	}
}

func firstAvailablePromise(t *testing.T) func(o objects) error {
	slice := device("mig", "3g.40gb", "40448Mi")
	return func(o objects) error {
		requests, _ := at(o.one("ResourceClaimTemplate"), "spec", "spec", "devices", "requests", 0, "firstAvailable").([]any)
		if len(requests) != 2 {
			return fmt.Errorf("%d requests, not a whole GPU and a slice", len(requests))
		}
		for _, one := range requests {
			if _, ok := classes(t)[fmt.Sprint(at(one, "deviceClassName"))]; !ok {
				return fmt.Errorf("nobody has a DeviceClass %v", at(one, "deviceClassName"))
			}
		}
		compiled := cel.GetCompiler(cel.Features{}).CompileCELExpression(fmt.Sprint(at(requests[1], "selectors", 0, "cel", "expression")), cel.Options{})
		if compiled.Error != nil {
			return compiled.Error
		}
		match, _, err := compiled.DeviceMatches(t.Context(), slice)
		return all(err, is("the match of a slice", match, true))
	}
}

func extendedPromise(t *testing.T) func(o objects) error {
	return func(o objects) error {
		for _, resource := range classes(t) {
			if resource != "" && o.limit(resource) == "1" {
				return nil
			}
		}
		return errors.New("no DeviceClass serves what the engine's limits name")
	}
}

func slicingPromise(t *testing.T) func(o objects) error {
	return func(o objects) error {
		text, _, _ := unstructured.NestedString(document(t, "ConfigMap", "time-slicing").Object.Object, "data", "any")
		m := regexp.MustCompile(`replicas: (\d+)`).FindStringSubmatch(text)
		args, _, _ := unstructured.NestedStringSlice(o.container("engine"), "args")
		for _, arg := range args {
			if share, ok := strings.CutPrefix(arg, "--gpu-memory-utilization="); ok {
				pods, _ := strconv.ParseFloat(m[1], 64)
				if of, err := strconv.ParseFloat(share, 64); err != nil || of*pods > 0.95 {
					return fmt.Errorf("%s pods with %s of a GPU's memory each do not fit into it", m[1], share)
				}
				return is("the limit", o.limit("nvidia.com/gpu.shared"), "1")
			}
		}
		return errors.New("each engine would take all of the GPU's memory")
	}
}

func sharedPromise(o objects) error { return sharedVolume(o, "llama-writer") }

func sharedVolume(o objects, name string) error {
	writer := o.one("Deployment", name)
	args := argsOf(at(writer, "spec", "template", "spec", "containers", 0))
	return all(is("the volume", at(o.one("PersistentVolumeClaim"), "spec", "accessModes", 0), "ReadWriteMany"), is("writers", at(writer, "spec", "replicas"), 1),
		is("--writer", strings.Contains(args, " --writer "), true), o.has("fetch", "--read-only"), o.has("agent", "--read-only"))
}

func r2Promise(o objects) error {
	hosts := regexp.MustCompile(`[0-9a-f]{32}\.r2\.cloudflarestorage\.com`).FindAllString(argsOf(o.container("fetch")), -1)
	if len(hosts) != 2 || hosts[0] != hosts[1] {
		return fmt.Errorf("reference and endpoint name the accounts %q", hosts)
	}
	return all(is("the credentials", at(o.container("fetch"), "envFrom", 0, "secretRef", "name"), "r2-credentials"))
}

func imagePromise(o objects) error {
	if o.container("fetch") != nil {
		return errors.New("there is nothing to fetch")
	}
	return all(is("the mount", at(o.container("engine"), "volumeMounts", 0, "subPath"), "llama"), is("a digest", strings.Contains(fmt.Sprint(at(o.pod(), "volumes", 0, "image", "reference")), "@sha256:"), true))
}

func demandPromise(t *testing.T, name string) func(o objects) error {
	return func(o objects) error {
		if !demandNames(t)[fmt.Sprint(o.metadata("demandFrom"))] {
			return fmt.Errorf("no overlay of the scaler has a source %v", o.metadata("demandFrom"))
		}
		return is("demandFrom", o.metadata("demandFrom"), name)
	}
}

func gatewayPromise(t *testing.T) func(o objects) error {
	return func(o objects) error {
		picker := fmt.Sprint(at(o.one("InferencePool"), "spec", "endpointPickerRef", "name"))
		var asked string
		for _, c := range renders(t) {
			if c.name == "pilotlight/overlay-epp" {
				entries, err := sourcesOf(c.docs)
				require.NoError(t, err)
				u, err := url.Parse(entries[0].URL)
				require.NoError(t, err)
				asked, _, _ = strings.Cut(u.Host, ".")
			}
		}
		return all(demandPromise(t, "epp")(o), is("the picker", picker, asked), is("the route", at(o.one("HTTPRoute"), "spec", "parentRefs", 0, "name"), "inference-gateway"),
			is("what it leads to", at(o.one("HTTPRoute"), "spec", "rules", 0, "backendRefs", 0, "name"), at(o.one("InferencePool"), "metadata", "name")),
			is("the objective's pool", at(o.one("InferenceObjective"), "spec", "poolRef", "name"), at(o.one("InferencePool"), "metadata", "name")),
			is("the objective's API", at(o.one("InferenceObjective"), "apiVersion"), "llm-d.ai/v1alpha2"))
	}
}

func groupPromise(o objects) error {
	return all(is("what is scaled", at(o.one("ScaledObject"), "spec", "scaleTargetRef", "kind"), "LeaderWorkerSet"), is("the size", at(o.one("LeaderWorkerSet"), "spec", "leaderWorkerTemplate", "size"), 2),
		o.has("engine", "--pipeline-parallel-size=2", "--tensor-parallel-size=8", "--nnodes=2"), sharedPromise(o))
}

func spotPromise(o objects) error {
	if !o.tolerates("pilotlight.dev/capacity=spot") || !o.tolerates("nvidia.com/gpu") {
		return errors.New("it does not tolerate the taints of spot nodes")
	}
	if grace, _ := at(o.pod(), "terminationGracePeriodSeconds").(int64); grace <= 0 || grace > 120 {
		return fmt.Errorf("%d s of grace, and the cloud takes the node after 120", grace)
	}
	leave, _ := at(o.pod(), "tolerations", 2, "tolerationSeconds").(int64)
	if leave <= 0 || leave > 60 {
		return fmt.Errorf("%d s on a node that is gone", leave)
	}
	return is("the node", at(o.pod(), "nodeSelector", "pilotlight.dev/capacity"), "spot")
}

func pilotlightPromises(t *testing.T) map[string]promise {
	t.Helper()
	return map[string]promise{
		"epp":        {sourcePromise("epp", 9090), map[string]string{"type: epp": "type: router", "[{port: 9090": "[{port: 9091", "url: ": "uri: ", "namespaces: [ai]": "namespaces: []", "kubernetes.io/metadata.name: ai": "kubernetes.io/metadata.name: a"}},
		"router":     {sourcePromise("router", 8000), map[string]string{"type: router": "type: epp", "port: 8000": "port: 80", "url: ": "uri: "}},
		"http-addon": {sourcePromise("http-addon", 9090), map[string]string{"type: http-addon": "type: http", "[{port: 9090": "[{port: 9999", "name: http-addon": "name: http_addon"}},
		"high-availability": {func(o objects) error {
			scaler := o.one("Deployment", "pilotlight-scaler")
			args := fmt.Sprint(at(scaler, "spec", "template", "spec", "containers", 0, "args"))
			for _, kind := range []string{"Certificate", "PodMonitor", "PrometheusRule"} {
				if o.one(kind) == nil {
					return fmt.Errorf("no %s", kind)
				}
			}
			return all(is("scalers", at(scaler, "spec", "replicas"), 2), is("an election", strings.Contains(args, "--leader-elect"), true), is("proxies", at(o.one("Deployment", "pilotlight-activator"), "spec", "replicas"), 3),
				is("whom KEDA is led to", at(o.one("Service", "pilotlight-scaler"), "spec", "selector", "pilotlight.dev/leader"), "true"), is("the dashboard", o.one("ConfigMap", "pilotlight-dashboard") != nil, true),
				is("the issuer", at(o.one("Certificate"), "spec", "issuerRef", "kind"), "ClusterIssuer"))
		}, map[string]string{"scaler: {replicas: 2}": "scaler: {replicas: 1}", "activator: {replicas: 3}": "activator: {replicas: 2}", "mode: certManager": "mode: selfSigned", "kind: ClusterIssuer": "kind: Issuer", "podMonitor: {enabled: true}": "podMonitor: {enabled: false}", "rules: {enabled: true}": "rules: {}", "dashboard: {enabled: true}": "dashboard: {}"}},
	}
}

// retailPromises: who pays for waiting, and how.
func retailPromises(t *testing.T) map[string]promise {
	t.Helper()
	replicas := func(o objects, least, most int) error {
		return all(is("the least replicas", at(o.one("ScaledObject"), "spec", "minReplicaCount"), least), is("the most replicas", at(o.one("ScaledObject"), "spec", "maxReplicaCount"), most))
	}
	priority := func(o objects, name string) error {
		document(t, "PriorityClass", name)
		return is("the priority", at(o.pod(), "priorityClassName"), name)
	}
	return map[string]promise{
		"assistant": {func(o objects) error {
			return all(replicas(o, 0, 2), priority(o, "inference-high"), is("the GPU", at(o.pod(), "nodeSelector", "nvidia.com/gpu.product"), "NVIDIA-L4"), is("what waiting is worth", o.metadata("priority"), "latency"))
		}, map[string]string{"maxReplicas: 2": "maxReplicas: 8", "minReplicas: 0": "minReplicas: 1", "NVIDIA-L4": "NVIDIA-L40", "inference-high": "inference", "priority: latency": "priority: quick", "allowLocations": "locations"}},
		"classifier": {func(o objects) error {
			if o.limit("nvidia.com/gpu") != nil {
				return errors.New("it asks for a GPU")
			}
			return all(replicas(o, 3, 8), priority(o, "inference-high"), is("what stays through a drain", at(o.one("PodDisruptionBudget"), "spec", "minAvailable"), 2), is("the pool", at(o.pod(), "nodeSelector", "pilotlight.dev/pool"), "cpu"))
		}, map[string]string{"pdb: {minAvailable: 2}": "pdb: {minAvailable: 3}", "minReplicas: 3": "minReplicas: 2", "mode: none, count: 0": "mode: devicePlugin, count: 1", "maxSurge: 1, maxUnavailable: 0": "maxSurge: 0, maxUnavailable: 0"}},
		"recommender": {func(o objects) error {
			if !o.tolerates("pilotlight.dev/capacity=spot") {
				return errors.New("it does not tolerate spot nodes")
			}
			return all(replicas(o, 0, 4), priority(o, "batch-inference"), is("what waiting is worth", o.metadata("priority"), "economy"), sharedVolume(o, "recommender-writer"))
		}, map[string]string{"value: spot": "value: sport", "priority: economy": "priority: balanced", "ReadWriteMany": "ReadWriteOnce", "batch-inference": "inference-high"}},
	}
}

// sourcePromise: the scaler's own parser takes the source, models may name it,
// and the NetworkPolicy lets the scaler ask.
func sourcePromise(name string, port int) func(o objects) error {
	return func(o objects) error {
		entries, err := sourcesOf(o)
		if err != nil {
			return err
		}
		if len(entries) != 1 {
			return fmt.Errorf("%d sources", len(entries))
		}
		u, err := url.Parse(entries[0].URL)
		if err != nil {
			return err
		}
		host := strings.Split(u.Hostname(), ".")
		egress, _ := at(o.one("NetworkPolicy", "pilotlight-scaler"), "spec", "egress").([]any)
		rule := egress[len(egress)-1]
		return all(is("the name", entries[0].Name, name), is("the type", entries[0].Type, name), is("the port that is open", at(rule, "ports", 0, "port"), port),
			is("the namespace that is open", at(rule, "to", 0, "namespaceSelector", "matchLabels", "kubernetes.io/metadata.name"), host[1]))
	}
}

// operatorValues are those of deploy/cluster for NVIDIA's chart.
func operatorValues(t *testing.T) map[string]any {
	t.Helper()
	docs, err := ReadYAML(filepath.Join(root, "deploy", "cluster", "values"))
	require.NoError(t, err)
	for _, d := range docs {
		if filepath.Base(d.Source) == "gpu-operator.yaml" {
			return d.Object.Object
		}
	}
	t.Fatal("no values of the GPU operator")
	return nil
}
