{{/* The extender's container, and the volumes of its certificates: the same in both modes but for what is asked
     of the caller. */}}
{{- define "gpushare.extenderContainer" -}}
{{- $external := eq .Values.scheduler.mode "external" -}}
{{- $webhook := eq (include "gpushare.admissionMode" .) "webhook" -}}
- name: extender
  image: {{ include "gpushare.image" . | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [gpushare-extender]
  args:
    - --resource={{ .Values.resource.memory }}
    - --unit={{ .Values.resource.unit }}
    - --policy={{ .Values.scheduler.policy }}
    - --reserve={{ int64 .Values.scheduler.reserve }}
    - --audit-interval={{ .Values.scheduler.auditInterval }}
    - --log-level={{ .Values.scheduler.logLevel }}
    {{- if $external }}
    - --listen={{ .Values.listenHost }}:39999
    - --tls-cert=/etc/gpushare/tls/tls.crt
    - --tls-key=/etc/gpushare/tls/tls.key
    - --client-ca=/etc/gpushare/tls/ca.crt
    - --leader-elect
    - --lease-namespace={{ .Release.Namespace }}
    - --leader-label={{ include "gpushare.leaderLabel" . }}
    - --pod-name=$(POD_NAME)
    - --pod-namespace={{ .Release.Namespace }}
    - --shutdown-grace={{ .Values.external.shutdownGrace }}
    {{- else }}
    # kube-scheduler beside it, and nobody else.
    - --listen=127.0.0.1:39999
    {{- end }}
    - --view-listen={{ .Values.listenHost }}:39998
    {{- if $webhook }}
    - --admission-listen={{ .Values.listenHost }}:9443
    - --admission-tls-cert=/etc/gpushare/admission-tls/tls.crt
    - --admission-tls-key=/etc/gpushare/admission-tls/tls.key
    {{- if eq .Values.devicePlugin.mode "units" }}
    - --no-add-slots
    {{- end }}
    {{- with include "gpushare.schedulerNameToSet" . }}
    - --set-scheduler-name={{ . }}
    {{- end }}
    {{- with .Values.admission.setRuntimeClassName }}
    - --set-runtime-class-name={{ . }}
    {{- end }}
    {{- end }}
    {{- if .Values.scheduler.ui }}
    - --ui
    {{- end }}
  {{- if $external }}
  env:
    - name: POD_NAME
      valueFrom: {fieldRef: {fieldPath: metadata.name}}
  {{- end }}
  ports:
    {{- if $external }}
    - {name: verbs, containerPort: 39999}
    {{- end }}
    - {name: view, containerPort: 39998}
    {{- if $webhook }}
    - {name: admission, containerPort: 9443}
    {{- end }}
  # The first list of 5,000 nodes and 50,000 pods keeps it busy for 8 s, more on a slow machine.
  startupProbe:
    httpGet: {path: /healthz, port: view}
    periodSeconds: 2
    timeoutSeconds: 5
    failureThreshold: 60
  readinessProbe:
    httpGet: {path: /readyz, port: view}
    periodSeconds: {{ ternary 1 5 $external }}
    timeoutSeconds: 3
    failureThreshold: {{ ternary 1 3 $external }}
  livenessProbe:
    httpGet: {path: /healthz, port: view}
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 6
  {{- with .Values.scheduler.resources }}
  resources: {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext: {{- include "gpushare.containerSecurity" . | nindent 4 }}
  {{- if or $external $webhook }}
  volumeMounts:
    {{- if $external }}
    - {name: tls, mountPath: /etc/gpushare/tls, readOnly: true}
    {{- end }}
    {{- if $webhook }}
    - {name: admission-tls, mountPath: /etc/gpushare/admission-tls, readOnly: true}
    {{- end }}
  {{- end }}
{{- end }}

{{- define "gpushare.extenderVolumes" -}}
{{- if eq .Values.scheduler.mode "external" }}
- name: tls
  secret: {secretName: gpushare-extender-tls}
{{- end }}
{{- if eq (include "gpushare.admissionMode" .) "webhook" }}
- name: admission-tls
  secret: {secretName: gpushare-admission-tls}
{{- end }}
{{- end }}

{{/* What both Deployments' pods have in common. */}}
{{- define "gpushare.schedulerPod" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.scheduler.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.scheduler.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.scheduler.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
affinity:
{{- if .Values.scheduler.affinity }}
  {{- toYaml .Values.scheduler.affinity | nindent 2 }}
{{- else }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      {{- range $key, $weight := dict "kubernetes.io/hostname" 100 "topology.kubernetes.io/zone" 50 }}
      - weight: {{ $weight }}
        podAffinityTerm:
          topologyKey: {{ $key }}
          labelSelector:
            matchLabels: {{- include "gpushare.selectorLabels" (dict "root" $ "component" (include "gpushare.deciding" $)) | nindent 14 }}
      {{- end }}
{{- end }}
# The extender's binds end within 3.9 s, kube-scheduler's wait for them is 5 s.
terminationGracePeriodSeconds: 30
securityContext: {{- include "gpushare.podSecurity" . | nindent 2 }}
{{- end }}
