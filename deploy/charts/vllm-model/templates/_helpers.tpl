{{- define "model.fullname" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "model.selector" -}}
app.kubernetes.io/name: vllm-model
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- /* Of objects. Pods get no version and no chart: a label that changes would restart them. */ -}}
{{- define "model.labels" -}}
{{ include "model.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "model.fetches" -}}{{ if ne .Values.weights.type "image" }}true{{ end }}{{- end -}}
{{- define "model.pvc" -}}{{ if eq .Values.weights.type "pvc" }}true{{ end }}{{- end -}}
{{- define "model.shared" -}}{{ if and (include "model.pvc" .) (eq .Values.weights.pvc.accessMode "ReadWriteMany") }}true{{ end }}{{- end -}}
{{- define "model.single" -}}{{ if and (include "model.pvc" .) (ne .Values.weights.pvc.accessMode "ReadWriteMany") }}true{{ end }}{{- end -}}
{{- define "model.claim" -}}{{ .Values.weights.pvc.existingClaim | default (printf "%s-weights" (include "model.fullname" .)) }}{{- end -}}

{{- define "model.engineVersion" -}}
{{- $v := .Values.engine.version | default .Values.engine.image.tag | trimPrefix "v" -}}
{{- regexFind "^[0-9]+\\.[0-9]+(\\.[0-9]+)?" $v -}}
{{- end -}}

{{- /* "true" where the engine knows --shutdown-timeout: vLLM from 0.18. */ -}}
{{- define "model.drains" -}}
{{- $v := include "model.engineVersion" . -}}
{{- if and (eq .Values.engine.kind "vllm") $v -}}{{- if semverCompare ">=0.18.0" $v -}}true{{- end -}}{{- end -}}
{{- end -}}

{{- define "model.image" -}}
{{- $e := .Values.engine -}}
{{- $repository := $e.image.repository | default (get (dict "vllm" "vllm/vllm-openai" "sglang" "lmsysorg/sglang" "tgi" "ghcr.io/huggingface/text-generation-inference") $e.kind) -}}
{{- if $e.image.digest }}{{ $repository }}@{{ $e.image.digest }}{{ else }}{{ $repository }}:{{ $e.image.tag }}{{ end -}}
{{- end -}}

{{- define "model.fetcherImage" -}}
{{ .Values.fetcher.image.repository }}:{{ .Values.fetcher.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- /* Where the engine finds the model: constant, whatever version it is. */ -}}
{{- define "model.path" -}}
{{- if include "model.fetches" . -}}/serving/model/.pilotlight/model{{- else -}}/models{{- end -}}
{{- end -}}

{{- define "model.triggerMetadata" -}}
{{- $s := .Values.scaling -}}
{{- $m := dict "scalerAddress" .Values.pilotlight.scalerAddress "targetRequests" (toString $s.targetRequests) "modelName" .Values.model.name
  "coldStart" (printf "%ds" (int $s.coldStartSeconds)) "priority" $s.priority "demandFrom" $s.demandFrom "engine" .Values.engine.kind
  "servingPort" (toString .Values.engine.port) "metricsPort" (toString .Values.engine.port) -}}
{{- if .Values.pilotlight.authentication }}{{ $_ := set $m "enableTLS" "true" }}{{ end -}}
{{- if hasKey $s.metadata "waitCost" }}{{ $_ := unset $m "priority" }}{{ end -}}
{{- with .Values.model.aliases }}{{ $_ := set $m "modelAliases" (join "," .) }}{{ end -}}
{{- toYaml (merge (dict) $s.metadata $m) -}}
{{- end -}}

{{- define "model.tolerance" -}}
{{- $t := .Values.scaling.tolerance -}}
{{- if or (eq $t "on") (and (eq $t "auto") (semverCompare ">=1.35.0-0" .Capabilities.KubeVersion.Version)) -}}true{{- end -}}
{{- end -}}

{{- /* Whole milliseconds of a duration such as 1m30s. */ -}}
{{- define "model.milliseconds" -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9.]+(ms|s|m|h)" (toString .) -1 -}}
{{- $sum = addf $sum (mulf (regexFind "^[0-9.]+" . | float64) (get (dict "ms" 1.0 "s" 1000.0 "m" 60000.0 "h" 3600000.0) (regexFind "[a-z]+$" .))) -}}
{{- end -}}
{{- $sum | int64 -}}
{{- end -}}
