"""What nodes, Deployments and pods lack, in words."""

from typing import Any

import pytest

from tests.lab.cluster.state import node_lacks, pods_lack, unready_of

READY = [{"type": "Ready", "status": "True"}]


def node(*taints: str, ready: list[dict[str, str]] = READY, **spec: str) -> dict[str, Any]:
    given = {"providerID": "localcloud://m1", "podCIDR": "10.91.0.0/24", **spec}
    taints_of = [{"key": key, "effect": "NoSchedule"} for key in taints]
    return {"spec": {**given, **({"taints": taints_of} if taints else {})}, "status": {"conditions": ready}}


@pytest.mark.parametrize(
    ("given", "lacks"),
    [
        (node(), ""),
        (node("node-role.kubernetes.io/control-plane"), ""),
        (node("node.cloudprovider.kubernetes.io/uninitialized"), "is not initialised"),
        (node(providerID=""), "is not initialised"),
        (node(podCIDR=""), "has no podCIDR"),
        (node("node.kubernetes.io/network-unavailable"), "has no route"),
        (node("node.kubernetes.io/not-ready"), "has the taint not-ready"),
        (node(ready=[{"type": "Ready", "status": "False", "message": "no CNI"}]), "is not Ready: no CNI"),
        (node(ready=[]), "has no status"),
    ],
)
def test_nodes(given: dict[str, Any], lacks: str) -> None:
    assert node_lacks(given) == lacks


def deployment(*, ready: int, updated: int = 2, total: int = 2, seen: int = 3) -> dict[str, Any]:
    status = {"observedGeneration": seen, "readyReplicas": ready, "updatedReplicas": updated, "replicas": total}
    return {"metadata": {"generation": 3}, "spec": {"replicas": 2}, "status": status}


@pytest.mark.parametrize(
    ("given", "lacks"),
    [
        (deployment(ready=2), ""),
        (deployment(ready=1), "1 of 2 replicas are ready"),
        (deployment(ready=2, updated=1), "2 of 2 replicas are ready, 1 of the last version"),
        (deployment(ready=2, total=3), "2 of 2 replicas are ready, 1 too many"),
        (deployment(ready=2, seen=2), "has not been looked at yet"),
    ],
)
def test_deployments(given: dict[str, Any], lacks: str) -> None:
    assert unready_of(given) == lacks


def pod(name: str = "web-1", *, node: str = "worker-1", **container: Any) -> dict[str, Any]:
    statuses = {"containerStatuses": [{"state": {}, **container}]} if container else {}
    return {"metadata": {"name": name}, "spec": {"nodeName": node}, "status": statuses}


@pytest.mark.parametrize(
    ("pods", "lacks"),
    [
        ([], "web has no pods"),
        ([pod("other-1", ready=True)], "web has no pods"),
        ([pod(ready=True), pod("web-2", ready=True)], ""),
        ([pod(ready=False), pod("web-2")], "web-1: runs, not ready; web-2: not started"),
        ([pod(node="")], "web-1: not scheduled"),
        (
            [pod(state={"waiting": {"reason": "ErrImageNeverPull", "message": "no image"}})],
            "web-1: ErrImageNeverPull no image",
        ),
        ([pod(state={"terminated": {"exitCode": 2}})], "web-1: ended with 2"),
    ],
)
def test_pods(pods: list[dict[str, Any]], lacks: str) -> None:
    assert pods_lack("web", pods) == lacks
