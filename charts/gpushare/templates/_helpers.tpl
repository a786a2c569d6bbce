{{/* Labels of an object. Call with (dict "root" $ "component" "scheduler"); component may be left out. */}}
{{- define "gpushare.labels" -}}
{{ include "gpushare.selectorLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* What selectors go by; may not change between versions of the chart. */}}
{{- define "gpushare.selectorLabels" -}}
app.kubernetes.io/name: gpushare
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{/* The image of gpushare's programs. */}}
{{- define "gpushare.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* "true" if the cluster is of this version or later: (dict "root" $ "version" "1.36"). By the version, not by
     API versions: those are unknown to `helm template`. A provider's suffix or a pre-release counts as the version. */}}
{{- define "gpushare.since" -}}
{{- if semverCompare (printf ">=%s.0-0" .version) .root.Capabilities.KubeVersion.Version -}}true{{- end -}}
{{- end }}

{{/* The cluster's version without a provider's suffix: v1.30.5-gke.100 and v1.30.5+k3s1 are v1.30.5. */}}
{{- define "gpushare.plainKubeVersion" -}}
{{- regexFind "^v?[0-9]+\\.[0-9]+\\.[0-9]+" .Capabilities.KubeVersion.Version -}}
{{- end }}

{{/* Names derived from the resource, as gpushare/names.py does. */}}
{{- define "gpushare.domain" -}}
{{- (splitList "/" .Values.resource.memory) | first -}}
{{- end }}
{{- define "gpushare.slotResource" -}}
{{- include "gpushare.domain" . -}}/gpu-slot
{{- end }}
{{- define "gpushare.countResource" -}}
{{- include "gpushare.domain" . -}}/gpu-count
{{- end }}
{{- define "gpushare.prefix" -}}
{{- regexReplaceAll "[^A-Z0-9]" (upper .Values.resource.memory) "_" -}}
{{- end }}

{{/* Which component makes the decisions; its Deployment, ServiceAccount and Service are called gpushare-COMPONENT. */}}
{{- define "gpushare.deciding" -}}
{{- if eq .Values.scheduler.mode "external" -}}extender{{- else -}}scheduler{{- end -}}
{{- end }}

{{/* By which the Service of mode external finds the replica that leads: its value is "true" there. */}}
{{- define "gpushare.leaderLabel" -}}
gpushare/leader
{{- end }}

{{/* policy, webhook or none. */}}
{{- define "gpushare.admissionMode" -}}
{{- if ne .Values.admission.mode "auto" -}}
{{- .Values.admission.mode -}}
{{- else if include "gpushare.since" (dict "root" . "version" "1.36") -}}
policy
{{- else -}}
webhook
{{- end -}}
{{- end }}

{{/* "true" if the device plugin is to be fenced in. */}}
{{- define "gpushare.nodeFence" -}}
{{- $wanted := toString .Values.nodeFence.enabled -}}
{{- if eq $wanted "auto" -}}
{{- include "gpushare.since" (dict "root" . "version" "1.32") -}}
{{- else if eq $wanted "true" -}}
true
{{- end -}}
{{- end }}

{{/* The labels of nodes that share their cards, as YAML; without those that were taken away. */}}
{{- define "gpushare.pluginNodes" -}}
{{- range $key, $value := .Values.devicePlugin.nodeSelector }}
{{- if kindIs "string" $value }}
{{ $key }}: {{ $value | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* Of every container of ours; the device plugin's is another (kubelet's folders belong to root). */}}
{{- define "gpushare.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}
{{- define "gpushare.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* Hook annotations of weight `.`. Kept when the Job fails, so that its log can be read; gone before the next try. */}}
{{- define "gpushare.uninstallHook" -}}
helm.sh/hook: post-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
