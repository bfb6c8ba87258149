{{- define "txlog.name" -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end }}

{{- define "txlog.account" -}}
{{- .Values.serviceAccount.name | default (include "txlog.name" .) -}}
{{- end }}

{{- define "txlog.namespaceRole" -}}
txlog-operator
{{- end }}

{{- define "txlog.pipelineAccount" -}}
{{- printf "%s-pipeline" (include "txlog.name" .) -}}
{{- end }}

{{- define "txlog.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end }}

{{- define "txlog.namespaces" -}}
{{- .Values.watchNamespaces | default (list .Release.Namespace) | toJson -}}
{{- end }}

{{- define "txlog.selector" -}}
app.kubernetes.io/name: txlog-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "txlog.labels" -}}
{{ include "txlog.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.extraLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}
