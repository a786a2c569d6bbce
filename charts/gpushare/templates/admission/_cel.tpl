{{/* What the rules in CEL are made of. They say what extender/podrules.py and extender/admission.py say, word for
     word: tests/admission_cases.py holds one table against all of them. `object` is a new pod throughout. */}}

{{/* Every container that may ask for a card. One without any arrives as null until the pod was validated. */}}
{{- define "gpushare.cel.containers" -}}
((has(object.spec.initContainers) ? object.spec.initContainers : []) + (has(object.spec.containers) && type(object.spec.containers) == list ? object.spec.containers : []))
{{- end }}

{{/* Whether a container names one of the resources: ("resources" "a list in CEL"). */}}
{{- define "gpushare.cel.asks" -}}
{{ include "gpushare.cel.containers" . }}.exists(c, has(c.resources) && has(c.resources.limits) && ('{{ .Values.resource.memory }}' in c.resources.limits || '{{ include "gpushare.slotResource" . }}' in c.resources.limits))
{{- end }}

{{/* Whether the pod has a key of our domain anywhere. */}}
{{- define "gpushare.cel.namesDomain" -}}
{{- $ours := printf "k.startsWith('%s/')" (include "gpushare.domain" .) -}}
(has(object.metadata.annotations) && object.metadata.annotations.exists(k, {{ $ours }})) ||
(has(object.metadata.labels) && object.metadata.labels.exists(k, {{ $ours }})) ||
{{ include "gpushare.cel.containers" . }}.exists(c, has(c.resources) &&
((has(c.resources.limits) && c.resources.limits.exists(k, {{ $ours }})) ||
(has(c.resources.requests) && c.resources.requests.exists(k, {{ $ours }}))))
{{- end }}

{{/* Bytes of one unit, and what of it no card has (extender/podrules.py: NO_CARD, NO_ROUND_CARD, SMALLEST_USE). */}}
{{- define "gpushare.cel.unitBytes" -}}
{{- if eq .Values.resource.unit "GiB" -}}1073741824{{- else -}}1048576{{- end -}}
{{- end }}
{{- define "gpushare.cel.isBytes" -}}
{{- $bytes := include "gpushare.cel.unitBytes" .root | int64 -}}
({{ .memory }} / n.slots > {{ div 17592186044416 $bytes }} || ({{ .memory }} / n.slots > {{ div 1099511627776 $bytes }} && {{ .memory }} % {{ $bytes }} == 0))
{{- end }}

{{/* The whole number that a quantity stands for. Long ones (19 digits; 100Ti) are no integers to Kubernetes, whatever
     their value; one as large as it counts at most stands for all beyond. */}}
{{- define "gpushare.cel.units" -}}
(quantity({{ . }}).isInteger() ? quantity({{ . }}).asInteger() : quantity({{ . }}).asApproximateFloat() < 9.2e18 ? int(quantity({{ . }}).asApproximateFloat()) : 9223372036854775807)
{{- end }}

{{/* What each asking container needs, as maps; and those of them that make sense. Two variables of a policy. */}}
{{- define "gpushare.cel.needs" -}}
{{- $memory := .Values.resource.memory -}}
{{- $slot := include "gpushare.slotResource" . -}}
- name: needs
  expression: >-
    {{ include "gpushare.cel.containers" . }}
    .filter(c, has(c.resources) && has(c.resources.limits) &&
    ('{{ $memory }}' in c.resources.limits || '{{ $slot }}' in c.resources.limits))
    .map(c, {
    'name': dyn(c.name),
    'written': dyn('{{ $memory }}' in c.resources.limits ? string(c.resources.limits['{{ $memory }}']) : ''),
    'memory': dyn('{{ $memory }}' in c.resources.limits ? {{ include "gpushare.cel.units" (printf "c.resources.limits['%s']" $memory) }} : 0),
    'slots': dyn('{{ $slot }}' in c.resources.limits ? {{ include "gpushare.cel.units" (printf "c.resources.limits['%s']" $slot) }} :
    ('{{ $memory }}' in c.resources.limits && {{ include "gpushare.cel.units" (printf "c.resources.limits['%s']" $memory) }} > 0 ? 1 : 0)),
    'ownSlot': dyn('{{ $slot }}' in c.resources.limits),
    'ownEnv': dyn(has(c.env) && c.env.exists(e, e.name == 'NVIDIA_VISIBLE_DEVICES'))
    })
- name: sound
  expression: >-
    variables.needs.filter(n, n.memory > 0 && n.slots > 0 && n.slots <= 256 && n.memory % n.slots == 0)
{{- end }}

{{/* The first ten sentences of a list, as one. */}}
{{- define "gpushare.cel.told" -}}
({{ . }}.size() > 10 ? {{ . }}.slice(0, 10) : {{ . }}).join('; ')
{{- end }}

{{/* 'key', cut as gpushare.errors.quoted cuts it. */}}
{{- define "gpushare.cel.quotedKey" -}}
(k.size() > 80 ? "'" + k.substring(0, 79) + '…' : "'" + k + "'")
{{- end }}

{{/* How like a name a key is, in percent: pairs of letters in common. Call with the name's part after the slash. */}}
{{- define "gpushare.cel.likeness" -}}
{{- $pairs := list -}}
{{- $name := lower . -}}
{{- range $i := until (sub (len $name) 1 | int) -}}
{{- $pairs = append $pairs (printf "'%s'" (substr $i (add $i 2 | int) $name)) -}}
{{- end -}}
200 * [{{ join ", " $pairs }}].filter(p, u.part.contains(p)).size() / ({{ len $name }} + u.part.size())
{{- end }}
