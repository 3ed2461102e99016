{{- /* Secrets of the activator beside its certificate for the scaler: volume to secret, as JSON. */ -}}
{{- define "pilotlight.activatorSecrets" -}}
{{- $secrets := dict -}}
{{- with .apiKeys.secretName }}{{ $_ := set $secrets "api-keys" . }}{{ end -}}
{{- with .clientTLS.secretName }}{{ $_ := set $secrets "client-tls" . }}{{ end -}}
{{- with .engineTLS.secretName }}{{ $_ := set $secrets "engine-tls" . }}{{ end -}}
{{- toJson $secrets -}}
{{- end -}}

{{- /* Flags towards clients and engines, of .Values.activator. */ -}}
{{- define "pilotlight.activatorFlags" -}}
- {{ printf "--cors-origins=%s" (join "," .corsOrigins) | quote }}
{{- with .holdComments }}
- --hold-comments={{ . }}
{{- end }}
{{- with .priorityHeader }}
- --priority-header={{ . }}
{{- end }}
{{- if .apiKeys.secretName }}
- --api-keys-sha256=/etc/pilotlight/api-keys/{{ .apiKeys.key }}
{{- end }}
{{- with .prefixRouting }}
{{- if .enabled }}
- --affinity=prefix
- --affinity-bytes={{ .bytes | int64 }}
- --affinity-factor={{ .factor }}
{{- with .header }}
- --affinity-header={{ . }}
{{- end }}
{{- end }}
{{- end }}
{{- with .clientTLS }}
{{- if .secretName }}
- --listen-tls-cert-file=/etc/pilotlight/client-tls/tls.crt
- --listen-tls-key-file=/etc/pilotlight/client-tls/tls.key
{{- if .verifyClients }}
- --listen-tls-client-ca-file=/etc/pilotlight/client-tls/ca.crt
{{- end }}
{{- end }}
{{- end }}
{{- with .engineTLS }}
{{- if .insecure }}
- --engine-tls-insecure
{{- else if .secretName }}
- --engine-tls-ca-file=/etc/pilotlight/engine-tls/ca.crt
{{- end }}
{{- if .clientCertificate }}
- --engine-tls-cert-file=/etc/pilotlight/engine-tls/tls.crt
- --engine-tls-key-file=/etc/pilotlight/engine-tls/tls.key
{{- end }}
{{- with .serverName }}
- --engine-tls-server-name={{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* A quantity as it was meant: numbers of YAML are floats here. */ -}}
{{- define "pilotlight.quantity" -}}
{{- if kindIs "float64" . }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- end -}}

{{- /* Bytes of a quantity such as 1536Mi, 2e9 or 1610612736; 0 where there is none. */ -}}
{{- define "pilotlight.bytes" -}}
{{- $text := include "pilotlight.quantity" . -}}
{{- $number := regexFind "^[0-9.]+([eE][+-]?[0-9]+)?" $text | default "0" | float64 -}}
{{- $unit := regexFind "([kMGTPE]i?|Ki|m)$" $text -}}
{{- $units := dict "" 1.0 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 "Ei" 1152921504606846976.0 -}}
{{- mulf $number (get $units $unit) | int64 -}}
{{- end -}}

{{- /* What cannot work, of .Values.activator. */ -}}
{{- define "pilotlight.checkActivator" -}}
{{- $memory := include "pilotlight.bytes" (dig "limits" "memory" "" .resources) | int64 -}}
{{- $needs := add (int64 .maxTotalBytes) (div (int64 .maxTotalBytes) 8) 134217728 -}}
{{- if and $memory (lt $memory $needs) }}{{ fail (printf "activator.resources.limits.memory: %s is less than maxTotalBytes and an eighth of it plus 128 MiB, which is %dMi" (include "pilotlight.quantity" .resources.limits.memory) (div (add $needs 1048575) 1048576)) }}{{ end -}}
{{- if and .holdComments (regexMatch "[1-9]" .holdComments) (lt (include "pilotlight.milliseconds" .holdComments | int64) 1000) }}{{ fail (printf "activator.holdComments: %s is less than 1s; 0s sends none" .holdComments) }}{{ end -}}
{{- if gt (int .drainHoldSeconds) (int .graceSeconds) }}{{ fail (printf "activator.drainHoldSeconds: %d is more than activator.graceSeconds (%d), of which it is a part" (int .drainHoldSeconds) (int .graceSeconds)) }}{{ end -}}
{{- if and .clientTLS.verifyClients (not .clientTLS.secretName) }}{{ fail "activator.clientTLS.verifyClients: needs activator.clientTLS.secretName, with the ca.crt of clients" }}{{ end -}}
{{- if and .engineTLS.clientCertificate (not .engineTLS.secretName) }}{{ fail "activator.engineTLS.clientCertificate: needs activator.engineTLS.secretName, with tls.crt and tls.key" }}{{ end -}}
{{- if and .engineTLS.insecure (or .engineTLS.serverName (and .engineTLS.secretName (not .engineTLS.clientCertificate))) }}{{ fail "activator.engineTLS.insecure: verifies nothing; leave out serverName, and secretName unless clientCertificate is set" }}{{ end -}}
{{- if lt (int64 .maxHeldTotal) (int64 .maxHeld) }}{{ fail (printf "activator.maxHeldTotal: %d for all models is less than activator.maxHeld (%d) for one" (int64 .maxHeldTotal) (int64 .maxHeld)) }}{{ end -}}
{{- end -}}
