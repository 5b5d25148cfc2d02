// Not built: its one module holds the CustomResourceDefinitions of PodMonitor and PrometheusRule.
module envtest/crds

go 1.24.0

require github.com/prometheus-operator/prometheus-operator v0.85.0
