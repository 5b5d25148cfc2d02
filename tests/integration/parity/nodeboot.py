"""A node's first minutes: what a kubelet that knows its cloud registers, and who gives it its pod
CIDRs."""

from __future__ import annotations

from typing import Any

from tests.integration.parity.model import Scenario, delete, get, json_patch, merge, post, put, strategic
from tests.integration.parity.nodes import NODES, node

V4, V6 = "10.7.0.0/24", "fd00:7::/64"
SEAL = "example.org/pending"


def given(*ranges: str, uid: str = "${uid}", version: str = "${version}", first: str = "") -> dict[str, Any]:
    """An allocator's patch: the ranges, onto one version of one node."""
    meta = {"uid": uid, "resourceVersion": version}
    return {"metadata": meta, "spec": {"podCIDR": first or ranges[0], "podCIDRs": list(ranges)}}


REGISTERED = node(
    "nb-kubelet",
    metadata={
        "labels": {
            "kubernetes.io/hostname": "nb-kubelet",
            "node.kubernetes.io/instance-type": "m1",
            "topology.kubernetes.io/zone": "z1",
            "topology.kubernetes.io/region": "r1",
        },
        "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
    },
    spec={"providerID": "fake://i-1", "taints": [{"key": "node.cloudprovider.kubernetes.io/uninitialized",
                                                   "value": "true", "effect": "NoSchedule"}]},
    status={
        "addresses": [{"type": "InternalIP", "address": "10.0.0.9"}, {"type": "Hostname", "address": "nb-kubelet"}],
        "capacity": {"cpu": "2", "memory": "4Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "starting",
                        "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "nodeInfo": {"kubeletVersion": "v1.36.3", "architecture": "amd64", "operatingSystem": "linux"},
    },
)  # fmt: skip

SCENARIOS = [
    Scenario(
        "node boot: a kubelet registers and reports",
        [
            post(NODES, REGISTERED, save={"version": "metadata.resourceVersion"}, expect=201),
            post(NODES, REGISTERED, expect=409),
            strategic(
                f"{NODES}/nb-kubelet/status",
                {
                    "metadata": {"uid": None},
                    "status": {
                        "$setElementOrder/addresses": [{"type": "InternalIP"}, {"type": "Hostname"}],
                        "$setElementOrder/conditions": [{"type": "MemoryPressure"}, {"type": "Ready"}],
                        "addresses": [{"type": "InternalIP", "address": "10.0.0.10"}],
                        "conditions": [
                            {"type": "MemoryPressure", "status": "False", "lastHeartbeatTime": "2026-01-01T00:00:05Z"},
                            {"type": "Ready", "status": "True", "reason": "KubeletReady"},
                        ],
                        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
                        "images": [{"names": ["a"], "sizeBytes": 5}],
                    },
                },
                expect=200,
            ),
            strategic(f"{NODES}/nb-kubelet", {"metadata": {"labels": {"example.org/role": "x"}}}, expect=200),
            merge(f"{NODES}/nb-kubelet", {"spec": {"providerID": "fake://i-2"}}, expect=422),
            put(f"{NODES}/nb-kubelet/status", REGISTERED, expect=200),
        ],
        [f"{NODES}/nb-kubelet"],
    ),
    Scenario(
        "node boot: pod CIDRs are given once, onto the node and version that was seen",
        [
            post(NODES, node("nb-a"), save={"uid": "metadata.uid", "version": "metadata.resourceVersion"}, expect=201),
            merge(f"{NODES}/nb-a", {"metadata": {"annotations": {SEAL: "token"}}}, expect=200),
            merge(f"{NODES}/nb-a", given(V4, V6), expect=409),
            get(f"{NODES}/nb-a", save={"version": "metadata.resourceVersion"}, expect=200),
            merge(f"{NODES}/nb-a", given(V4, V6, uid="00000000-0000-0000-0000-000000000000"), expect=422),
            merge(
                f"{NODES}/nb-a",
                {**given(V4, V6), "metadata": {"resourceVersion": "${version}", "annotations": {SEAL: None}}},
                expect=200,
            ),
            merge(f"{NODES}/nb-a", given(V4, V6, version=""), expect=200),
            merge(f"{NODES}/nb-a", {"spec": {"podCIDR": V4}}, expect=200),
            merge(f"{NODES}/nb-a", given(V6, V4, version=""), expect=422),
            merge(f"{NODES}/nb-a", given(V4, version=""), expect=422),
            merge(f"{NODES}/nb-a", {"spec": {"podCIDRs": None}}, compare="outcome"),
            strategic(f"{NODES}/nb-a", {"spec": {"podCIDRs": ["10.8.0.0/24"]}}, compare="outcome"),
            json_patch(f"{NODES}/nb-a", [{"op": "remove", "path": "/spec/podCIDRs/1"}], expect=422),
            put(f"{NODES}/nb-a", node("nb-a"), expect=422),
            merge(
                f"{NODES}/nb-a/status", {"spec": {"podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"]}}, expect=200
            ),
            delete(f"{NODES}/nb-a", expect=200),
            post(NODES, node("nb-a"), expect=201),
            merge(f"{NODES}/nb-a", given(V4, V6), expect=409),
        ],
        [f"{NODES}/nb-a"],
    ),
    Scenario(
        "node boot: odd pod CIDRs",
        [
            post(NODES, node("nb-odd"), save={"uid": "metadata.uid"}, expect=201),
            merge(f"{NODES}/nb-odd", given(V4, "10.8.0.0/24", version=""), expect=422),
            merge(f"{NODES}/nb-odd", given(V4, V6, "10.8.0.0/24", version=""), expect=422),
            merge(f"{NODES}/nb-odd", given(V4, V4, version=""), expect=422),
            merge(f"{NODES}/nb-odd", given("10.7.0.0", version=""), expect=422),
            merge(f"{NODES}/nb-odd", given("10.7.0.1/24", version=""), expect=422),
            merge(f"{NODES}/nb-odd", {"spec": {"podCIDRs": []}}, expect=200),
            merge(f"{NODES}/nb-odd", given(V4, version="", first=V6), expect=200),
            post(NODES, node("nb-two", spec={"podCIDR": V4, "podCIDRs": [V6]}), expect=201),
            post(NODES, node("nb-three", spec={"podCIDRs": [""]}), compare="outcome"),
        ],
        [f"{NODES}/nb-odd", f"{NODES}/nb-two", f"{NODES}/nb-three"],
    ),
]
