{{/* Certificates made by the chart. What is in the cluster is kept: a CA for as long as its Secret is there, a
     certificate until two thirds of its life are over or its names change. */}}

{{/* "true" if any are needed. */}}
{{- define "gpushare.needsCertificates" -}}
{{- if or (eq .Values.scheduler.mode "external") (eq (include "gpushare.admissionMode" .) "webhook") -}}true{{- end -}}
{{- end }}

{{/* The certificates by the name of their Secret, as YAML: {cn, dns, ips}. */}}
{{- define "gpushare.wantedCertificates" -}}
{{- if eq .Values.scheduler.mode "external" }}
gpushare-extender-tls:
  cn: gpushare-extender
  usage: server auth
  dns:
    - {{ include "gpushare.extenderName" . }}
    - {{ include "gpushare.extenderName" . }}.cluster.local
    - gpushare-extender.{{ .Release.Namespace }}
    - gpushare-extender
    {{- range .Values.external.extraNames }}
    - {{ . | quote }}
    {{- end }}
  ips: {{ append .Values.external.extraAddresses .Values.external.clusterIP | compact | toJson }}
gpushare-scheduler-client:
  cn: kube-scheduler
  usage: client auth
  dns: [kube-scheduler]
  ips: []
{{- end }}
{{- if eq (include "gpushare.admissionMode" .) "webhook" }}
gpushare-admission-tls:
  cn: gpushare-admission
  usage: server auth
  dns: [gpushare-admission.{{ .Release.Namespace }}.svc]
  ips: []
{{- end }}
{{- end }}

{{/* Makes or takes over everything once per rendering, into .Values.made: {authority: {cert, key}, SECRET: {cert, key,
     mark, renewAfter}}, all texts in base64. Helm renders the files of a chart over one map of values; without this
     every file would have a CA of its own. */}}
{{- define "gpushare.makeCertificates" -}}
{{- if not (hasKey .Values "made") -}}
  {{- $ca := "" -}}
  {{- $kept := lookup "v1" "Secret" .Release.Namespace "gpushare-ca" | default dict -}}
  {{- with $kept.data -}}
    {{- $ca = buildCustomCert (index . "tls.crt") (index . "tls.key") -}}
  {{- else -}}
    {{- $ca = genCA "gpushare" 7300 -}}
  {{- end -}}
  {{- $made := dict "authority" (dict "cert" (b64enc $ca.Cert) "key" (b64enc $ca.Key)) -}}
  {{- $now := now | unixEpoch | int64 -}}
  {{- $days := int .Values.certificates.validityDays -}}
  {{- range $name, $wanted := include "gpushare.wantedCertificates" . | fromYaml -}}
    {{- $mark := printf "%s%s" $ca.Cert (toJson $wanted) | sha256sum -}}
    {{- $there := lookup "v1" "Secret" $.Release.Namespace $name | default dict -}}
    {{- $notes := dig "metadata" "annotations" dict $there -}}
    {{- if and $there.data (eq (index $notes "gpushare/made-for" | default "") $mark) (lt $now (index $notes "gpushare/renew-after" | default "0" | int64)) -}}
      {{- $_ := set $made $name (dict "cert" (index $there.data "tls.crt") "key" (index $there.data "tls.key") "mark" $mark "renewAfter" (index $notes "gpushare/renew-after")) -}}
    {{- else -}}
      {{- $pair := genSignedCert $wanted.cn $wanted.ips $wanted.dns $days $ca -}}
      {{- $_ := set $made $name (dict "cert" (b64enc $pair.Cert) "key" (b64enc $pair.Key) "mark" $mark "renewAfter" (add $now (mul $days 57600) | toString)) -}}
    {{- end -}}
  {{- end -}}
  {{- $_ := set .Values "made" $made -}}
{{- end -}}
{{- end }}

{{/* For a webhook's clientConfig; empty with cert-manager, which puts it in itself. */}}
{{- define "gpushare.admissionCaBundle" -}}
{{- if eq .Values.certificates.mode "chart" -}}
{{- include "gpushare.makeCertificates" . -}}
{{- .Values.made.authority.cert -}}
{{- end -}}
{{- end }}

{{/* Annotations of a webhook configuration: where cert-manager takes the CA from. */}}
{{- define "gpushare.admissionCaAnnotations" -}}
{{- if eq .Values.certificates.mode "cert-manager" -}}
cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/gpushare-admission-tls
{{- end -}}
{{- end }}
