{{/* Which pods can never work, and the sentence for each: `variables.refusals`. extender/podrules.py says the same in the same
     words. */}}
{{- define "gpushare.podRules" -}}
{{- $memory := .Values.resource.memory -}}
{{- $slot := include "gpushare.slotResource" . -}}
{{- $domain := include "gpushare.domain" . -}}
{{- $unit := .Values.resource.unit -}}
{{- $bytes := include "gpushare.cel.unitBytes" . -}}
matchConditions:
  - name: asks-for-gpu-memory
    expression: >-
      {{- include "gpushare.cel.asks" . | nindent 6 }}
variables:
  {{- include "gpushare.cel.needs" . | nindent 2 }}
  - name: senseless
    expression: >-
      variables.needs.map(n,
      n.memory == 0 && n.slots == 0 ? '' :
      n.memory == 0 ? "container '" + n.name + "': asks for {{ $slot }} without {{ $memory }}" :
      n.slots == 0 ? "container '" + n.name + "': asks for {{ $memory }} with {{ $slot }}: 0" :
      n.slots > 256 ? "container '" + n.name + "': asks for {{ $slot }}: " + string(n.slots) + ', more cards than any node has' :
      n.memory % n.slots != 0 ? "container '" + n.name + "': {{ $memory }}: " + string(n.memory) + ' does not divide evenly over {{ $slot }}: ' + string(n.slots) :
      '').filter(s, s != '')
  - name: bytes
    expression: >-
      variables.sound.filter(n, {{ include "gpushare.cel.isBytes" (dict "root" . "memory" "n.memory") }})
      .map(n, {'name': dyn(n.name), 'written': dyn(n.written), 'slots': dyn(n.slots), 'meant': dyn((n.memory - 1) / {{ $bytes }} + 1)})
      .map(n, "container '" + n.name + "': {{ $memory }}: '" + n.written + "' counts {{ $unit }}" +
      ({{ include "gpushare.cel.isBytes" (dict "root" . "memory" "n.meant") }} ? ', more than any card has' : ': did you mean ' + string(n.meant) + '?'))
  {{- if eq .Values.devicePlugin.mode "units" }}
  - name: ownSlots
    expression: >-
      variables.sound.filter(n, n.ownSlot).map(n, "container '" + n.name + "' asks for {{ $slot }}, which no node has in units mode: leave it out")
  {{- end }}
  - name: ownEnv
    expression: >-
      variables.sound.filter(n, n.ownEnv).map(n, "container '" + n.name + "' sets NVIDIA_VISIBLE_DEVICES itself, which would win over the card that it is given: remove it")
  - name: crowd
    expression: >-
      (variables.sound.map(n, int(n.slots)) + [0]).sum() > 1024 ? ["the pod's containers ask for more than 1024 slots"] : []
  - name: policy
    expression: >-
      has(object.metadata.annotations) && '{{ $domain }}/gpu-policy' in object.metadata.annotations &&
      !(object.metadata.annotations['{{ $domain }}/gpu-policy'] in ['binpack', 'spread']) ?
      ['annotation {{ $domain }}/gpu-policy: ' +
      (object.metadata.annotations['{{ $domain }}/gpu-policy'].matches('^[-A-Za-z0-9 _.,/:]{0,80}$') ? "'" + object.metadata.annotations['{{ $domain }}/gpu-policy'] + "'" : 'its text') +
      ' is not binpack or spread'] : []
  - name: node
    expression: >-
      has(object.spec.nodeName) && object.spec.nodeName != '' && variables.needs.exists(n, n.memory > 0) ?
      ["the pod names its node ('" + (object.spec.nodeName.size() > 80 ? object.spec.nodeName.substring(0, 79) + '…' : object.spec.nodeName + "'") +
      ') and so passes by the scheduler, which alone gives out cards: use a node selector'] : []
  - name: refusals
    expression: variables.senseless + variables.bytes +{{ if eq .Values.devicePlugin.mode "units" }} variables.ownSlots +{{ end }} variables.ownEnv + variables.crowd + variables.policy + variables.node
{{- end }}
