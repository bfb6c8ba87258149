{{- define "txlog.cluster" -}}
{{- .Values.name | default .Release.Name -}}
{{- end }}

{{- define "txlog.labels" -}}
app.kubernetes.io/part-of: txlog
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}
