{{- define "tocsin.cpuAutoscaler" -}}
{{- include "tocsin.validateScaling" . -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ .name }}
  labels: {{- include "tocsin.labels" .scope | nindent 4 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ .name }}}
  minReplicas: {{ .values.minReplicas }}
  maxReplicas: {{ .values.maxReplicas }}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target: {type: Utilization, averageUtilization: {{ .values.cpuPercent }}}
{{- end -}}

{{/* By the checks that wait for the region: CPU says little about a worker that mostly waits for targets. */}}
{{- define "tocsin.queueAutoscaler" -}}
{{- include "tocsin.validateScaling" . -}}
{{- $endpoint := .root.Values.nats.monitoringEndpoint }}
{{- if and (not $endpoint) .root.Values.bundled.nats.enabled }}
{{- $endpoint = printf "%s-nats.%s:8222" (include "tocsin.fullname" .root) .root.Release.Namespace }}
{{- end -}}
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: {{ .name }}
  labels: {{- include "tocsin.labels" .scope | nindent 4 }}
spec:
  scaleTargetRef: {name: {{ .name }}}
  minReplicaCount: {{ .values.minReplicas }}
  maxReplicaCount: {{ .values.maxReplicas }}
  triggers:
    - type: nats-jetstream
      metadata:
        natsServerMonitoringEndpoint: {{ required "nats.monitoringEndpoint: KEDA reads the queue there (host:8222)" $endpoint | quote }}
        account: $G
        stream: CHECKS
        consumer: worker-{{ .region }}
        lagThreshold: {{ .values.pendingChecks | quote }}
{{- end -}}
