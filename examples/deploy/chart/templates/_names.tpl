{{- define "ccm.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "ccm.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "ccm.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "ccm.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "ccm.selector" -}}
app.kubernetes.io/name: {{ include "ccm.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "ccm.metadata" -}}
name: {{ include "ccm.fullname" . }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "ccm.selector" . | nindent 2 }}
{{- with .Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Half of the pods, rounded up: what kube-controller-manager does with a DaemonSet's 50%, but not with a Deployment's. */ -}}
{{- define "ccm.maxunavailable" -}}
{{- .Values.maxUnavailable | default (eq .Values.kind "DaemonSet" | ternary "50%" (max 1 (div (add1 .Values.replicas) 2))) }}
{{- end }}

{{- define "ccm.serviceaccount" -}}
{{- if .Values.serviceAccount.create }}
{{- .Values.serviceAccount.name | default (include "ccm.fullname" .) }}
{{- else }}
{{- .Values.serviceAccount.name | required "serviceAccount.create is false: give serviceAccount.name" }}
{{- end }}
{{- end }}

{{- define "ccm.cloudconfig" -}}
{{- if .Values.cloudConfig.content }}
{{- printf "%s-cloud-config" (include "ccm.fullname" .) }}
{{- else }}
{{- .Values.cloudConfig.secretName | default .Values.cloudConfig.configMapName }}
{{- end }}
{{- end }}

{{- /* A flag's value as people write it: 1000000, not 1e+06. */ -}}
{{- define "ccm.text" -}}
{{- if and (kindIs "float64" .) (eq (float64 (int64 .)) .) }}{{ int64 . }}{{ else }}{{ . }}{{ end }}
{{- end }}

{{- /* The names of the controllers that .Values.controllers turns on, as JSON: what --controllers does in the manager. */ -}}
{{- define "ccm.controllers" -}}
{{- $words := .Values.controllers }}
{{- $known := list "*" }}
{{- $on := list }}
{{- range (.Files.Get "files/permissions.yaml" | fromYaml).controllers }}
{{- $given := false }}
{{- $left := false }}
{{- range (concat (list .name) .aliases) }}
{{- $known = concat $known (list . (printf "-%s" .)) }}
{{- $given = or $given (has . $words) }}
{{- $left = or $left (has (printf "-%s" .) $words) }}
{{- end }}
{{- if and (not $left) (or $given (and .onByDefault (has "*" $words))) }}
{{- $on = append $on .name }}
{{- end }}
{{- end }}
{{- range $words }}
{{- if not (has . $known) }}
{{- fail (printf "controllers: no controller is called %q; known: %s" . (join ", " $known)) }}
{{- end }}
{{- end }}
{{- if not $on }}
{{- fail "controllers: no controller is left to run" }}
{{- end }}
{{- toJson $on }}
{{- end }}
