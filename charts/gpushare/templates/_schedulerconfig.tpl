{{/* The KubeSchedulerConfiguration. `gpushare-extender scheduler-config` prints the same; why each line is there
     stands in extender/schedulerconfig.py. */}}
{{- define "gpushare.schedulerConfiguration" -}}
{{- $external := eq .Values.scheduler.mode "external" -}}
{{- $weight := int .Values.scheduler.extenderWeight -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
{{- if $external }}
clientConnection:
  kubeconfig: /etc/kubernetes/scheduler.conf
{{- end }}
leaderElection:
  leaderElect: true
  resourceLock: leases
  resourceNamespace: {{ ternary "kube-system" .Release.Namespace $external }}
  resourceName: {{ ternary "kube-scheduler" "gpushare-scheduler" $external }}
# Otherwise it stops at a sample of the nodes that fit by their sums.
percentageOfNodesToScore: 100
profiles:
  {{- if and $external (ne .Values.scheduler.name "default-scheduler") }}
  - schedulerName: default-scheduler
  {{- end }}
  - schedulerName: {{ .Values.scheduler.name }}
    plugins:
      multiPoint:
        # What users say outright outweighs the policy.
        enabled:
          - {name: TaintToleration, weight: {{ mul 3 $weight }}}
          - {name: NodeAffinity, weight: {{ mul 2 $weight }}}
          - {name: PodTopologySpread, weight: {{ mul 2 $weight }}}
          - {name: InterPodAffinity, weight: {{ mul 2 $weight }}}
        # They would pull pods apart by CPU, or to where an image is.
        disabled:
          - name: NodeResourcesBalancedAllocation
          - name: ImageLocality
    pluginConfig:
      - name: NodeResourcesFit
        args:
          scoringStrategy:
            type: {{ ternary "LeastAllocated" "MostAllocated" (eq .Values.scheduler.policy "spread") }}
            resources:
              - {name: {{ .Values.resource.memory }}, weight: 1}
      # The built-in constraints would spread the pods of every Deployment.
      - name: PodTopologySpread
        args:
          defaultingType: List
          defaultConstraints: []
extenders:
  - urlPrefix: {{ if $external }}https://{{ include "gpushare.extenderAddress" . }}:39999{{ else }}http://127.0.0.1:39999{{ end }}/gpushare-scheduler
    filterVerb: filter
    prioritizeVerb: prioritize
    preemptVerb: preempt
    bindVerb: bind
    weight: {{ $weight }}
    enableHTTPS: {{ $external }}
    {{- if $external }}
    tlsConfig:
      insecure: false
      # The name in the certificate: the control plane calls the address, its hosts know no names of the cluster.
      serverName: {{ include "gpushare.extenderName" . }}
      caFile: /etc/kubernetes/gpushare/ca.crt
      certFile: /etc/kubernetes/gpushare/tls.crt
      keyFile: /etc/kubernetes/gpushare/tls.key
    {{- end }}
    httpTimeout: 10s
    nodeCacheCapable: true
    # Otherwise pods are bound without a card while the extender is away.
    ignorable: false
    managedResources:
      - {name: {{ .Values.resource.memory }}, ignoredByScheduler: false}
{{- end }}

{{/* A pod that was refused while the extender's view was a moment old is looked at again after 60 s at the least and 90 s
     at the most, where nothing happens in the cluster that kube-scheduler would do it for; without, after 5 minutes.
     A flag only, deprecated since it came with 1.24, and there in 1.36 all the same: a version without it would not
     start with it. */}}
{{- define "gpushare.retryFlag" -}}
{{- if not (include "gpushare.since" (dict "root" . "version" "1.37")) -}}
--pod-max-in-unschedulable-pods-duration=60s
{{- end -}}
{{- end }}

{{/* Mode external: the name in the extender's certificate. */}}
{{- define "gpushare.extenderName" -}}
gpushare-extender.{{ .Release.Namespace }}.svc
{{- end }}

{{/* Mode external: the address of the extender's Service, CLUSTER_IP where nobody knows it yet. */}}
{{- define "gpushare.extenderAddress" -}}
{{- $service := lookup "v1" "Service" .Release.Namespace "gpushare-extender" -}}
{{- $address := .Values.external.clusterIP | default (dig "spec" "clusterIP" "" (default dict $service)) | default "CLUSTER_IP" -}}
{{- if contains ":" $address -}}[{{ $address }}]{{- else -}}{{ $address }}{{- end -}}
{{- end }}
