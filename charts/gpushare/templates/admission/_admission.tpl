{{/* The scheduler's name that pods without one get; empty where they get none. */}}
{{- define "gpushare.schedulerNameToSet" -}}
{{- if and .Values.admission.setSchedulerName (eq .Values.scheduler.mode "pair") -}}
{{- .Values.scheduler.name -}}
{{- end -}}
{{- end }}

{{/* "true" if there is anything to add to a pod: units need no slots. */}}
{{- define "gpushare.mutates" -}}
{{- if or (eq .Values.devicePlugin.mode "slots") (include "gpushare.schedulerNameToSet" .) .Values.admission.setRuntimeClassName -}}true{{- end -}}
{{- end }}

{{/* All namespaces but those that the cluster, and whoever answers the webhooks, may need to start. Policies are
     answered by the API server itself. */}}
{{- define "gpushare.reviewedNamespaces" -}}
{{- $answering := ternary (list .Release.Namespace) list (eq (include "gpushare.admissionMode" .) "webhook") -}}
namespaceSelector:
  matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: {{ concat (list "kube-system") $answering .Values.admission.exemptNamespaces | uniq | toJson }}
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

{{/* What all webhooks have in common: ("root" $ "path" "/…" "bundle" "…" "failurePolicy" "Fail"). Before Kubernetes 1.28 a
     webhook has no conditions and every new pod outside the exempt namespaces is sent to it. */}}
{{- define "gpushare.webhook" -}}
admissionReviewVersions: [v1]
sideEffects: None
timeoutSeconds: {{ ternary 5 2 (eq .failurePolicy "Fail") }}
failurePolicy: {{ .failurePolicy }}
matchPolicy: Equivalent
{{ include "gpushare.reviewedNamespaces" .root }}
rules:
  - apiGroups: [""]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [pods]
    scope: Namespaced
clientConfig:
  service:
    name: gpushare-admission
    namespace: {{ .root.Release.Namespace }}
    port: 9443
    path: {{ .path }}
  {{- with .bundle }}
  caBundle: {{ . }}
  {{- end }}
{{- end }}
