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

{{/* What selects the pods of one component. Never changes: selectors of deployments are immutable.
     Names that users choose are quoted, here and elsewhere: YAML takes a bare "no" or "123" for something else. */}}
{{- define "tocsin.selector" -}}
app.kubernetes.io/name: {{ include "tocsin.name" .root | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- with .group }}
tocsin/group: {{ . | quote }}
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

{{/* A variable from the secret of the user, or else from the one that the values are put in. */}}
{{- define "tocsin.secretVariable" -}}
- name: {{ .variable }}
  valueFrom:
    secretKeyRef:
      name: {{ .values.existingSecret | default .own | quote }}
      key: {{ ternary .values.existingSecretKey .key (ne .values.existingSecret "") | quote }}
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

{{/* Variables as YAML, each once: the last one wins, so that users can override what the chart or a wider setting
     says. A server-side apply, the way of Helm 4, refuses a list that names one twice. */}}
{{- define "tocsin.environment" -}}
{{- $last := dict }}
{{- $order := list }}
{{- range fromYamlArray . }}
{{- $_ := set $last .name . }}
{{- $order = append $order .name }}
{{- end }}
{{- range uniq $order }}
{{ list (get $last .) | toYaml }}
{{- end }}
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
priorityClassName: {{ . | quote }}
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
checksum/secrets: {{ list .Values.nats.url .Values.database.url .Values.secretKeys.value | toJson | sha256sum | quote }}
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

{{/* A secret whose keys are made once: each has the value "given", else the one in the cluster, else a fresh one. It
     stays a part of the release when it is not "needed" any more, or a roll-back could not find it. */}}
{{- define "tocsin.keptSecret" -}}
{{- $found := lookup "v1" "Secret" .root.Release.Namespace .name | default dict }}
{{- $given := .given | default "" }}
{{- $maker := dig "metadata" "annotations" "meta.helm.sh/release-name" "" $found }}
{{- if or .needed (eq $maker .root.Release.Name) }}
apiVersion: v1
kind: Secret
metadata:
  name: {{ .name }}
  labels: {{- include "tocsin.labels" (dict "root" .root "component" .component) | nindent 4 }}
  annotations:
    # Outlives the release: what it sealed is still in the database, and volumes remember passwords.
    helm.sh/resource-policy: keep
type: Opaque
data:
  {{- range $key := .keys }}
  {{ $key }}: {{ $given | b64enc | default (get ($found.data | default dict) $key) | default (randAlphaNum 48 | b64enc) }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* Label matchers of this release's series. */}}
{{- define "tocsin.series" -}}
namespace="{{ .Release.Namespace }}",app_kubernetes_io_instance="{{ .Release.Name }}"
{{- end -}}
