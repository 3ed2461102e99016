{{- /* Pod template of one replica, or of one pod of a group: (list . "leader"|"worker"|"") */ -}}
{{- define "model.podTemplate" -}}
{{- $root := index . 0 -}}
{{- $v := $root.Values -}}
metadata:
  labels:
    {{- include "model.selector" $root | nindent 4 }}
    workload-type: inference
    {{- if include "model.fetches" $root }}
    pilotlight.dev/ref-hash: {{ $v.model.ref | sha256sum | trunc 10 | quote }}
    {{- end }}
    {{- with $v.commonLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    kubectl.kubernetes.io/default-container: engine
    {{- if include "model.fetches" $root }}
    pilotlight.dev/ref: {{ $v.model.ref | quote }}
    {{- if not $v.fetcher.agent.enabled }}
    pilotlight.dev/agent-port: "0" # there is none to ask
    {{- else }}
    {{- with include "model.agentPort" $root }}{{ . | nindent 4 }}{{ end }}
    {{- end }}
    {{- with $v.model.versionPin }}
    pilotlight.dev/model-version: {{ . | quote }}
    {{- end }}
    {{- end }}
    {{- with $v.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ $v.serviceAccount.name | default (include "model.fullname" $root) }}
  automountServiceAccountToken: false
  enableServiceLinks: false # a Service named vllm would set VLLM_PORT
  terminationGracePeriodSeconds: {{ $v.drain.graceSeconds }}
  {{- with $v.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $v.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $v.runtimeClassName }}
  runtimeClassName: {{ . }}
  {{- end }}
  securityContext: {{- toYaml $v.podSecurityContext | nindent 4 }}
  {{- with $v.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $v.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $v.avoidPods }}
  affinity:
    podAntiAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        - topologyKey: kubernetes.io/hostname
          namespaceSelector: {} # all; left out it would be this namespace only
          labelSelector:
            matchLabels:
              {{- range . }}
              {{ splitList "=" . | first }}: {{ splitList "=" . | last | quote }}
              {{- end }}
  {{- end }}
  {{- if and $v.topologySpread (eq $v.kind "Deployment") }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: topology.kubernetes.io/zone
      whenUnsatisfiable: ScheduleAnyway
      nodeAffinityPolicy: Honor
      nodeTaintsPolicy: Honor
      matchLabelKeys: [pod-template-hash]
      labelSelector:
        matchLabels: {{- include "model.selector" $root | nindent 10 }}
  {{- end }}
  {{- if eq $v.gpu.mode "dra" }}
  resourceClaims: [{name: gpu, resourceClaimTemplateName: {{ include "model.fullname" $root }}-gpu}]
  {{- end }}
  {{- if include "model.fetches" $root }}
  initContainers:
    {{- include "model.initContainers" . | nindent 4 }}
  {{- end }}
  containers:
    {{- include "model.engine" . | nindent 4 }}
  volumes:
    {{- include "model.volumes" $root | nindent 4 }}
{{- end -}}
