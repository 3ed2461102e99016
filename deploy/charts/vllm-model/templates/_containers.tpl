{{- /* Arguments that init, agent and writer have in common. */ -}}
{{- define "model.fetchArgs" -}}
- --model={{ .Values.model.ref }}
- --root=/models
{{- range .Values.model.allowLocations }}
- --allow-location={{ . }}
{{- end }}
{{- with .Values.model.subPath }}
- --sub-path={{ . }}
{{- end }}
{{- range .Values.model.include }}
- {{ printf "--include=%s" . | quote }}
{{- end }}
{{- range .Values.model.exclude }}
- {{ printf "--exclude=%s" . | quote }}
{{- end }}
- --verify={{ .Values.fetcher.verify }}
- --deadline={{ .Values.fetcher.deadline }}
- --connections={{ .Values.fetcher.connections | int }}
- --keep={{ .Values.fetcher.keep | int }}
- --keep-for={{ .Values.fetcher.keepFor }}
{{- if not (include "model.pvc" .) }}
- --size-limit={{ .Values.weights.size }}
{{- end }}
{{- with .Values.store.endpoint }}
- --s3-endpoint={{ . }}
{{- end }}
{{- with .Values.store.addressing }}
- --s3-addressing={{ . }}
{{- end }}
{{- if .Values.store.requesterPays }}
- --s3-requester-pays
{{- end }}
{{- if .Values.store.sseC.secretName }}
- --sse-c-key-file=/etc/pilotlight/sse-c/{{ .Values.store.sseC.key }}
{{- end }}
- --durability={{ .Values.fetcher.durability }}
- --log-format={{ .Values.fetcher.logFormat }}
{{- with .Values.fetcher.bandwidth }}
- --bandwidth={{ . }}
{{- end }}
{{- with .Values.fetcher.memory }}
- --memory={{ . }}
{{- end }}
{{- range $flag, $on := dict "offline" .Values.fetcher.offline "any-layout" .Values.fetcher.anyLayout "multipart-etags" .Values.fetcher.multipartETags "adopt-root" .Values.fetcher.adoptRoot }}
{{- if $on }}
- --{{ $flag }}
{{- end }}
{{- end }}
{{- range .Values.fetcher.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "model.fetchEnv" -}}
env:
  - name: POD_UID
    valueFrom: {fieldRef: {fieldPath: metadata.uid}}
  - name: PILOTLIGHT_MODEL_VERSION
    valueFrom: {fieldRef: {fieldPath: "metadata.annotations['pilotlight.dev/model-version']"}}
  {{- with .Values.registry.uri }}
  - {name: MLFLOW_TRACKING_URI, value: {{ . | quote }}}
  {{- end }}
  {{- with .Values.store.region }}
  - {name: AWS_REGION, value: {{ . | quote }}}
  {{- end }}
{{- if or .Values.registry.secretName .Values.store.secretName }}
envFrom:
  {{- with .Values.registry.secretName }}
  - secretRef: {name: {{ . }}}
  {{- end }}
  {{- with .Values.store.secretName }}
  - secretRef: {name: {{ . }}}
  {{- end }}
{{- end }}
{{- end -}}

{{- /* The emptyDir's size is asked for, so that the pod gets a node that has it. */ -}}
{{- define "model.fetchResources" -}}
{{- $r := deepCopy .Values.fetcher.resources -}}
{{- if eq .Values.weights.type "emptyDir" }}{{ $r = mergeOverwrite $r (dict "requests" (dict "ephemeral-storage" .Values.weights.size)) }}{{ end -}}
{{- toYaml $r -}}
{{- end -}}

{{- define "model.fetchSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- /* Where the scaler finds the agent, if not on 9400. */ -}}
{{- define "model.agentPort" -}}
{{- if ne (int .Values.fetcher.agent.port) 9400 }}pilotlight.dev/agent-port: {{ .Values.fetcher.agent.port | quote }}{{ end -}}
{{- end -}}

{{- /* Mounts of whatever fetches. */ -}}
{{- define "model.fetchMounts" -}}
- {name: weights, mountPath: /models}
{{- if .Values.store.sseC.secretName }}
- {name: sse-c, mountPath: /etc/pilotlight/sse-c, readOnly: true}
{{- end }}
{{- end -}}

{{- /* Flags of agents and writers. */ -}}
{{- define "model.agentArgs" -}}
- --listen=:{{ .Values.fetcher.agent.port }}
- --poll={{ .Values.fetcher.agent.poll }}
- --max-failures={{ .Values.fetcher.agent.maxFailures }}
{{- end -}}

{{- /* The agent beside an engine: (list . "leader"|"worker"|""). A worker's engine has no port. */ -}}
{{- define "model.agent" -}}
{{- $root := index . 0 -}}
{{- $a := $root.Values.fetcher.agent -}}
{{- $engine := printf "http://127.0.0.1:%d" (int $root.Values.engine.port) -}}
{{- $warms := and $a.warmUp (ne (index . 1) "worker") -}}
{{- $key := and $warms $root.Values.engine.apiKey.secretName -}}
- name: agent
  image: {{ include "model.fetcherImage" $root }}
  imagePullPolicy: {{ $root.Values.fetcher.image.pullPolicy }}
  restartPolicy: Always
  {{- if eq $a.onChange "exit" }}
  restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [88]}}]
  {{- end }}
  args:
    - agent
    {{- include "model.fetchArgs" $root | nindent 4 }}
    - --link=/serving/model
    {{- if include "model.shared" $root }}
    - --read-only
    {{- end }}
    {{- include "model.agentArgs" $root | nindent 4 }}
    - --on-change={{ $a.onChange }}
    {{- if eq $a.onChange "webhook" }}
    - --webhook-url={{ $a.webhookURL }}
    - --hook-timeout={{ $a.hookTimeout }}
    {{- end }}
    - --warm-cache={{ $a.warmCache }}
    {{- if ne (index . 1) "worker" }}
    - --engine-health={{ $engine }}/health
    {{- end }}
    {{- if $warms }}
    - --engine-url={{ $engine }}
    - --warm-requests={{ $a.warmRequests }}
    {{- end }}
    {{- if $key }}
    - --engine-api-key-file=/etc/pilotlight/engine-key/{{ $root.Values.engine.apiKey.key }}
    {{- end }}
  {{- include "model.fetchEnv" $root | nindent 2 }}
  ports: [{name: agent, containerPort: {{ $a.port }}}]
  startupProbe: {httpGet: {path: /readyz, port: agent}, periodSeconds: 1, failureThreshold: 60}
  {{- if $warms }}
  readinessProbe: {httpGet: {path: /readyz/engine, port: agent}, periodSeconds: 1, timeoutSeconds: 2, failureThreshold: 2}
  {{- end }}
  livenessProbe: {httpGet: {path: /healthz, port: agent}, periodSeconds: 10, timeoutSeconds: 5}
  resources: {{- toYaml $a.resources | nindent 4 }}
  securityContext: {{- include "model.fetchSecurity" $root | nindent 4 }}
  volumeMounts:
    {{- include "model.fetchMounts" $root | nindent 4 }}
    - {name: serving, mountPath: /serving}
    {{- if $key }}
    - {name: engine-key, mountPath: /etc/pilotlight/engine-key, readOnly: true}
    {{- end }}
{{- end -}}

{{- /* (list . "leader"|"worker"|"") */ -}}
{{- define "model.initContainers" -}}
{{- $root := index . 0 -}}
{{- with $root -}}
- name: fetch
  image: {{ include "model.fetcherImage" . }}
  imagePullPolicy: {{ .Values.fetcher.image.pullPolicy }}
  args:
    - init
    {{- include "model.fetchArgs" . | nindent 4 }}
    - --link=/serving/model
    {{- if include "model.shared" . }}
    - --read-only
    {{- end }}
  {{- include "model.fetchEnv" . | nindent 2 }}
  resources: {{- include "model.fetchResources" . | nindent 4 }}
  securityContext: {{- include "model.fetchSecurity" . | nindent 4 }}
  volumeMounts:
    {{- include "model.fetchMounts" . | nindent 4 }}
    - {name: serving, mountPath: /serving}
{{- end }}
{{- if $root.Values.fetcher.agent.enabled }}
{{ include "model.agent" . }}
{{- end }}
{{- end -}}

{{- /* What the engine is started with: (list . "leader"|"worker"|"") */ -}}
{{- define "model.engineArgs" -}}
{{- $root := index . 0 -}}
{{- $role := index . 1 -}}
{{- $v := $root.Values -}}
{{- $path := include "model.path" $root -}}
{{- $names := concat (list $v.model.name) $v.model.aliases -}}
{{- if eq $v.engine.kind "vllm" }}
- --model={{ $path }}
{{- if include "model.fetches" $root }}
- --tokenizer=/serving/model/.pilotlight/tokenizer
{{- end }}
- --served-model-name
{{- range $names }}
- {{ . | quote }}
{{- end }}
- --host=0.0.0.0
- --port={{ $v.engine.port }}
{{- if gt (int $v.gpu.count) 1 }}
- --tensor-parallel-size={{ $v.gpu.count }}
{{- end }}
{{- with $v.engine.gpuMemoryUtilization }}
- --gpu-memory-utilization={{ . }}
{{- end }}
{{- if include "model.drains" $root }}
- --shutdown-timeout={{ $v.drain.shutdownTimeoutSeconds }}
{{- end }}
{{- if $role }}
- --pipeline-parallel-size={{ $v.multiNode.size }}
- --distributed-executor-backend=mp
- --nnodes={{ $v.multiNode.size }}
- --node-rank=$(LWS_WORKER_INDEX)
- --master-addr=$(LWS_LEADER_ADDRESS)
{{- if eq $role "worker" }}
- --headless
{{- end }}
{{- end }}
{{- else if eq $v.engine.kind "sglang" }}
- --model-path={{ $path }}
{{- if include "model.fetches" $root }}
- --tokenizer-path=/serving/model/.pilotlight/tokenizer
{{- end }}
- --served-model-name={{ $v.model.name }}
- --host=0.0.0.0
- --port={{ $v.engine.port }}
- --enable-metrics
{{- if $v.engine.apiKey.secretName }}
- --api-key=$(ENGINE_API_KEY)
{{- end }}
{{- if gt (int $v.gpu.count) 1 }}
- --tp-size={{ $v.gpu.count }}
{{- end }}
{{- with $v.engine.gpuMemoryUtilization }}
- --mem-fraction-static={{ . }}
{{- end }}
{{- else }}
- --model-id={{ $path }}
- --hostname=0.0.0.0
- --port={{ $v.engine.port }}
{{- if gt (int $v.gpu.count) 1 }}
- --num-shard={{ $v.gpu.count }}
{{- end }}
{{- with $v.engine.gpuMemoryUtilization }}
- --cuda-memory-fraction={{ . }}
{{- end }}
{{- end }}
{{- range $v.engine.args }}
- {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "model.engine" -}}
{{- $root := index . 0 -}}
{{- $role := index . 1 -}}
{{- $v := $root.Values -}}
- name: engine
  image: {{ include "model.image" $root }}
  imagePullPolicy: {{ $v.engine.image.pullPolicy }}
  {{- if eq $v.engine.kind "sglang" }}
  command: [python3, -m, sglang.launch_server]
  {{- end }}
  args:
    {{- include "model.engineArgs" . | trim | nindent 4 }}
  env:
    - {name: VLLM_CACHE_ROOT, value: /cache/vllm}
    - {name: HF_HUB_OFFLINE, value: "1"} # the weights are here
    {{- with $v.engine.apiKey.secretName }}
    - name: {{ get (dict "vllm" "VLLM_API_KEY" "sglang" "ENGINE_API_KEY" "tgi" "API_KEY") $v.engine.kind }}
      valueFrom: {secretKeyRef: {name: {{ . }}, key: {{ $v.engine.apiKey.key }}}}
    {{- end }}
    {{- with $v.engine.env }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- if ne $role "worker" }}
  ports: [{name: http, containerPort: {{ $v.engine.port }}}]
  lifecycle: {preStop: {sleep: {seconds: {{ $v.drain.preStopSeconds }}}}}
  startupProbe: {httpGet: {path: /health, port: http}, periodSeconds: 2, timeoutSeconds: 2, failureThreshold: {{ div (add $v.startup.budgetSeconds 1) 2 }}}
  livenessProbe: {httpGet: {path: /health, port: http}, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 6} # a restart loads the model again
  readinessProbe: {httpGet: {path: /health, port: http}, periodSeconds: 2, timeoutSeconds: 2, failureThreshold: 2}
  {{- end }}
  resources:
    requests: {{- toYaml $v.engine.resources.requests | nindent 6 }}
    limits:
      {{- toYaml $v.engine.resources.limits | nindent 6 }}
      {{- if eq $v.gpu.mode "devicePlugin" }}
      {{ $v.gpu.resource }}: {{ $v.gpu.count | quote }}
      {{- end }}
    {{- if eq $v.gpu.mode "dra" }}
    claims: [{name: gpu}]
    {{- end }}
  securityContext: {{- toYaml $v.engine.securityContext | nindent 4 }}
  volumeMounts:
    {{- if include "model.fetches" $root }}
    - {name: weights, mountPath: /models, readOnly: true}
    - {name: serving, mountPath: /serving, readOnly: true}
    {{- else }}
    - {name: weights, mountPath: /models, readOnly: true{{ with $v.weights.image.subPath }}, subPath: {{ . }}{{ end }}}
    {{- end }}
    {{- if include "model.pvc" $root }}
    - {name: weights, mountPath: /cache, subPath: .cache} # what was compiled outlives the pod
    {{- else }}
    - {name: cache, mountPath: /cache}
    {{- end }}
    - {name: shm, mountPath: /dev/shm}
{{- end -}}

{{- define "model.sseVolume" -}}
{{- with .Values.store.sseC.secretName }}
- name: sse-c
  secret: {secretName: {{ . }}}
{{- end }}
{{- end -}}

{{- define "model.secretVolumes" -}}
{{- include "model.sseVolume" . }}
{{- if and .Values.engine.apiKey.secretName .Values.fetcher.agent.enabled .Values.fetcher.agent.warmUp }}
- name: engine-key
  secret: {secretName: {{ .Values.engine.apiKey.secretName }}}
{{- end }}
{{- end -}}

{{- define "model.volumes" -}}
{{- $w := .Values.weights -}}
- name: weights
  {{- if eq $w.type "image" }}
  image: {reference: {{ $w.image.reference | quote }}, pullPolicy: {{ $w.image.pullPolicy }}}
  {{- else if eq $w.type "pvc" }}
  persistentVolumeClaim: {claimName: {{ include "model.claim" . }}}
  {{- else }}
  emptyDir: {sizeLimit: {{ $w.size }}}
  {{- end }}
{{- if include "model.fetches" . }}
- name: serving
  emptyDir: {sizeLimit: 1Mi}
{{- end }}
{{- if not (include "model.pvc" .) }}
- name: cache
  emptyDir: {sizeLimit: 10Gi}
{{- end }}
{{- if include "model.fetches" . }}
{{- include "model.secretVolumes" . }}
{{- end }}
- name: shm
  emptyDir: {medium: Memory, sizeLimit: {{ .Values.engine.shm }}}
{{- end -}}
