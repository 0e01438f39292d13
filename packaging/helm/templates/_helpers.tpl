{{/* The name of all objects: that of the release, with "microcache" in it. */}}
{{- define "microcache.name" -}}
{{- $release := .Release.Name -}}
{{- if not (contains "microcache" $release) }}{{ $release = printf "%s-microcache" $release }}{{ end -}}
{{- $release | trunc 57 | trimSuffix "-" -}}
{{- end }}

{{- define "microcache.selector" -}}
app.kubernetes.io/name: microcache
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "microcache.metadata" -}}
name: {{ include "microcache.name" . }}
labels: {{- include "microcache.selector" . | nindent 2 }}
{{- end }}

{{- define "microcache.tokenSecret" -}}
{{- $token := .Values.admin.token -}}
{{- if and $token .Values.admin.secret }}{{ fail "admin.token and admin.secret: only one of them" }}{{ end -}}
{{- if not (or $token .Values.admin.secret) }}{{ fail "admin.token, or admin.secret with the name of a Secret, is required" }}{{ end -}}
{{- .Values.admin.secret | default (include "microcache.name" .) -}}
{{- end }}

{{- define "microcache.toml" -}}
listen = "{{ .Values.address }}:8080"
origin = {{ toRawJson .Values.origin }}
memory = "{{ int .Values.memory }}MiB"
threads = {{ int .Values.threads }}
# Whose X-Forwarded-For is believed.
trusted_proxies = {{ toRawJson .Values.trustedProxies }}
# The kubelet and Prometheus connect from other machines, so a secret is required. Probes need none.
admin = "{{ .Values.address }}:8081"
admin_token_file = "/run/secrets/microcache/token"
# Longer than Service and Ingress take to remove a pod that is not ready; until then it serves.
drain_delay = "{{ int .Values.drain.delay }}s"
# Then at most this long for requests in progress.
drain_timeout = "{{ int .Values.drain.timeout }}s"
{{- if .Values.redis.secret }}
redis = "${REDIS_URL}"
{{- end }}
{{- if .Values.reload }}
reload_on_change = true
{{- end }}
{{- with .Values.config }}
{{ trim . }}
{{- end }}
{{- end }}
