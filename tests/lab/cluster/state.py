"""What nodes, Deployments and pods still lack, in words, from their objects. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_OF_MANAGER = ("node.cloudprovider.kubernetes.io/uninitialized", "node.kubernetes.io/network-unavailable")
_NOT_READY = "node.kubernetes.io/not-ready"


def node_lacks(node: Mapping[str, Any]) -> str:
    """Why a node is not ready for use; "" when it is."""
    spec = node["spec"]
    taints = {taint["key"] for taint in spec.get("taints", [])}
    if _OF_MANAGER[0] in taints or not spec.get("providerID"):
        return "is not initialised"
    if not spec.get("podCIDR"):
        return "has no podCIDR"
    if _OF_MANAGER[1] in taints:
        return "has no route"
    for condition in node["status"].get("conditions", []):
        if condition["type"] == "Ready" and condition["status"] == "True":
            return "has the taint not-ready" if _NOT_READY in taints else ""
        if condition["type"] == "Ready":
            return f"is not Ready: {condition.get('message', '')}"
    return "has no status"


def unready_of(deployment: Mapping[str, Any]) -> str:
    """What a Deployment waits for; "" when all replicas are of its last version and ready."""
    status, wanted = deployment["status"], deployment["spec"]["replicas"]
    if status.get("observedGeneration", 0) < deployment["metadata"]["generation"]:
        return "has not been looked at yet"
    updated, ready, total = (status.get(key, 0) for key in ("updatedReplicas", "readyReplicas", "replicas"))
    text = f"{ready} of {wanted} replicas are ready"
    if updated < wanted:
        text += f", {updated} of the last version"
    elif total > wanted:
        text += f", {total - wanted} too many"
    return "" if updated == ready == total == wanted else text


def pods_lack(prefix: str, pods: Iterable[Mapping[str, Any]]) -> str:
    """Why pods whose names begin so are not ready; "" when all are, and there is one."""
    own = [pod for pod in pods if pod["metadata"]["name"].startswith(prefix)]
    if not own:
        return f"{prefix} has no pods"
    return "; ".join(f"{pod['metadata']['name']}: {why}" for pod in own if (why := _pod_lacks(pod)))


def _pod_lacks(pod: Mapping[str, Any]) -> str:
    status = pod["status"]
    if not pod["spec"].get("nodeName"):
        conditions = [one for one in status.get("conditions", []) if one["type"] == "PodScheduled"]
        return f"not scheduled: {conditions[0].get('message', '')}" if conditions else "not scheduled"
    for container in status.get("containerStatuses", []):
        waiting = container["state"].get("waiting")
        if waiting:
            return f"{waiting.get('reason', 'waiting')} {waiting.get('message', '')}".strip()
        if container["state"].get("terminated"):
            return f"ended with {container['state']['terminated'].get('exitCode')}"
        if not container.get("ready"):
            return "runs, not ready"
    return "" if status.get("containerStatuses") else "not started"
