"""Who wrote what: the manager's requests in the API server's audit log, and its calls in the local
cloud's log, by the process that made them.

All replicas have one account, and one token for the cloud. An audit Event names the pod of its
token; the cloud's log the address of the node. A container that was killed is followed by another
in the same pod: the times of the kills tell them apart. Pure.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import frozen

from cloudprovider.testing.fake import LoadBalancerRecord, Port, RouteRecord
from tests.support.failover.cloudserver import CloudCall

ACCOUNT = "system:serviceaccount:kube-system:cloud-controller-manager"
_POD = "authentication.kubernetes.io/pod-name"
_LINE = re.compile(r'^(\S+ \S+),(\d+) DEBUG (\S+) "(PUT|DELETE|POST) (\S+) HTTP/1.1" (\d+) (\S+) s$')
_METHODS = {
    ("PUT", "loadbalancers"): "ensure_load_balancer",
    ("DELETE", "loadbalancers"): "ensure_load_balancer_deleted",
    ("PUT", "routes"): "create_route",
    ("DELETE", "routes"): "delete_route",
}

NOTICED_WITHIN = 1.0
"""Seconds until a thread of a busy cloud reads what was sent before a kill. No process that takes
over in the same pod calls the cloud as soon as that."""

JSON = Mapping[str, Any]


@frozen
class Kill:
    """The end of a container of a pod, in Unix seconds."""

    pod: str
    at: float


def pod_of(event: JSON) -> str:
    """The pod whose token an audit Event carries; "" where it is not the manager's account."""
    user = event["user"]
    return str(user.get("extra", {}).get(_POD, [""])[0]) if user.get("username") == ACCOUNT else ""


def process_at(pod: str, at: float, kills: Iterable[Kill]) -> str:
    """A name for the process that ran in a pod at this time: POD#0 is the first."""
    return f"{pod}#{sum(kill.pod == pod and kill.at <= at for kill in kills)}"


def calls(log: Iterable[str], pods: Mapping[str, str], kills: Sequence[Kill]) -> list[CloudCall]:
    """The calls that changed the cloud, from its log. `pods` are
    the manager's by their nodes' addresses; others' calls are left out."""
    found = []
    for line in log:
        match = _LINE.match(line)
        if not match:
            continue
        stamp, milliseconds, source, verb, path, status, took = match.groups()
        kind, _, key = path.removeprefix("/v1/").partition("/")
        method = _METHODS.get((verb, kind))
        if method and source in pods and int(status) < 400:
            at = datetime.datetime.fromisoformat(stamp).timestamp() + int(milliseconds) / 1000
            began = at - float(took)
            caller = process_at(pods[source], began - NOTICED_WITHIN, kills)
            found.append(CloudCall(caller, method, key, began, at))
    return found


@frozen
class MachineSeen:
    """A machine of the local cloud."""

    name: str
    id: str


@frozen
class CloudState:
    """What the local cloud has, as `tests.support.failover.agreement` asks for it."""

    machines: Sequence[JSON]
    balancers: Sequence[JSON]
    rules: Sequence[JSON]
    owner: str
    """The cluster: what is another's is not looked at."""

    def instances(self) -> list[MachineSeen]:
        return [MachineSeen(one["name"], one["id"]) for one in self.machines]

    def load_balancers(self) -> list[LoadBalancerRecord]:
        return [
            LoadBalancerRecord(
                name=one["name"],
                cluster=one["owner"],
                service=one["labels"].get("kubernetes.io/service", ""),
                service_uid=one["labels"].get("kubernetes.io/service-uid", ""),
                ingress=(one["address"],),
                ports=tuple(Port(port["port"], protocol=port["protocol"]) for port in one["ports"]),
                backends=tuple(sorted(f"localcloud://{target}" for target in one["targets"])),
            )
            for one in self.balancers
            if one["owner"] == self.owner
        ]

    def routes(self) -> list[RouteRecord]:
        names = {one["id"]: one["name"] for one in self.machines}
        return [
            RouteRecord(
                name=one["name"],
                cluster=one["owner"],
                destination_cidr=one["destination"],
                target_node=names.get(one["machine"], ""),
            )
            for one in self.rules
            if one["owner"] == self.owner
        ]
