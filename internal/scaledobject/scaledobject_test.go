package scaledobject

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const good = `# two documents
apiVersion: v1
kind: ConfigMap
metadata: {name: x}
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: llama, namespace: ai}
spec:
  scaleTargetRef: {name: llama}
  minReplicaCount: 0
  maxReplicaCount: 4
  pollingInterval: 10
  cooldownPeriod: 30
  advanced:
    horizontalPodAutoscalerConfig:
      behavior:
        scaleUp: {stabilizationWindowSeconds: 0, tolerance: 50m, policies: [{type: Percent, value: 100, periodSeconds: 15}, {type: Pods, value: 4, periodSeconds: 15}]}
        scaleDown: {selectPolicy: Disabled}
  triggers:
  - type: cron
    metadata: {timezone: UTC}
  - type: external-push
    metadata:
      scalerAddress: pilotlight:6000
      targetRequests: "12"
      modelName: llama
`

// with is a ScaledObject with more lines in its spec (from line 3 on) and in
// its trigger, which comes last.
func with(spec, trig string) string {
	return "kind: ScaledObject\nspec:\n" + spec + "  triggers:\n  - type: external\n    metadata: {targetRequests: '4', modelName: m}\n" + trig
}

func TestParse(t *testing.T) {
	so, err := Parse("so.yaml", []byte(good))
	require.NoError(t, err)
	require.Equal(t, "ai", so.Namespace)
	require.Equal(t, "llama", so.Name)
	require.Equal(t, 4, so.MaxReplicas)
	require.Equal(t, 10*time.Second, so.PollingInterval)
	require.Equal(t, 30*time.Second, so.CooldownPeriod)
	require.True(t, so.Push)
	require.Equal(t, 2, so.Triggers)
	require.InDelta(t, 12, so.Trigger.TargetRequests, 0)
	require.InDelta(t, 0.05, *so.ScaleUp.Tolerance, 1e-9)
	require.Equal(t, time.Duration(0), *so.ScaleUp.Stabilization)
	require.Equal(t, []Policy{{true, 100, 15 * time.Second}, {false, 4, 15 * time.Second}}, so.ScaleUp.Policies)
	require.True(t, so.ScaleDown.Disabled)
	require.Nil(t, so.ScaleDown.Tolerance)
	require.Equal(t, []string{"so.yaml:21: the trigger of type cron is not simulated"}, so.Notes)
}

func TestDefaultsAreKEDAs(t *testing.T) {
	so, err := Parse("so.yaml", []byte("kind: ScaledObject\nspec:\n  triggers:\n  - type: external\n    metadata: {targetRequests: '4', modelName: m}\n"))
	require.NoError(t, err)
	require.Equal(t, 100, so.MaxReplicas)
	require.Equal(t, 30*time.Second, so.PollingInterval)
	require.Equal(t, 300*time.Second, so.CooldownPeriod)
	require.False(t, so.Push)
}

// Every fault is named with file, line and key.
func TestFaults(t *testing.T) {
	trig := "  triggers:\n  - type: external\n    metadata: {targetRequests: '4', modelName: m}\n"
	cases := map[string]struct {
		body string
		says []string
	}{
		"Empty":            {"", []string{"so.yaml:1: no ScaledObject"}},
		"NotOurs":          {"kind: ScaledObject\nspec:\n  triggers:\n  - type: prometheus\n    metadata: {threshold: '5'}\n", []string{"so.yaml:1: no ScaledObject with a Pilotlight trigger"}},
		"NotYAML":          {"kind: [\n", []string{"so.yaml: ", "line"}},
		"TriggerKeys":      {"kind: ScaledObject\nspec:\n  triggers:\n  - type: external\n    metadata:\n      targetRequests: none\n      modelName: m\n      treshold: '5'\n", []string{"so.yaml:6: trigger metadata: targetRequests", "so.yaml:8: trigger metadata: treshold"}},
		"MissingKey":       {"kind: ScaledObject\nspec:\n  triggers:\n  - type: external\n    metadata:\n      targetRequests: '4'\n", []string{"so.yaml:6: trigger metadata: modelName"}},
		"NotAString":       {"kind: ScaledObject\nspec:\n  triggers:\n  - type: external\n    metadata: {targetRequests: [4]}\n", []string{"so.yaml:5: trigger metadata: targetRequests"}},
		"Numbers":          {"kind: ScaledObject\nspec:\n  minReplicaCount: -1\n  pollingInterval: soon\n" + trig, []string{"so.yaml:3: minReplicaCount", "so.yaml:4: pollingInterval"}},
		"NoTargetRequests": {"a: b\n---\nkind: ScaledObject\nspec:\n  triggers:\n  - type: external-push\n    metadata:\n      modelName: m\n", []string{"so.yaml:8: trigger external-push: metadata.targetRequests is missing"}},
		"NoMetadata":       {"kind: ScaledObject\nspec:\n  triggers:\n  - type: external\n", []string{"so.yaml:4: trigger external: metadata.targetRequests is missing"}},
		"Unquoted":         {"kind: ScaledObject\nspec:\n  triggers:\n  - type: external\n    metadata:\n      targetRequests: 4\n", []string{"so.yaml:6: trigger metadata: targetRequests: must be a string"}},
		"Overflow":         {with("  pollingInterval: 99999999999\n", ""), []string{"so.yaml:3: pollingInterval"}},
		"WakesNothing":     {"kind: ScaledObject\nspec:\n  triggers:\n  - type: external\n    metadata:\n      targetRequests: '4'\n      demandFrom: none\n", []string{"so.yaml:7: trigger metadata: demandFrom: none cannot wake"}},
		"SoleShadow":       {"kind: ScaledObject\nspec:\n  triggers:\n  - type: external\n    metadata:\n      targetRequests: '4'\n      modelName: m\n      mode: shadow\n", []string{"so.yaml:8: trigger metadata: mode: shadow needs another trigger"}},
		"OtherDemand":      {"kind: ScaledObject\nspec:\n  triggers:\n  - type: external\n    metadata:\n      targetRequests: '4'\n      demandFrom: gateway\n", []string{"so.yaml:7: trigger metadata: demandFrom: \"gateway\" is not simulated", "activator or none"}},
		"BelowOneRequest":  {"kind: ScaledObject\nspec:\n  triggers:\n  - type: external\n    metadata:\n      targetRequests: '0.5'\n      modelName: m\n", []string{"so.yaml:6: trigger metadata: targetRequests: 0.5"}},
		"UnknownKey":       {with("  minReplicas: 1\n", ""), []string{"so.yaml:3: spec.minReplicas: is not a key", "minReplicaCount", "fallback"}},
		"Twice":            {with("  minReplicaCount: 0\n  minReplicaCount: 1\n", ""), []string{"so.yaml:4: spec.minReplicaCount: is given twice"}},
		"UnknownAdvanced":  {with("  advanced:\n    horizontalPodAutoscalerConfig:\n      behaviour: {}\n", ""), []string{"so.yaml:5: horizontalPodAutoscalerConfig.behaviour: is not a key"}},
		"NotAMapping":      {with("  advanced: fast\n", ""), []string{"so.yaml:3: advanced: must hold keys"}},
		"MetricType":       {with("", "    metricType: Value\n"), []string{"so.yaml:6: metricType: \"Value\" is not simulated"}},
		"IdleReplicas":     {with("  idleReplicaCount: 0\n", ""), []string{"so.yaml:3: idleReplicaCount: is not simulated"}},
		"Fallback":         {with("  fallback: {failureThreshold: 3, replicas: 1}\n", ""), []string{"so.yaml:3: fallback: is not simulated", "wakes a model at zero"}},
		"ScalingModifiers": {with("  advanced: {scalingModifiers: {formula: a}}\n", ""), []string{"so.yaml:3: scalingModifiers: are not simulated"}},
		"SelectMin":        {with("  advanced: {horizontalPodAutoscalerConfig: {behavior: {scaleUp: {selectPolicy: Min}}}}\n", ""), []string{"so.yaml:3: selectPolicy: Min is not simulated"}},
		"HalfAPolicy":      {with("  advanced: {horizontalPodAutoscalerConfig: {behavior: {scaleDown: {policies: [{type: Pods, value: 1}]}}}}\n", ""), []string{"so.yaml:3: policies: periodSeconds is missing"}},
		"Bounds":           {"kind: ScaledObject\nspec:\n  minReplicaCount: 4\n  maxReplicaCount: 2\n" + trig, []string{"so.yaml:4: maxReplicaCount 2 is below"}},
		"Behavior":         {"kind: ScaledObject\nspec:\n  advanced: {horizontalPodAutoscalerConfig: {behavior: {scaleUp: {tolerance: lots, policies: [{type: Rockets, value: 0, periodSeconds: 1}]}}}}\n" + trig, []string{"tolerance", "Rockets", "value"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("so.yaml", []byte(tc.body))
			require.Error(t, err)
			for _, want := range tc.says {
				require.ErrorContains(t, err, want)
			}
		})
	}
	_, err := Parse("so.yaml", nil)
	require.ErrorIs(t, err, ErrNoTrigger)
}

// An external trigger of somebody else does not hide ours.
func TestOursIsFoundBehindOthers(t *testing.T) {
	other := "kind: ScaledObject\nspec:\n  triggers:\n  - type: external\n    metadata: {scalerAddress: other:1}\n---\n"
	so, err := Parse("so.yaml", []byte(other+good))
	require.NoError(t, err)
	require.Equal(t, "llama", so.Name)
}

// What changes little is taken, and said.
func TestNotes(t *testing.T) {
	so, err := Parse("so.yaml", []byte(`kind: ScaledObject
spec:
  minReplicaCount: &one 1
  maxReplicaCount: *one
  fallback:
  triggers:
  - type: external
    useCachedMetrics: true
    metadata:
      targetRequests: "4"
      demandFrom: none
      mode: shadow
  - type: prometheus
`))
	require.NoError(t, err, "a key without a value is a key that is not there")
	require.Equal(t, 1, so.MaxReplicas, "an alias is what it stands for")
	require.Equal(t, []string{
		"so.yaml:13: the trigger of type prometheus is not simulated",
		"so.yaml:8: useCachedMetrics is not simulated: the HPA reads fresh values",
		"so.yaml:12: mode shadow is simulated as enforce",
		"so.yaml:11: demandFrom none is simulated as activator: requests are held and counted",
	}, so.Notes)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Fuzz(func(t *testing.T, body []byte) {
		so, err := Parse("f", body)
		if err == nil && (so.MaxReplicas < so.MinReplicas || so.MaxReplicas < 1 || so.PollingInterval <= 0 || !(so.Trigger.TargetRequests > 0)) {
			t.Fatalf("accepted an unusable ScaledObject: %+v", so)
		}
	})
}
