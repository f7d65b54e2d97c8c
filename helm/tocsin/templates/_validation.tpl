{{/* Stop with a clear message, before anything is rendered, when something needed is missing. */}}
{{- define "tocsin.validate" -}}
{{- with .Values.nats }}
{{- if not (or .url .existingSecret $.Values.bundled.nats.enabled) }}
{{- fail "NATS: set nats.url or nats.existingSecret, or bundled.nats.enabled for evaluation" }}
{{- end }}
{{- end }}
{{- with .Values.database }}
{{- if not (or .url .existingSecret $.Values.bundled.postgresql.enabled) }}
{{- fail "PostgreSQL: set database.url or database.existingSecret, or bundled.postgresql.enabled for evaluation" }}
{{- end }}
{{- end }}
{{- if and .Values.bundled.nats.enabled (gt (int .Values.nats.streamReplicas) 1) }}
{{- fail "nats.streamReplicas: the bundled NATS is one server and can hold one replica only" }}
{{- end }}
{{- include "tocsin.validateSecrets" . }}
{{- include "tocsin.validateNames" . }}
{{- with .Values.networkPolicy }}
{{- if and .enabled .apiFrom (not .metricsFrom) $.Values.metrics.serviceMonitor.enabled }}
{{- fail "networkPolicy.metricsFrom: name who scrapes, since apiFrom closes the port that the API's metrics are served on" }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Not by the schema: what Helm says of a name that does not fit leaves open where it stands. */}}
{{- define "tocsin.validateNames" -}}
{{- if not (regexMatch "^[a-z]" (include "tocsin.fullname" .)) }}
{{- fail (printf "fullnameOverride: names of services begin with a letter, %s does not" (include "tocsin.fullname" .)) }}
{{- end }}
{{- range $group, $_ := .Values.workers }}
{{- if not (regexMatch "^[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?$" $group) }}
{{- fail (printf "workers.%s: use up to 22 lower case letters, digits and dashes, and name the region under it if that differs" $group) }}
{{- end }}
{{- end }}
{{- range list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" "tocsin/group" }}
{{- if hasKey $.Values.commonLabels . }}
{{- fail (printf "commonLabels: %s selects the pods and can't be changed" .) }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Not by patterns of the schema: Helm would print the value that does not fit, and with it the password. */}}
{{- define "tocsin.validateSecrets" -}}
{{- if not (regexMatch "^((nats|tls)://[^,]+(, *(nats|tls)://[^,]+)*)?$" .Values.nats.url) }}
{{- fail "nats.url: begin with nats:// or tls://, each address if there are several, with commas in between" }}
{{- end }}
{{- if not (regexMatch "^(postgres(ql)?://.+)?$" .Values.database.url) }}
{{- fail "database.url: begin with postgresql://" }}
{{- end }}
{{- if not (regexMatch "^([^,]{32,}(,[^,]{32,})*)?$" .Values.secretKeys.value) }}
{{- fail "secretKeys.value: 32 characters or more for each key, with commas in between" }}
{{- end }}
{{- end -}}

{{/* Stop where a bundled server's volume is there and the secret that it was made with is not: with a new password
     nobody could log in any more. */}}
{{- define "tocsin.validateVolume" -}}
{{- $volume := printf "data-%s-0" .name -}}
{{- if and (lookup "v1" "PersistentVolumeClaim" .root.Release.Namespace $volume) (not (lookup "v1" "Secret" .root.Release.Namespace .name)) }}
{{- fail (printf "the secret %s is not in namespace %s, but the volume that was made with it is: restore the secret, or delete the claim %s" .name .root.Release.Namespace $volume) }}
{{- end }}
{{- end -}}

{{/* Kubernetes would refuse it too, but only in the middle of an installation. */}}
{{- define "tocsin.validateScaling" -}}
{{- if gt (int .values.minReplicas) (int .values.maxReplicas) }}
{{- fail (printf "autoscaling of %s: minReplicas %v is more than maxReplicas %v" .name .values.minReplicas .values.maxReplicas) }}
{{- end }}
{{- end -}}
