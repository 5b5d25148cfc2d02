"""Bootstrapping: the order in which nodes without a network became Ready, from the objects
themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.lab.cluster.cluster import MANAGER, Cluster
from tests.lab.cluster.trials.result import Result
from tests.support.api import EVENTS, NODES
from tests.support.failover.audit import seconds_of

TITLE = "Bootstrapping"
METHOD = (
    "All nodes register tainted, NotReady and without a network. The chart is installed then. The times are those of "
    "the API server's objects and Events, in whole seconds, from the creation of the first node."
)
_OF_MANAGER = "the manager's containers run (host network)"
_OTHERS = "the first container with a pod network starts"

JSON = Mapping[str, Any]


def run(cluster: Cluster) -> Result:
    api = cluster.api
    result = order(api.items(NODES), api.items("/api/v1/pods"), api.items(EVENTS))
    total = sum(cluster.progress.parts.values())
    built = sum(seconds for name, seconds in cluster.progress.parts.items() if "built" in name)
    result.add("from nothing to a page behind a load balancer, all built", total - built)
    return result


def order(nodes: Sequence[JSON], pods: Sequence[JSON], events: Sequence[JSON]) -> Result:
    """Who came when, and whether in the only order that can work."""
    result = Result()
    names = {node["metadata"]["name"] for node in nodes}
    begun = min(seconds_of(node["metadata"]["creationTimestamp"]) for node in nodes)
    own = [pod for pod in pods if pod["metadata"]["name"].startswith(f"{MANAGER}-")]
    others = [pod for pod in pods if not pod["spec"].get("hostNetwork") and pod["status"].get("podIP")]
    started = [_started(pod) for pod in own]
    synced = {name: _event(events, name, "Synced") for name in names}
    ready = {node["metadata"]["name"]: _ready(node) for node in nodes}
    if not own or not others or None in synced.values() or None in ready.values():
        result.problems.append("the manager's pods, a pod with a network, an Event or a Ready condition is missing")
        return result
    initialised = [at for at in synced.values() if at is not None]
    times = [at for at in ready.values() if at is not None]
    hosts = [synced[pod["spec"]["nodeName"]] for pod in own]
    first_other = min(_started(pod) for pod in others)
    steps = [
        ("the last node registers", max(seconds_of(node["metadata"]["creationTimestamp"]) for node in nodes)),
        ("the manager's pods are created", min(seconds_of(pod["metadata"]["creationTimestamp"]) for pod in own)),
        (_OF_MANAGER, min(started)),
        ("the manager's own node is initialised", min(at for at in hosts if at is not None)),
        ("all nodes are initialised", max(initialised)),
        ("all nodes are Ready", max(times)),
        (_OTHERS, first_other),
    ]
    for what, at in steps:
        result.add(what, float(at - begun))
    result.add("from the manager's pods to all nodes Ready", float(max(times) - steps[1][1]))
    result.check(min(started) <= min(initialised), "a node was initialised before a manager ran")
    result.check(max(started) <= first_other, "a pod with a network started before the manager's")
    result.check(min(times) >= min(initialised), "a node was Ready before it was initialised")
    result.check(
        all(not pod["status"]["containerStatuses"][0]["restartCount"] for pod in own),
        "a container of the manager was started again",
    )
    return result


def _started(pod: JSON) -> float:
    state = pod["status"]["containerStatuses"][0]["state"]
    return seconds_of(state["running"]["startedAt"])


def _event(events: Sequence[JSON], name: str, reason: str) -> float | None:
    found = [one for one in events if one["involvedObject"].get("name") == name and one["reason"] == reason]
    return min((seconds_of(one["firstTimestamp"] or one["eventTime"]) for one in found), default=None)


def _ready(node: JSON) -> float | None:
    for condition in node["status"].get("conditions", ()):
        if condition["type"] == "Ready" and condition["status"] == "True":
            return seconds_of(condition["lastTransitionTime"])
    return None
