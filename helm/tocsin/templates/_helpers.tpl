{{- define "tocsin.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Short enough for "-worker-" and the name of a region behind it, within the 63 characters of a label. */}}
{{- define "tocsin.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 30 | trimSuffix "-" -}}
{{- else if contains (include "tocsin.name" .) .Release.Name -}}
{{- .Release.Name | trunc 30 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "tocsin.name" .) | trunc 30 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What selects the pods of one component. Never changes: selectors of deployments are immutable. */}}
{{- define "tocsin.selector" -}}
app.kubernetes.io/name: {{ include "tocsin.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- with .group }}
tocsin/group: {{ . }}
{{- end }}
{{- end -}}

{{- define "tocsin.labels" -}}
{{ include "tocsin.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Of pods: without the version of the chart, which alone is no reason to replace them. */}}
{{- define "tocsin.podLabels" -}}
{{ include "tocsin.selector" . }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "tocsin.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "tocsin.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "tocsin.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

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
{{- end -}}

{{/* A variable from the secret of the user, or else from the one that the values are put in. */}}
{{- define "tocsin.secretVariable" -}}
- name: {{ .variable }}
  valueFrom:
    secretKeyRef:
      name: {{ .values.existingSecret | default .own }}
      key: {{ ternary .values.existingSecretKey .key (ne .values.existingSecret "") }}
{{- end -}}

{{- define "tocsin.natsVariables" -}}
{{- if .Values.bundled.nats.enabled -}}
- name: NATS_PASSWORD
  valueFrom:
    secretKeyRef: {name: {{ include "tocsin.fullname" . }}-nats, key: password}
- name: TOCSIN_NATS_URL
  value: nats://tocsin:$(NATS_PASSWORD)@{{ include "tocsin.fullname" . }}-nats:4222
{{- else -}}
{{ include "tocsin.secretVariable" (dict "variable" "TOCSIN_NATS_URL" "values" .Values.nats "own" (include "tocsin.fullname" .) "key" "nats-url") }}
{{- end }}
- name: TOCSIN_NATS_REPLICAS
  value: {{ .Values.nats.streamReplicas | quote }}
{{- end -}}

{{/* The argument "secret" is the one that holds the URL when it comes from the values. */}}
{{- define "tocsin.databaseVariables" -}}
{{- $root := .root -}}
{{- if $root.Values.bundled.postgresql.enabled -}}
- name: DATABASE_PASSWORD
  valueFrom:
    secretKeyRef: {name: {{ include "tocsin.fullname" $root }}-postgresql, key: password}
- name: TOCSIN_DATABASE_URL
  value: postgresql://tocsin:$(DATABASE_PASSWORD)@{{ include "tocsin.fullname" $root }}-postgresql:5432/tocsin
{{- else -}}
{{ include "tocsin.secretVariable" (dict "variable" "TOCSIN_DATABASE_URL" "values" $root.Values.database "own" .secret "key" "database-url") }}
{{- end }}
{{- end -}}

{{- define "tocsin.keysVariable" -}}
{{ include "tocsin.secretVariable" (dict "variable" "TOCSIN_SECRET_KEYS" "values" .Values.secretKeys "own" (printf "%s-secret-keys" (include "tocsin.fullname" .)) "key" "secret-keys") }}
{{- end -}}

{{- define "tocsin.commonVariables" -}}
- name: TOCSIN_LOG_FORMAT
  value: {{ .Values.config.logFormat }}
- name: TOCSIN_LOG_LEVEL
  value: {{ .Values.config.logLevel }}
{{- end -}}

{{/* For processes that reach out to targets and channels, and run the platform's jobs. */}}
{{- define "tocsin.workVariables" -}}
- name: TOCSIN_ALLOW_PRIVATE_TARGETS
  value: {{ .Values.config.allowPrivateTargets | quote }}
{{- with .Values.config.allowedNetworks }}
- name: TOCSIN_ALLOWED_NETWORKS
  value: {{ join "," . | quote }}
{{- end }}
- name: TOCSIN_RETENTION_DAYS
  value: {{ .Values.config.retentionDays | quote }}
{{- end -}}

{{/* For processes that serve their health beside their work. */}}
{{- define "tocsin.probeVariables" -}}
- name: TOCSIN_METRICS_HOST
  value: {{ .Values.config.listenHost | quote }}
- name: TOCSIN_METRICS_PORT
  value: "9100"
- name: TOCSIN_READY_FILE
  value: /tmp/ready
{{- end -}}

{{/* What all containers of Tocsin share. */}}
{{- define "tocsin.container" -}}
image: {{ include "tocsin.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext: {{- toYaml .Values.containerSecurityContext | nindent 2 }}
{{- with .Values.extraEnvFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  # The only place that is written to: the root file system is read-only.
  - {name: tmp, mountPath: /tmp}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* What all pods of Tocsin share; takes "root" and the component's "values". */}}
{{- define "tocsin.pod" -}}
{{- $root := .root -}}
# Nothing here talks to Kubernetes.
automountServiceAccountToken: false
# A service "tocsin-api" would set TOCSIN_API_PORT=tcp://… in every pod, which is the name of a setting.
enableServiceLinks: false
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  - name: tmp
    emptyDir: {medium: Memory, sizeLimit: 16Mi}
  {{- with $root.Values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* Pods start anew when a value that they only read at their start has changed. */}}
{{- define "tocsin.podAnnotations" -}}
checksum/secrets: {{ list .Values.nats.url .Values.database.url .Values.secretKeys.value | toJson | sha256sum }}
{{- with .Values.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Preferred, not required: a cluster that has one zone or node left still runs everything. */}}
{{- define "tocsin.topologySpread" -}}
{{- $selector := include "tocsin.selector" . -}}
topologySpreadConstraints:
  {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- $selector | nindent 8 }}
  {{- end }}
{{- end -}}

{{/* A process is alive while its event loop answers; the scheduler's answer also says whether its beat goes on.
     Starting may wait for servers and load many schedules, so liveness is only asked afterwards. */}}
{{- define "tocsin.livenessProbes" -}}
startupProbe:
  httpGet: {path: /livez, port: {{ .port }}}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 90
livenessProbe:
  httpGet: {path: /livez, port: {{ .port }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
{{- end -}}

{{/* The value of a key that is made once: the one in the cluster, else a fresh one. Encoded for a secret. */}}
{{- define "tocsin.kept" -}}
{{- $found := lookup "v1" "Secret" .root.Release.Namespace .name | default dict -}}
{{- $data := get $found "data" | default dict -}}
{{- get $data .key | default (randAlphaNum 48 | b64enc) -}}
{{- end -}}

{{/* Label matchers of this release's series. */}}
{{- define "tocsin.series" -}}
namespace="{{ .Release.Namespace }}",app_kubernetes_io_instance="{{ .Release.Name }}"
{{- end -}}
