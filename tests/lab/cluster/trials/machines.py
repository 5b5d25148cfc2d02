"""Machines that vanish, are powered off, come back with another address, or are replaced under
their name: how long until the cluster and its cloud follow."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from tests.lab.cluster.cluster import Cluster, ClusterError
from tests.lab.cluster.state import node_lacks
from tests.lab.cluster.trials.operator import Operator
from tests.lab.cluster.trials.result import Result
from tests.lab.cluster.trials.web import MOVES_AFTER, NAME, pair
from tests.support.api import NODES, Refused
from tests.support.failover.audit import seconds_of

TITLE = "Machines that change"
METHOD = (
    "Seconds from the act in the cloud until it is seen. kube-controller-manager has its own times: a node is NotReady "
    "50 s after its kubelet's last word, and only then is its machine asked for; the pods of the trial leave such a "
    f"node after {MOVES_AFTER} s (the default is 300 s). The machine of a node that is Ready is asked for too, when "
    "its addresses are brought up to date (--node-status-update-frequency, 5 minutes by default)."
)
LIMIT = 240.0
EVERY = 0.25
"""Seconds between two looks."""
SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown"

JSON = dict[str, Any]
Condition = Callable[[], bool]


def run(cluster: Cluster) -> Result:
    result = Result()
    world = World(cluster)
    with pair(cluster):
        for act in (_power_off, _power_on, _new_address, _delete, _create, _replace):
            title, begun, wanted = act(world)
            for what, seconds in _follow(wanted, begun).items():
                result.add(f"{title}: {what}", seconds if seconds is not None else f"not in {LIMIT:.0f} s")
                result.check(seconds is not None, f"{title}: not in {LIMIT:.0f} s: {what}")
            cluster.progress.waiting(f"{title}: {time.monotonic() - begun:.0f} s")
            cluster.wait_for_nodes([world.first.name])
    return result


class World:
    """What the cluster and its cloud say of two workers."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        workers = [spec for spec in cluster.options.machines if not spec.control_plane]
        self.first, self.second = workers[0], workers[1]

    def machine(self, name: str) -> JSON:
        """The cloud's, {} where there is none."""
        return self.cluster.cloud.machines().get(name, {})

    def act(self, name: str, act: str, body: JSON | None = None) -> None:
        self.cluster.cloud.call("POST", f"/v1/machines/{self.machine(name)['id']}/{act}", body)

    def node(self, name: str) -> JSON:
        """{} where there is none."""
        return self.cluster.api.find(f"{NODES}/{name}") or {}

    def is_ready(self, name: str) -> bool:
        node = self.node(name)
        return bool(node) and not node_lacks(node) and SHUTDOWN not in _taints(node)

    def not_ready(self, name: str) -> bool:
        conditions = self.node(name).get("status", {}).get("conditions", [])
        return any(one["type"] == "Ready" and one["status"] != "True" for one in conditions)

    def heard_since(self, name: str, at: float) -> bool:
        """Whether the kubelet has said since that it is Ready. Its stamps are whole seconds."""
        conditions = self.node(name).get("status", {}).get("conditions", [])
        stamps = [one["lastHeartbeatTime"] for one in conditions if one["type"] == "Ready"]
        return any(seconds_of(stamp) >= at for stamp in stamps)

    def routed_to(self, name: str) -> str:
        """The gateway of the route to the node's pods, "" without one."""
        pods = self.node(name).get("spec", {}).get("podCIDR")
        routes = self.cluster.cloud.call("GET", "/v1/routes")["routes"]
        return next((str(one["gateway"] or "") for one in routes if one["destination"] == pods), "")

    def has_route(self, machine: str) -> bool:
        return any(one["machine"] == machine for one in self.cluster.cloud.call("GET", "/v1/routes")["routes"])

    def target(self, machine: str) -> bool | None:
        """Whether the Service's load balancer sends to this machine; None where it is no target."""
        for one in self.cluster.cloud.call("GET", f"/v1/loadbalancers?owner={self.cluster.options.name}")[
            "loadbalancers"
        ]:
            if one["labels"].get("kubernetes.io/service") == f"default/{NAME}":
                return next((bool(t["healthy"]) for t in one["status"]["targets"] if t["machine"] == machine), None)
        return None

    def spread(self) -> None:
        """Put the pods on both workers: they do not come back by themselves."""
        for _ in range(3):  # a node that a busy machine starves is NotReady for a while, and gets none
            self.cluster.wait_for_nodes([self.first.name, self.second.name])
            self.cluster.kubectl("rollout", "restart", f"deployment/{NAME}")
            self.cluster.wait_for_deployment("default", NAME)
            if not self.moved_from(self.second.name):
                return
        pods = self.cluster.api.items(f"/api/v1/namespaces/default/pods?labelSelector=app%3D{NAME}")
        where = [f"{one['metadata']['name']} on {one['spec'].get('nodeName')}" for one in pods]
        taints = {one.name: sorted(_taints(self.node(one.name))) for one in (self.first, self.second)}
        raise ClusterError(f"no pod of the pages is on the machine that goes: {where}; taints: {taints}")

    def serves(self, name: str, since: float) -> bool:
        """Whether a pod of the pages is Ready on this node whose container started since."""
        pods = self.cluster.api.items(f"/api/v1/namespaces/default/pods?labelSelector=app%3D{NAME}")
        return any(pod["spec"].get("nodeName") == name and _pod_ready(pod) and _started(pod) >= since for pod in pods)

    def moved_from(self, name: str) -> bool:
        """Whether four pods of the pages are Ready on other nodes."""
        pods = self.cluster.api.items(f"/api/v1/namespaces/default/pods?labelSelector=app%3D{NAME}")
        ready = [pod for pod in pods if pod["spec"].get("nodeName") != name and _pod_ready(pod)]
        return len(ready) >= 4


def _follow(wanted: Mapping[str, Condition], begun: float) -> dict[str, float | None]:
    """When each condition was first true, in seconds since `begun`; None where it was not in
    time."""
    seen: dict[str, float | None] = dict.fromkeys(wanted)
    while None in seen.values() and time.monotonic() - begun < LIMIT:
        for what, condition in wanted.items():
            try:
                if seen[what] is None and condition():
                    seen[what] = time.monotonic() - begun
            except (OSError, Refused):
                continue  # asked again
        time.sleep(EVERY)
    return seen


Act = tuple[str, float, Mapping[str, Condition]]


def _power_off(world: World) -> Act:
    name, machine = world.second.name, world.machine(world.second.name)["id"]
    world.spread()
    begun = time.monotonic()
    world.act(name, "stop")
    return (
        "powered off",
        begun,
        {
            "no new connection goes to it": lambda: world.target(machine) is not True,
            "Node NotReady": lambda: world.not_ready(name),
            "Node has the taint shutdown": lambda: SHUTDOWN in _taints(world.node(name)),
            "pods run elsewhere": lambda: world.moved_from(name),
        },
    )


def _power_on(world: World) -> Act:
    name, machine = world.second.name, world.machine(world.second.name)["id"]
    begun = time.monotonic()
    world.act(name, "start")
    return (
        "powered on",
        begun,
        {
            "Node Ready, without the taint": lambda: world.is_ready(name),
            "connections go to it": lambda: world.target(machine) is True,
        },
    )


def _new_address(world: World) -> Act:
    name, before = world.first.name, _address(world.machine(world.first.name))
    at, begun = time.time(), time.monotonic()
    world.act(name, "reboot", {"newAddress": True})
    machine = world.machine(name)
    address = _address(machine)
    assert address != before, "asked for another one"
    return (
        "rebooted with another address",
        begun,
        {
            "Node has the new address": lambda: (
                _address({"addresses": world.node(name)["status"]["addresses"]}) == address
            ),
            "route leads to the new address": lambda: world.routed_to(name) == address,
            "Node Ready, by a kubelet that started since": lambda: world.is_ready(name) and world.heard_since(name, at),
            "connections go to it": lambda: world.target(machine["id"]) is True,
        },
    )


def _delete(world: World) -> Act:
    name, machine = world.second.name, world.machine(world.second.name)["id"]
    world.spread()
    begun = time.monotonic()
    world.cluster.cloud.call("DELETE", f"/v1/machines/{machine}")
    return (
        "deleted",
        begun,
        {
            "no new connection goes to it": lambda: world.target(machine) is not True,
            "Node NotReady": lambda: world.not_ready(name) or not world.node(name),
            "Node deleted": lambda: not world.node(name),
            "route deleted": lambda: not world.has_route(machine),
            "no target of the load balancer": lambda: world.target(machine) is None,
            "pods run elsewhere": lambda: world.moved_from(name),
        },
    )


def _create(world: World) -> Act:
    name, begun = world.second.name, time.monotonic()
    machine = world.cluster.create_machine(world.second)["id"]
    return (
        "created again",
        begun,
        {
            "Node Ready": lambda: world.is_ready(name),
            "route to it": lambda: world.has_route(machine),
            "connections go to it": lambda: world.target(machine) is True,
        },
    )


def _replace(world: World) -> Act:
    """The new machine's kubelet finds the old one's Node and goes on with it. An Event of the
    manager says so, and an operator does what it asks for."""
    name, old = world.second.name, world.machine(world.second.name)["id"]
    world.spread()
    uid, at, begun = world.node(name)["metadata"]["uid"], time.time(), time.monotonic()
    world.cluster.cloud.call("DELETE", f"/v1/machines/{old}")
    machine = world.cluster.create_machine(world.second)["id"]
    operator = Operator(world.cluster)

    def is_told() -> bool:
        events = world.cluster.api.items("/api/v1/events")
        return any(one["reason"] == "InstanceRecreated" and one["involvedObject"].get("uid") == uid for one in events)

    def is_new() -> bool:
        operator.act(world.cluster.cloud.machines().values())
        node = world.node(name)
        return bool(node) and str(node["spec"].get("providerID", "")).endswith(f"/{machine}")

    return (
        "replaced under its name at once",
        begun,
        {
            "an Event tells of it": is_told,
            "the old Node is gone": lambda: world.node(name).get("metadata", {}).get("uid") != uid,
            "Node has the new provider ID": is_new,
            "Node Ready": lambda: is_new() and world.is_ready(name),
            "route to the new machine": lambda: world.has_route(machine),
            "no route to the old machine": lambda: not world.has_route(old),
            "no target of the load balancer is the old machine": lambda: world.target(old) is None,
            "connections go to it": lambda: world.target(machine) is True,
            "a page's pod runs on it": lambda: world.serves(name, at),
        },
    )


def _address(machine: JSON) -> str:
    found = [str(one["address"]) for one in machine["addresses"] if one["type"] == "InternalIP"]
    return found[0] if found else ""


def _taints(node: JSON) -> set[str]:
    return {taint["key"] for taint in node.get("spec", {}).get("taints", [])}


def _started(pod: JSON) -> float:
    running = pod["status"]["containerStatuses"][0]["state"].get("running")
    return seconds_of(running["startedAt"]) if running else 0.0


def _pod_ready(pod: JSON) -> bool:
    conditions = pod["status"].get("conditions", [])
    return "deletionTimestamp" not in pod["metadata"] and any(
        one["type"] == "Ready" and one["status"] == "True" for one in conditions
    )
