"""The objects that a cluster starts with: its DNS, and a demo behind a load balancer. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.lab.cluster.staticimages import BUSYBOX, COREDNS

Object = dict[str, Any]
DEMO = "hello"

_COREFILE = """.:53 {
    errors
    health
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }
    prometheus :9153
    cache 30
    reload
    loadbalance
}
"""
"""Names outside the cluster are not resolved: its machines reach nothing there."""


def dns(address: str) -> list[Object]:
    """CoreDNS at that address, under the names that every cluster has."""
    name, labels = "coredns", {"k8s-app": "kube-dns"}
    rules = [
        {"apiGroups": [""], "resources": ["endpoints", "services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    role = f"system:{name}"
    container = {
        "name": name,
        "image": COREDNS,
        "imagePullPolicy": "Never",
        "args": ["/bin/coredns", "-conf", "/etc/coredns/Corefile"],
        "ports": [
            {"name": "dns", "containerPort": 53, "protocol": "UDP"},
            {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"},
            {"name": "metrics", "containerPort": 9153, "protocol": "TCP"},
        ],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 2},
        "livenessProbe": {"httpGet": {"path": "/health", "port": 8080}, "periodSeconds": 10},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
        "securityContext": {"readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False},
    }
    pod = {
        "serviceAccountName": name,
        "priorityClassName": "system-cluster-critical",
        "dnsPolicy": "Default",
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": name}}],
    }
    service = {
        "clusterIP": address,
        "selector": labels,
        "ports": [
            {"name": "dns", "port": 53, "protocol": "UDP"},
            {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
            {"name": "metrics", "port": 9153, "protocol": "TCP"},
        ],
    }
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}
    role_ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    return [
        _object("v1", "ServiceAccount", name),
        _object("rbac.authorization.k8s.io/v1", "ClusterRole", role, namespace=None, rules=rules),
        _object(
            "rbac.authorization.k8s.io/v1",
            "ClusterRoleBinding",
            role,
            namespace=None,
            roleRef=role_ref,
            subjects=[subject],
        ),
        _object("v1", "ConfigMap", name, data={"Corefile": _COREFILE}),
        _object("apps/v1", "Deployment", name, labels=labels, spec=_deployment(labels, pod, replicas=2)),
        _object("v1", "Service", "kube-dns", labels=labels, spec=service),
    ]


def demo() -> list[Object]:
    """A page that says which pod serves it, behind a Service of type LoadBalancer."""
    labels = {"app": DEMO}
    page = 'mkdir /tmp/page && echo "Hello from $POD on $NODE" > /tmp/page/index.html && '
    page += "exec httpd -f -p 8080 -h /tmp/page"
    container = {
        "name": DEMO,
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", page],
        "env": [
            {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": path}}}
            for variable, path in (("POD", "metadata.name"), ("NODE", "spec.nodeName"))
        ],
        "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
    }
    spread = {
        "topologyKey": "kubernetes.io/hostname",
        "maxSkew": 1,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": labels},
    }
    pod = {"containers": [container], "topologySpreadConstraints": [spread], "terminationGracePeriodSeconds": 1}
    service = {"type": "LoadBalancer", "selector": labels, "ports": [{"port": 80, "targetPort": 8080}]}
    return [
        _object("apps/v1", "Deployment", DEMO, namespace="default", spec=_deployment(labels, pod, replicas=2)),
        _object("v1", "Service", DEMO, namespace="default", spec=service),
    ]


def chart_values(
    *, repository: str, tag: str, provider: str, cluster: str, cloud_config: str, pod_range: str, service_range: str,
) -> Object:  # fmt: skip
    """The values for examples/deploy/chart: two replicas on the control-plane nodes, which give out
    the pod CIDRs too."""
    return {
        "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
        "cloudProvider": provider,
        "clusterName": cluster,
        "controllers": ["*", "node-ipam-controller"],
        "flags": {
            "allocate-node-cidrs": True,
            "cluster-cidr": pod_range,
            "service-cluster-ip-range": service_range,
            "configure-cloud-routes": True,
            "v": 2,
        },
        "cloudConfig": {"content": cloud_config},
        "kind": "Deployment",
        "replicas": 2,
    }


def _deployment(labels: Mapping[str, str], pod: Object, *, replicas: int) -> Object:
    return {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }


def _object(version: str, kind: str, name: str, *, namespace: str | None = "kube-system", **fields: Any) -> Object:
    labels = fields.pop("labels", None)
    metadata: Object = {"name": name, **({"namespace": namespace} if namespace else {})}
    metadata.update({"labels": labels} if labels else {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}
