"""Nodes and Services as JSON objects for tests: as a kubelet and people make them. Pure.

A test gives what it is about, the rest is filled in; the result is what an API server takes in a
POST, also `EmbeddedAPIServer.create`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from cloudprovider.wellknown import (
    LABEL_ARCH,
    LABEL_HOSTNAME,
    LABEL_OS,
    NODE_ADDRESS_HOSTNAME,
    SERVICE_TYPE_LOAD_BALANCER,
    TAINT_EFFECT_NO_SCHEDULE,
    TAINT_EXTERNAL_CLOUD_PROVIDER,
)

JSON = dict[str, Any]


def node(
    name: str,
    *,
    provider_id: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    addresses: Sequence[tuple[str, str]] = (),
    pod_cidrs: Sequence[str] = (),
    ready: bool = True,
    uninitialized: bool = True,
) -> JSON:
    """A Node as a kubelet with --cloud-provider=external registers it.

    `provider_id` is the kubelet's --provider-id, mostly empty; `addresses` are (type, address)
    pairs besides its name as Hostname. With `uninitialized` it has the taint that the
    cloud-node-controller waits for.
    """
    own = {LABEL_HOSTNAME: name, LABEL_OS: "linux", LABEL_ARCH: "amd64"}
    spec: JSON = {}
    if provider_id:
        spec["providerID"] = provider_id
    if pod_cidrs:
        spec |= {"podCIDR": pod_cidrs[0], "podCIDRs": list(pod_cidrs)}
    if uninitialized:
        spec["taints"] = [{"key": TAINT_EXTERNAL_CLOUD_PROVIDER, "value": "true", "effect": TAINT_EFFECT_NO_SCHEDULE}]
    pairs = [(NODE_ADDRESS_HOSTNAME, name), *addresses]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**own, **(labels or {})}, "annotations": dict(annotations or {})},
        "spec": spec,
        "status": {
            "addresses": [{"type": kind, "address": address} for kind, address in pairs],
            "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "conditions": [ready_condition(ready)],
            "nodeInfo": {
                **dict.fromkeys(("machineID", "systemUUID", "bootID", "kernelVersion", "containerRuntimeVersion"), ""),
                "kubeletVersion": "v1.36.3",
                "kubeProxyVersion": "",
                "osImage": "Linux",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
        },
    }


def ready_condition(ready: bool) -> JSON:
    """The condition Ready: as a kubelet or kube-controller-manager has it."""
    if ready:
        return condition("Ready", "True", "KubeletReady", "kubelet is posting ready status")
    return condition("Ready", "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")


def condition(kind: str, status: str, reason: str, message: str) -> JSON:
    """A condition of a Node as of now; `status` is "True", "False" or "Unknown"."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }


def service(
    name: str,
    *,
    namespace: str = "default",
    ports: Sequence[int] = (80,),
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> JSON:
    """A Service of type LoadBalancer with these TCP ports; `spec` adds fields as the API names
    them, or replaces them.

    For example `externalTrafficPolicy="Local"`, or `type="ClusterIP"`.
    """
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": dict(labels or {}),
            "annotations": dict(annotations or {}),
        },
        "spec": {
            "type": SERVICE_TYPE_LOAD_BALANCER,
            "selector": {"app": name},
            "ports": [{"name": f"port-{port}", "port": port, "protocol": "TCP"} for port in ports],
            **spec,
        },
    }
