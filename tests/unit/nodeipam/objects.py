"""An API server's nodes in memory, and the parts of the controller over it, without threads or network."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_network
from typing import Any

from kubernetes.client.models.v1_node import V1Node

from cloudprovider.helpers.ips import IPNetwork
from controllers.nodeipam.assigner import Assigner
from controllers.nodeipam.blocks import Blocks
from controllers.nodeipam.ledger import Ledger
from controllers.nodeipam.metrics import NodeIPAMMetrics
from controllers.nodeipam.reconcile import RangeReconciler
from controllers.nodeipam.rival import Rival
from controllers.nodeipam.takeover import Takeover
from controllers.nodeipam.triggers import START
from controllers.nodeipam.waiting import Waiting
from controllers.runtime.api import Response, Unreachable, from_status
from controllers.runtime.cache import NODES
from controllers.runtime.metrics import Metrics
from tests.support.clock import FakeClock

PREFIX = "/api/v1/nodes/"


class Server:
    """Nodes with UIDs and versions, preconditions, the rule that podCIDRs never change, and who wrote them."""

    def __init__(self) -> None:
        self.version = 0
        self.uids = 0
        self.nodes: dict[str, dict[str, Any]] = {}
        self.patches: list[tuple[str, Any]] = []
        self.history: list[tuple[str, str, tuple[str, ...]]] = []
        self.before: Callable[[str, Any], None] = lambda _name, _body: None
        """Called with each patch before it is applied; may raise."""
        self.after: Callable[[str, Any], None] = lambda _name, _body: None
        self.user_agent = "cloud-controller-manager/1.0"

    def create(self, name: str, *cidrs: str, by: str = "kubelet") -> dict[str, Any]:
        self.uids += 1
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "uid": f"uid-{self.uids}", "creationTimestamp": "2026-01-02T03:04:05Z"},
            "spec": {},
        }
        self.nodes[name] = node
        self._touch(name)
        if cidrs:
            self.write(name, *cidrs, by=by)
        return node

    def write(self, name: str, *cidrs: str, by: str) -> None:
        """Another program gives the node ranges."""
        node = self.nodes[name]
        node["spec"] = {"podCIDR": cidrs[0], "podCIDRs": list(cidrs)}
        fields: dict[str, Any] = {"f:spec": {"f:podCIDR": {}, "f:podCIDRs": {}}}
        node["metadata"]["managedFields"] = [{"manager": by, "operation": "Update", "fieldsV1": fields}]
        self._touch(name)

    def delete(self, name: str) -> None:
        del self.nodes[name]

    def ranges(self) -> dict[str, list[str]]:
        return {name: node["spec"].get("podCIDRs", []) for name, node in self.nodes.items()}

    def get(self, path: str, **_: Any) -> Any:
        name = path.removeprefix(PREFIX)
        if name not in self.nodes:
            raise self._refusal(404, "NotFound", name)
        return copy.deepcopy(self.nodes[name])

    def request(self, method: str, path: str, *, body: Any = None, query: Any = None, **_: Any) -> Response:
        if method == "GET":
            items = [copy.deepcopy(node) for node in self.nodes.values()]
            found = {"kind": "NodeList", "metadata": {"resourceVersion": str(self.version)}, "items": items}
            return Response(200, {}, json.dumps(found).encode())
        name = path.removeprefix(PREFIX)
        self.patches.append((name, body))
        self.before(name, body)
        self.apply(name, body)
        self.after(name, body)
        return Response(200, {}, json.dumps(self.nodes[name]).encode())

    def apply(self, name: str, body: Mapping[str, Any]) -> None:
        """A patch arrives: now, or long after it was sent."""
        node = self.nodes.get(name)
        if node is None:
            raise self._refusal(404, "NotFound", name)
        meta = body.get("metadata", {})
        if meta.get("uid", node["metadata"]["uid"]) != node["metadata"]["uid"]:
            raise self._refusal(422, "Invalid", name, "metadata.uid")
        if meta.get("resourceVersion", node["metadata"]["resourceVersion"]) != node["metadata"]["resourceVersion"]:
            raise self._refusal(409, "Conflict", name)
        spec = body.get("spec")
        if spec and node["spec"].get("podCIDRs", spec["podCIDRs"]) != spec["podCIDRs"]:
            raise self._refusal(422, "Invalid", name, "spec.podCIDRs")
        for key, value in meta.get("annotations", {}).items():
            held = node["metadata"].setdefault("annotations", {})
            held.pop(key, None) if value is None else held.update({key: value})
        if spec:
            self.write(name, *spec["podCIDRs"], by="cloud-controller-manager")
        self._touch(name)

    def _touch(self, name: str) -> None:
        self.version += 1
        node = self.nodes[name]
        node["metadata"]["resourceVersion"] = str(self.version)
        self.history.append((name, node["metadata"]["uid"], tuple(node["spec"].get("podCIDRs", ()))))

    def judge(self) -> None:
        """No two nodes ever had overlapping ranges at once, and no node ever changed its own."""
        final: dict[str, tuple[str, ...]] = {}
        for _, uid, cidrs in self.history:
            assert final.get(uid, ()) in ((), cidrs), f"{uid} had {final[uid]}, and then {cidrs}"
            if cidrs:
                final[uid] = cidrs
        live = [ip_network(text) for texts in self.ranges().values() for text in texts]
        for place, one in enumerate(live):
            assert not any(one.version == other.version and one.overlaps(other) for other in live[:place]), one

    def _refusal(self, status: int, reason: str, name: str, field: str = "") -> Exception:
        causes = [{"reason": "FieldValueInvalid", "field": field}] if field else []
        body = {"kind": "Status", "reason": reason, "code": status, "details": {"name": name, "causes": causes}}
        return from_status(status, {}, json.dumps(body).encode(), method="PATCH", path=PREFIX + name)


class Events:
    """A recorder that keeps (node, reason)."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def event(self, obj: Any, type: str, reason: str, message: str) -> None:
        name = obj["metadata"]["name"] if isinstance(obj, dict) else getattr(obj, "name", None) or obj.metadata.name
        self.told.append((name, reason))


class Cache:
    """The lister."""

    def __init__(self) -> None:
        self.nodes: dict[str, V1Node] = {}

    def get(self, name: str) -> V1Node | None:
        return self.nodes.get(name)

    def list(self) -> Sequence[V1Node]:
        return tuple(self.nodes.values())


class Leader:
    """One process that leads: its cache shows what `sync` last saw, its queue is a list."""

    def __init__(self, server: Server, cluster: str = "10.0.0.0/24", size: int = 26, *service: str) -> None:
        self.server = server
        lister: Any = Cache()
        self.cached = lister
        self.queue: list[str] = []
        self.events = Events()
        metrics, clock = Metrics(), FakeClock()
        self.metrics = metrics
        own = NodeIPAMMetrics(metrics, lister, lambda node: True, clock)
        nets: list[IPNetwork] = [ip_network(text) for text in cluster.split(",")]
        pools = [Blocks(net, size if net.version == 4 else 64) for net in nets]
        self.ledger = Ledger(pools, [ip_network(text) for text in service], own.changed, own.searched)
        self.takeover = Takeover()
        self.waiting = Waiting(self.queue.append)
        rest: Any = server
        recorder: Any = self.events
        self.rival = Rival("cloud-controller-manager", recorder, own)
        shared = (self.ledger, self.takeover, self.waiting, self.rival, recorder)
        self.assigner = Assigner(rest, lister, *shared, own)
        self.reconciler = RangeReconciler(rest, lister, self.assigner, *shared)

    @property
    def cache(self) -> dict[str, V1Node]:
        """By name, what it shows."""
        nodes: dict[str, V1Node] = self.cached.nodes
        return nodes

    def sync(self) -> None:
        """The cache is as the server."""
        self.cached.nodes = {name: NODES.parse(copy.deepcopy(node)) for name, node in self.server.nodes.items()}

    def start(self) -> None:
        self.sync()
        self.run(START, *self.cache)

    def run(self, *names: str) -> list[Exception]:
        """Work off these keys, and what they bring; what failed is not tried again."""
        self.queue += names
        errors: list[Exception] = []
        while self.queue:
            name = self.queue.pop(0)
            try:
                self.reconciler.reconcile(name)
            except Exception as error:  # noqa: BLE001 - as the worker does
                self.reconciler.failed(name, error)
                errors.append(error)
        return errors


def lost() -> Unreachable:
    return Unreachable("the answer was lost", sent=True)
