{{- /* What cannot work is refused here, with the value to change. */ -}}
{{- define "model.check" -}}
{{- $v := .Values -}}
{{- if not $v.model.name }}{{ fail "model.name: say under which name the model is served" }}{{ end -}}
{{- if include "model.fetches" . -}}
  {{- if not $v.model.ref }}{{ fail "model.ref: say where the weights come from, such as models:/llama@champion or s3://bucket/prefix" }}{{ end -}}
  {{- if and (regexMatch "^(models:|pointer)" $v.model.ref) (not $v.model.allowLocations) }}{{ fail (printf "model.allowLocations: %s may lead anywhere; name the prefixes it may lead to, such as s3://models/" $v.model.ref) }}{{ end -}}
  {{- if and (hasPrefix "models:" $v.model.ref) (not $v.registry.uri) }}{{ fail (printf "registry.uri: %s is looked up in MLflow; say where it is" $v.model.ref) }}{{ end -}}
{{- else -}}
  {{- if not $v.weights.image.reference }}{{ fail "weights.image.reference: name the image with the weights" }}{{ end -}}
  {{- if $v.model.ref }}{{ fail "model.ref: an image is mounted as it is and follows no pointer; leave model.ref out, or choose another weights.type" }}{{ end -}}
{{- end -}}
{{- $most := ternary (int $v.scaling.maxReplicas) (int $v.scaling.replicas) $v.scaling.enabled -}}
{{- if lt (int $v.scaling.maxReplicas) (max (int $v.scaling.minReplicas) 1) }}{{ fail (printf "scaling.maxReplicas: %d is below 1 or below scaling.minReplicas" (int $v.scaling.maxReplicas)) }}{{ end -}}
{{- if and (eq $v.scaling.demandFrom "none") (eq (int $v.scaling.minReplicas) 0) $v.scaling.enabled }}{{ fail "scaling.demandFrom: none cannot wake a model at zero; set scaling.minReplicas to 1 or more, or name a source" }}{{ end -}}
{{- range $key, $_ := $v.scaling.metadata }}{{ if has $key (list "targetRequests" "modelName" "modelAliases" "coldStart" "priority" "demandFrom" "engine" "servingPort" "metricsPort" "scalerAddress" "enableTLS") }}{{ fail (printf "scaling.metadata.%s: has a value of its own in this chart" $key) }}{{ end }}{{ end -}}
{{- if and (hasKey $v.scaling.metadata "waitCost") (ne $v.scaling.priority "balanced") }}{{ fail "scaling.priority: a price of waiting (metadata.waitCost) takes its place; keep one" }}{{ end -}}
{{- if and (eq (toString (get $v.scaling.metadata "mode")) "shadow") (not $v.scaling.extraTriggers) }}{{ fail "scaling.metadata.mode: shadow needs another trigger that decides; add scaling.extraTriggers" }}{{ end -}}
{{- include "model.checkPod" . -}}
{{- if and (include "model.single" .) (gt $most 1) }}{{ fail (printf "weights.pvc.accessMode: %s holds one pod, and there may be %d; choose ReadWriteMany, or scaling.maxReplicas=1" $v.weights.pvc.accessMode $most) }}{{ end -}}
{{- if and (eq $v.fetcher.agent.onChange "exit") (gt $most 1) }}{{ fail (printf "fetcher.agent.onChange: exit would restart all of up to %d replicas at once; only with scaling.maxReplicas=1, else use pilotlight promote --restart" $most) }}{{ end -}}
{{- if lt (include "model.milliseconds" $v.fetcher.agent.poll | int64) 1000 }}{{ fail (printf "fetcher.agent.poll: %s is less than 1s" $v.fetcher.agent.poll) }}{{ end -}}
{{- if and (include "model.fetches" .) $v.fetcher.agent.enabled (eq (int $v.fetcher.agent.port) (int $v.engine.port)) }}{{ fail (printf "fetcher.agent.port: %d is the engine's port (engine.port), in the same pod" (int $v.fetcher.agent.port)) }}{{ end -}}
{{- if and (eq $v.fetcher.agent.onChange "exit") (not $v.fetcher.agent.enabled) }}{{ fail "fetcher.agent.onChange: exit needs fetcher.agent.enabled" }}{{ end -}}
{{- if and (eq $v.fetcher.agent.onChange "webhook") (not $v.fetcher.agent.webhookURL) }}{{ fail "fetcher.agent.webhookURL: say where onChange=webhook posts to" }}{{ end -}}
{{- if and (ne $v.fetcher.agent.onChange "webhook") $v.fetcher.agent.webhookURL }}{{ fail "fetcher.agent.webhookURL: is for fetcher.agent.onChange=webhook only" }}{{ end -}}
{{- $least := ternary (int $v.scaling.minReplicas) (int $v.scaling.replicas) $v.scaling.enabled -}}
{{- if and $v.pdb.enabled (gt (int $v.pdb.minAvailable) 0) (ge (int $v.pdb.minAvailable) $least) }}{{ fail (printf "pdb.minAvailable: %d of at least %d replicas must stay, so a drain could wait for ever; set it below scaling.minReplicas, or use pdb.maxUnavailable" (int $v.pdb.minAvailable) $least) }}{{ end -}}
{{- if and $v.inferencePool.gateway (not $v.inferencePool.enabled) }}{{ fail "inferencePool.gateway: needs inferencePool.enabled" }}{{ end -}}
{{- if and (eq $v.kind "LeaderWorkerSet") (ne $v.engine.kind "vllm") }}{{ fail (printf "kind: LeaderWorkerSet is for engine.kind vllm; %s has no arguments for it here" $v.engine.kind) }}{{ end -}}
{{- end -}}

{{- /* Budgets of one pod: drain, start, GPUs. */ -}}
{{- define "model.checkPod" -}}
{{- $v := .Values -}}
{{- $drain := add $v.drain.preStopSeconds (ternary $v.drain.shutdownTimeoutSeconds 0 (eq (include "model.drains" .) "true")) -}}
{{- if le (int $v.drain.graceSeconds) (int $drain) }}{{ fail (printf "drain.graceSeconds: %d s end before the drain does (preStop and shutdown timeout take %d s): running requests would be cut; allow more than %d" (int $v.drain.graceSeconds) $drain $drain) }}{{ end -}}
{{- if lt (int $v.startup.budgetSeconds) (int $v.scaling.coldStartSeconds) }}{{ fail (printf "startup.budgetSeconds: %d s are less than a start takes (scaling.coldStartSeconds is %d): the kubelet would kill every start" (int $v.startup.budgetSeconds) (int $v.scaling.coldStartSeconds)) }}{{ end -}}
{{- if and (ne (toString $v.rollout.maxSurge) "0") (not $v.rollout.gpuToSpare) (ne $v.gpu.mode "none") }}{{ fail (printf "rollout.maxSurge: %v more pods need as many GPUs to spare, or the rollout waits for ever; set rollout.gpuToSpare=true if there are, else 0" $v.rollout.maxSurge) }}{{ end -}}
{{- if and (eq (toString $v.rollout.maxSurge) "0") (eq (toString $v.rollout.maxUnavailable) "0") }}{{ fail "rollout.maxUnavailable: 0 with maxSurge 0 could replace no pod" }}{{ end -}}
{{- if and (eq $v.engine.kind "vllm") (not (include "model.engineVersion" .)) }}{{ fail (printf "engine.version: the tag %q does not say which vLLM it is; say it, such as 0.18.1" $v.engine.image.tag) }}{{ end -}}
{{- end -}}
