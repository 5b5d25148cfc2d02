"""What kube-controller-manager makes of an update and of a drain, as arithmetic: a model, for pods
with host ports.

Ported from k8s.io/kubernetes 1.36.3: `pkg/controller/daemon/update.go` (rollingUpdate),
`pkg/controller/deployment/` `rolling.go` and `util/deployment_util.go` (NewRSNewReplicas,
ResolveFenceposts), `pkg/controller/disruption/` (getExpectedPodCount, updatePdbStatus). The model's
scheduler puts one pod on a node, as the ports of the host demand; its kubelets end and start a pod
within one step, those of nodes that are down do nothing.
"""

from __future__ import annotations

import math
from typing import Any

Object = dict[str, Any]

STEPS = 50


def updated(workload: Object, up: int, down: int = 0, *, starts: bool = True) -> tuple[int, int]:
    """(pods of the new version, pods of the old one) that run on `up` nodes when nothing changes
    any more.

    `down` more nodes had a pod and answer no longer. `starts` is false for a new version that never
    becomes ready.
    """
    spec = workload["spec"]
    if workload["kind"] == "DaemonSet":
        return _daemonset(spec["updateStrategy"]["rollingUpdate"], up, down, starts)
    return _deployment(spec["replicas"], spec["strategy"]["rollingUpdate"], up, down, starts)


def evictions(budget: Object, replicas: int, up: int) -> int:
    """How many ready pods of a Deployment a drain may evict now; a pod that is not ready goes at
    any time."""
    assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    desired = max(0, replicas - scaled(budget["spec"]["maxUnavailable"], replicas, math.ceil))
    return max(0, min(replicas, up) - desired)


def scaled(value: int | str, total: int, rounded: Any) -> int:
    """GetScaledValueFromIntOrPercent."""
    return value if isinstance(value, int) else int(rounded(total * int(value.removesuffix("%")) / 100))


def _daemonset(strategy: Object, up: int, down: int, starts: bool) -> tuple[int, int]:
    limit = scaled(strategy["maxUnavailable"], up + down, math.ceil)
    pods = ["old"] * up + ["dead"] * down  # "dead": its node does not answer, so it is neither ready nor ever gone
    for _ in range(STEPS):
        away = sum(pod == "dead" or (pod == "new" and not starts) for pod in pods)
        candidates = [place for place, pod in enumerate(pods) if pod == "old"]
        for place in candidates[: max(0, limit - away)]:
            pods[place] = "new"
    return pods.count("new") if starts else 0, pods.count("old")


def _deployment(replicas: int, strategy: Object, up: int, down: int, starts: bool) -> tuple[int, int]:
    surge = scaled(strategy["maxSurge"], replicas, math.ceil)
    limit = scaled(strategy["maxUnavailable"], replicas, math.floor)
    if surge == 0 and limit == 0:
        limit = 1
    old, new = replicas, 0
    placed = ["old"] * min(up, max(0, replicas - (down if up + down <= replicas else 0)))
    for _ in range(STEPS):
        ready_old, ready_new = placed.count("old"), placed.count("new") if starts else 0
        if new < replicas and old + new < replicas + surge:
            new += min(replicas + surge - (old + new), replicas - new)
        elif old:
            least = replicas - limit
            most = old + new - least - (new - ready_new)
            if most > 0:
                old -= min(old - ready_old, most)
                old -= min(max(ready_old + ready_new - least, 0), old)
        placed = ["new"] * min(placed.count("new"), new) + ["old"] * min(placed.count("old"), old)
        placed += ["new"] * max(0, min(up - len(placed), new - placed.count("new")))
        placed += ["old"] * max(0, min(up - len(placed), old - placed.count("old")))
    return placed.count("new") if starts else 0, placed.count("old")
