{{- define "ccm.pod" -}}
metadata:
  labels:
    {{- include "ccm.selector" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- if or .Values.podAnnotations .Values.commonAnnotations .Values.cloudConfig.content }}
  annotations:
    {{- with .Values.cloudConfig.content }}
    # Another content restarts the pods.
    checksum/cloud-config: {{ sha256sum . }}
    {{- end }}
    {{- with merge (dict) .Values.podAnnotations .Values.commonAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
spec:
  serviceAccountName: {{ include "ccm.serviceaccount" . }}
  # The token is mounted below, readable by this container only, and renewed every hour.
  automountServiceAccountToken: false
  enableServiceLinks: false
  priorityClassName: {{ .Values.priorityClassName }}
  {{- if .Values.hostNetwork }}
  # Pods get a network only when nodes have addresses and routes, which this program provides: so it needs none.
  hostNetwork: true
  # The host's resolver: the cluster's DNS runs on nodes that wait for this program.
  dnsPolicy: {{ .Values.dnsPolicy | default "Default" }}
  {{- else }}
  dnsPolicy: {{ .Values.dnsPolicy | default "ClusterFirst" }}
  {{- end }}
  {{- with .Values.dnsConfig }}
  dnsConfig:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.hostAliases }}
  hostAliases:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if hasKey .Values "affinity" }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- else if .Values.controlPlaneOnly }}
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
          - matchExpressions:
              - {key: node-role.kubernetes.io/control-plane, operator: Exists}
  {{- end }}
  {{- with concat (.Values.tolerations | default list) (.Values.extraTolerations | default list) }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if hasKey .Values "topologySpreadConstraints" }}
  {{- with .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- else if eq .Values.kind "Deployment" }}
  topologySpreadConstraints:
    # No two replicas on one node: they would want the same port of it.
    - topologyKey: kubernetes.io/hostname
      maxSkew: 1
      whenUnsatisfiable: DoNotSchedule
      labelSelector:
        matchLabels:
          {{- include "ccm.selector" . | nindent 10 }}
    - topologyKey: topology.kubernetes.io/zone
      maxSkew: 1
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "ccm.selector" . | nindent 10 }}
  {{- end }}
  securityContext:
    {{- toYaml .Values.podSecurityContext | nindent 4 }}
  {{- with .Values.initContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: cloud-controller-manager
      {{- $image := .Values.image }}
      image: {{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}{{ with $image.digest }}@{{ . }}{{ end }}
      imagePullPolicy: {{ $image.pullPolicy }}
      args:
        - --cloud-provider={{ .Values.cloudProvider }}
        {{- if include "ccm.cloudconfig" . }}
        - --cloud-config=/etc/cloud-controller-manager/cloud-config/{{ .Values.cloudConfig.key }}
        {{- else if .Values.cloudConfig.path }}
        - {{ printf "--cloud-config=%s" .Values.cloudConfig.path | quote }}
        {{- end }}
        - {{ printf "--cluster-name=%s" .Values.clusterName | quote }}
        - {{ printf "--controllers=%s" (join "," .Values.controllers) | quote }}
        {{- with .Values.loadBalancerClasses }}
        {{- $classes := list }}
        {{- range . }}
        {{- $classes = append $classes (. | default "\"\"") }}
        {{- end }}
        - {{ printf "--load-balancer-classes=%s" (join "," $classes) | quote }}
        {{- end }}
        - --leader-elect-resource-name={{ .Values.leaderElection.leaseName }}
        - --leader-elect-resource-namespace={{ .Values.leaderElection.leaseNamespace }}
        - {{ printf "--bind-address=%s" .Values.bindAddress | quote }}
        - --secure-port={{ int .Values.securePort }}
        {{- if .Values.tlsSecretName }}
        - --tls-cert-file=/etc/cloud-controller-manager/tls/tls.crt
        - --tls-private-key-file=/etc/cloud-controller-manager/tls/tls.key
        {{- end }}
        {{- if .Values.webhooks.names }}
        - {{ printf "--webhooks=%s" (join "," .Values.webhooks.names) | quote }}
        - --webhook-secure-port={{ int .Values.webhooks.port }}
        {{- if .Values.webhooks.tlsSecretName }}
        - --webhook-tls-cert-file=/etc/cloud-controller-manager/webhook-tls/tls.crt
        - --webhook-tls-private-key-file=/etc/cloud-controller-manager/webhook-tls/tls.key
        {{- end }}
        {{- end }}
        {{- range $name, $value := .Values.flags }}
        - {{ printf "--%s=%s" $name (include "ccm.text" $value) | quote }}
        {{- end }}
      {{- if or .Values.env .Values.apiServer.host }}
      env:
        {{- with .Values.apiServer }}
        {{- if .host }}
        - name: KUBERNETES_SERVICE_HOST
          value: {{ .host | quote }}
        - name: KUBERNETES_SERVICE_PORT
          value: {{ int .port | quote }}
        {{- end }}
        {{- end }}
        {{- with .Values.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
      {{- with .Values.envFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        - name: https
          containerPort: {{ int .Values.securePort }}
        {{- if .Values.webhooks.names }}
        - name: webhooks
          containerPort: {{ int .Values.webhooks.port }}
        {{- end }}
      # Asked by the kubelet on the host's own address: the pod may have none before this program has done its work.
      startupProbe:
        httpGet: {{ include "ccm.probe" (list . "/livez") }}
        {{- toYaml .Values.probes.startup | nindent 8 }}
      livenessProbe:
        httpGet: {{ include "ccm.probe" (list . "/livez") }}
        {{- toYaml .Values.probes.liveness | nindent 8 }}
      readinessProbe:
        httpGet: {{ include "ccm.probe" (list . "/readyz") }}
        {{- toYaml .Values.probes.readiness | nindent 8 }}
      {{- if hasKey .Values "resources" }}
      {{- with .Values.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- else }}
      resources:
        limits:
          memory: 512Mi
        requests:
          cpu: 100m
          memory: 128Mi
      {{- end }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: [ALL]
      volumeMounts:
        - name: api-access
          mountPath: /var/run/secrets/kubernetes.io/serviceaccount
          readOnly: true
        {{- if include "ccm.cloudconfig" . }}
        - name: cloud-config
          mountPath: /etc/cloud-controller-manager/cloud-config
          readOnly: true
        {{- end }}
        {{- if .Values.tlsSecretName }}
        - name: tls
          mountPath: /etc/cloud-controller-manager/tls
          readOnly: true
        {{- end }}
        {{- if and .Values.webhooks.names .Values.webhooks.tlsSecretName }}
        - name: webhook-tls
          mountPath: /etc/cloud-controller-manager/webhook-tls
          readOnly: true
        {{- end }}
        {{- with .Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: api-access
      projected:
        defaultMode: 0440
        sources:
          - serviceAccountToken:
              path: token
              expirationSeconds: 3600
          - configMap:
              name: kube-root-ca.crt
              items: [{key: ca.crt, path: ca.crt}]
          - downwardAPI:
              items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]
    {{- with include "ccm.cloudconfig" . }}
    - name: cloud-config
      {{- if $.Values.cloudConfig.configMapName }}
      configMap:
        name: {{ . }}
        defaultMode: 0440
      {{- else }}
      secret:
        secretName: {{ . }}
        defaultMode: 0440
      {{- end }}
    {{- end }}
    {{- with .Values.tlsSecretName }}
    - name: tls
      secret:
        secretName: {{ . }}
        defaultMode: 0440
    {{- end }}
    {{- if and .Values.webhooks.names .Values.webhooks.tlsSecretName }}
    - name: webhook-tls
      secret:
        secretName: {{ .Values.webhooks.tlsSecretName }}
        defaultMode: 0440
    {{- end }}
    {{- with .Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{- /* Where the kubelet asks: over the loopback interface, unless the manager listens on one address only, or the pod has
a network of its own. */ -}}
{{- define "ccm.probe" -}}
{{- $root := first . }}
{{- $address := $root.Values.bindAddress }}
{{- $open := has $address (list "0.0.0.0" "::" "") }}
{{- $host := and $open $root.Values.hostNetwork | ternary "127.0.0.1" ($open | ternary "" $address) -}}
{scheme: HTTPS, {{ with $host }}host: {{ . | quote }}, {{ end }}port: https, path: {{ last . }}}
{{- end }}
