{{- define "pilotlight.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- /* Selector labels of a component: (list . "scaler") */ -}}
{{- define "pilotlight.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: pilotlight
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "pilotlight.labels" -}}
{{- $root := index . 0 -}}
{{ include "pilotlight.selector" . }}
app.kubernetes.io/version: {{ $root.Values.image.tag | default $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "pilotlight.image" -}}
{{- $root := index . 0 -}}
{{ printf "%s/pilotlight-%s:%s" $root.Values.image.registry (index . 1) ($root.Values.image.tag | default $root.Chart.AppVersion) }}
{{- end -}}

{{- /* Secret with the certificate of a component: scaler, activator or keda. */ -}}
{{- define "pilotlight.secret" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- if eq $root.Values.tls.mode "existingSecret" -}}
{{ index $root.Values.tls.existingSecret $name }}
{{- else -}}
{{ include "pilotlight.fullname" $root }}-{{ $name }}-tls
{{- end -}}
{{- end -}}

{{- /* Names under which the scaler's Service is reached, as a JSON list. */ -}}
{{- define "pilotlight.dnsNames" -}}
{{- $name := printf "%s-scaler" (include "pilotlight.fullname" .) -}}
{{- $full := printf "%s.%s" $name .Release.Namespace -}}
{{- list $full (printf "%s.svc" $full) (printf "%s.svc.cluster.local" $full) | toJson -}}
{{- end -}}

{{- define "pilotlight.scalerAddress" -}}
{{ include "pilotlight.fullname" . }}-scaler.{{ .Release.Namespace }}.svc:6000
{{- end -}}

{{- /* Whole milliseconds of a duration such as 1m30s. */ -}}
{{- define "pilotlight.milliseconds" -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9.]+(ms|s|m|h)" (toString .) -1 -}}
{{- $sum = addf $sum (mulf (regexFind "^[0-9.]+" . | float64) (get (dict "ms" 1.0 "s" 1000.0 "m" 60000.0 "h" 3600000.0) (regexFind "[a-z]+$" .))) -}}
{{- end -}}
{{- $sum | int64 -}}
{{- end -}}

{{- /* What cannot work, said at once and in one line each. */ -}}
{{- define "pilotlight.check" -}}
{{- $v := .Values -}}
{{- if eq $v.tls.mode "existingSecret" -}}
  {{- range $who := list "scaler" "keda" -}}
    {{- if not (index $v.tls.existingSecret $who) -}}{{ fail (printf "tls.existingSecret.%s: name the secret with tls.crt, tls.key and ca.crt, or choose another tls.mode" $who) }}{{- end -}}
  {{- end -}}
  {{- if and $v.activator.enabled (not $v.tls.existingSecret.activator) -}}{{ fail "tls.existingSecret.activator: name the secret with tls.crt, tls.key and ca.crt, or set activator.enabled=false" }}{{- end -}}
{{- end -}}
{{- if and $v.tls.existingSecret.activatorCA (ne $v.tls.mode "existingSecret") }}{{ fail "tls.existingSecret.activatorCA: belongs to tls.mode=existingSecret; the other modes have one CA" }}{{ end -}}
{{- if lt (include "pilotlight.milliseconds" $v.scaler.interval | int64) 10 }}{{ fail (printf "scaler.interval: %s is less than 10ms" $v.scaler.interval) }}{{ end -}}
{{- $poll := include "pilotlight.milliseconds" $v.scaler.agentPoll | int64 -}}
{{- if and (lt $poll 1000) (regexMatch "[1-9]" $v.scaler.agentPoll) }}{{ fail (printf "scaler.agentPoll: %s is less than 1s; 0s asks none" $v.scaler.agentPoll) }}{{ end -}}
{{- range $source := $v.scaler.demandSources -}}
  {{- range $key, $bounds := dict "interval" (list 200 5000 "200ms and 5s") "timeout" (list 10 10000 "10ms and 10s") -}}
    {{- $set := get $source $key -}}
    {{- $ms := include "pilotlight.milliseconds" $set | int64 -}}
    {{- if and (regexMatch "[1-9]" $set) (or (lt $ms (index $bounds 0 | int64)) (gt $ms (index $bounds 1 | int64))) -}}{{ fail (printf "scaler.demandSources.%s.%s: %s must lie between %s" $source.name $key $set (index $bounds 2)) }}{{- end -}}
  {{- end -}}
{{- end -}}
{{- if $v.activator.enabled }}{{ include "pilotlight.checkActivator" $v.activator }}{{ end -}}
{{- if and (eq $v.tls.mode "certManager") (ne .Release.Namespace $v.keda.namespace) -}}
  {{- if ne (get $v.tls.certManager.issuerRef "kind") "ClusterIssuer" -}}{{ fail (printf "tls.certManager.issuerRef: KEDA in namespace %s needs a certificate there, and an Issuer serves one namespace: name a ClusterIssuer, or install into %s" $v.keda.namespace $v.keda.namespace) }}{{- end -}}
{{- end -}}
{{- if and $v.monitoring.serviceMonitor.enabled $v.monitoring.podMonitor.enabled -}}{{ fail "monitoring: serviceMonitor and podMonitor would scrape everything twice: enable one" }}{{- end -}}
{{- end -}}

{{- define "pilotlight.spread" -}}
{{- $root := index . 0 -}}
{{- if $root.Values.topologySpread }}
topologySpreadConstraints:
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    nodeTaintsPolicy: Honor
    matchLabelKeys: [pod-template-hash]
    labelSelector:
      matchLabels:
        {{- include "pilotlight.selector" $ | nindent 8 }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* What scaler and activator pods have in common: (list . "scaler" .Values.scaler) */ -}}
{{- define "pilotlight.pod" -}}
{{- $root := index . 0 -}}
{{- $v := index . 2 -}}
serviceAccountName: {{ include "pilotlight.fullname" $root }}-{{ index . 1 }}
enableServiceLinks: false
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
securityContext: {{- toYaml $root.Values.podSecurityContext | nindent 2 }}
{{- with $v.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- include "pilotlight.spread" . }}
{{- end -}}
