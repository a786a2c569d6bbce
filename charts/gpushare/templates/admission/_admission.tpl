{{/* The scheduler's name that pods without one get; empty where they get none. */}}
{{- define "gpushare.schedulerNameToSet" -}}
{{- if and .Values.admission.setSchedulerName (eq .Values.scheduler.mode "pair") -}}
{{- .Values.scheduler.name -}}
{{- end -}}
{{- end }}

{{/* "true" if there is anything to add to a pod: units need no slots. */}}
{{- define "gpushare.mutates" -}}
{{- if or (eq .Values.devicePlugin.mode "slots") (include "gpushare.schedulerNameToSet" .) -}}true{{- end -}}
{{- end }}

{{/* All namespaces but those that gpushare itself, and the cluster, may need to start. */}}
{{- define "gpushare.reviewedNamespaces" -}}
namespaceSelector:
  matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: {{ concat (list "kube-system" .Release.Namespace) .Values.admission.exemptNamespaces | uniq | toJson }}
{{- end }}

{{/* What a pod asks for cannot be changed later: only new ones are looked at. */}}
{{- define "gpushare.newPods" -}}
{{ include "gpushare.reviewedNamespaces" . }}
resourceRules:
  - apiGroups: [""]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [pods]
{{- end }}
