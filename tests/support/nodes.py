"""Nodes as a kubelet registers them: 12.9 KB with 50 images, the uninitialized taint on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

UNINITIALIZED = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}
_CONDITIONS = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
_STAMP = "2026-01-02T03:04:05Z"


def is_tainted(node: dict[str, Any]) -> bool:
    """Whether the node still waits for its initialisation."""
    return UNINITIALIZED["key"] in [taint["key"] for taint in node["spec"].get("taints", ())]


def small_node(
    name: str,
    *,
    taints: Sequence[Mapping[str, Any]] | None = None,
    provider_id: str = "",
    cidrs: Sequence[str] = (),
    ready: str = "",
    **metadata: Any,
) -> dict[str, Any]:
    """A node with its hostname, the uninitialized taint if it has no provider ID (or `taints`), and
    what else is given; `ready` is the status of its condition."""
    if taints is None:
        taints = [] if provider_id else [UNINITIALIZED]
    spec: dict[str, Any] = {"taints": [*taints]}
    if provider_id:
        spec["providerID"] = provider_id
    if cidrs:
        spec |= {"podCIDR": cidrs[0], "podCIDRs": [*cidrs]}
    status: dict[str, Any] = {"addresses": [{"type": "Hostname", "address": name}]}
    if ready:
        status["conditions"] = [{"type": "Ready", "status": ready}]
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **metadata}, "spec": spec, "status": status}


def big_node(name: str, *, images: int = 50) -> dict[str, Any]:
    """A node of some 12.9 KB of JSON (with 50 images): conditions, capacity, node info and images
    filled."""
    node = small_node(
        name, labels={"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    )
    info = ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion")
    resources = {
        "cpu": "4",
        "memory": "16374968Ki",
        "pods": "110",
        "ephemeral-storage": "101430960Ki",
        "hugepages-2Mi": "0",
    }
    node["status"] |= {
        "capacity": resources,
        "allocatable": resources,
        "conditions": [
            {
                "type": kind,
                "status": "True" if kind == "Ready" else "False",
                "reason": f"Kubelet{kind}",
                "message": f"kubelet says so about {kind} of this node",
                "lastHeartbeatTime": _STAMP,
                "lastTransitionTime": _STAMP,
            }
            for kind in _CONDITIONS
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {
            **{key: f"{key}-0123456789abcdef" for key in info},
            "kubeletVersion": "v1.36.3",
            "kubeProxyVersion": "v1.36.3",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
        "images": [
            {
                "names": [
                    f"registry.example/team-{index:02d}/service@sha256:{index:064x}",
                    f"registry.example/team-{index:02d}/service:v1.{index}.0-build.20260102-production",
                ],
                "sizeBytes": 100_000_000 + index,
            }
            for index in range(images)
        ],
    }
    return node


if __name__ == "__main__":
    print(len(json.dumps(big_node("node-0001"))))
