"""What a cluster and its cloud have, before a trial and after it: nothing new, and nothing gone."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from attrs import frozen

from tests.lab.cluster.cluster import MANAGER, Cluster
from tests.support.api import LEASES, NODES

CONDITION = "LoadBalancerReady"
SECONDS = 60.0
"""How long after the end what is deleted may take to go."""

JSON = Mapping[str, Any]


@frozen
class There:
    """What is there, by kind: names, with what must stay the same."""

    kinds: Mapping[str, frozenset[str]]


def all_there(cluster: Cluster) -> There:
    """In the cluster and in its cloud."""
    api, cloud, owner = cluster.api, cluster.cloud, cluster.options.name
    rbac, kept = "/apis/rbac.authorization.k8s.io/v1", "namespaces/kube-system"
    paths = {
        "node": NODES,
        "Service": "/api/v1/services",
        "Deployment": "/apis/apps/v1/deployments",
        "Lease": LEASES,
        "ServiceAccount": f"/api/v1/{kept}/serviceaccounts",
        "ConfigMap": f"/api/v1/{kept}/configmaps",
        "PodDisruptionBudget": f"/apis/policy/v1/{kept}/poddisruptionbudgets",
        "Role": f"{rbac}/roles",
        "RoleBinding": f"{rbac}/rolebindings",
        "ClusterRole": f"{rbac}/clusterroles",
        "ClusterRoleBinding": f"{rbac}/clusterrolebindings",
    }
    kinds = {kind: frozenset(_shown(one) for one in api.items(path)) for kind, path in paths.items()}
    secrets = {one["metadata"]["name"] for one in api.items(f"/api/v1/{kept}/secrets")}
    # helm writes one for each version of a release.
    kinds["Secret"] = frozenset(name for name in secrets if not name.startswith(f"sh.helm.release.v1.{MANAGER}."))
    kinds["machine"] = frozenset(cloud.machines())
    kinds["route"] = frozenset(one["name"] for one in cloud.call("GET", f"/v1/routes?owner={owner}")["routes"])
    balancers = cloud.call("GET", "/v1/loadbalancers")["loadbalancers"]
    kinds["load balancer"] = frozenset(f"{one['name']} {one['address']} {one['targets']}" for one in balancers)
    return There(kinds)


def await_same(cluster: Cluster, before: There) -> list[str]:
    """The differences that are still there after a minute: [] as soon as there are none."""
    deadline = time.monotonic() + SECONDS
    while (left := differences(before, all_there(cluster))) and time.monotonic() < deadline:
        time.sleep(1)
    return left


def _shown(one: JSON) -> str:
    """The name, and what a manager may leave on an object of somebody else."""
    taints = sorted(taint["key"] for taint in one.get("spec", {}).get("taints", ()))
    conditions = [each["type"] for each in one.get("status", {}).get("conditions") or () if each["type"] == CONDITION]
    return " ".join([one["metadata"]["name"], *taints, *conditions])


def differences(before: There, after: There) -> list[str]:
    """What is there of which kind, and was not before, or the other way round. Pure."""
    return [
        f"{mark} {kind} {name}"
        for kind, names in before.kinds.items()
        for mark, found in (("new:", after.kinds[kind] - names), ("gone:", names - after.kinds[kind]))
        for name in sorted(found)
    ]
