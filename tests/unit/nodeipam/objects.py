"""An API server's nodes in memory, and the parts of the controller over it, without threads or
network."""

from __future__ import annotations

from ipaddress import ip_network
from types import SimpleNamespace
from typing import Any, cast

from kubernetes.client.models.v1_node import V1Node

from cloudprovider.helpers.objects import pod_cidrs_of
from controllers.nodeipam.assigner import REST
from controllers.nodeipam.controller import NodeIPAMController
from controllers.nodeipam.reconcile import START
from controllers.nodeipam.registration import NodeIPAMOptions
from controllers.runtime.api import Unreachable
from controllers.runtime.metrics import Metrics
from tests.support import controllers
from tests.support.clock import FakeClock
from tests.support.controllers import Lister, Raw, Recorder, parsed_node

PREFIX = "/api/v1/nodes/"


class Server(controllers.Server):
    """The rule that podCIDRs never change, who wrote them, and a history."""

    def __init__(self) -> None:
        super().__init__()
        self.version = self.uids = 0
        self.history: list[tuple[str, str, tuple[str, ...]]] = []
        self.on_change = self._note

    def create(self, name: str, *cidrs: str, by: str = "kubelet") -> Raw:
        self.uids += 1
        metadata = {"name": name, "uid": f"uid-{self.uids}", "creationTimestamp": "2026-01-02T03:04:05Z"}
        self.put({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}})
        if cidrs:
            self.write(name, *cidrs, by=by)
        return self.nodes[name]

    def calm(self) -> None:
        """No more faults."""
        self.before = self.after = lambda _name, _body: None

    def write(self, name: str, *cidrs: str, by: str) -> None:
        """Another program gives the node ranges."""

        def change(node: Raw) -> None:
            node["spec"] = {"podCIDR": cidrs[0], "podCIDRs": list(cidrs)}
            _owned(node, by)

        self.edit(name, change)

    def ranges(self) -> dict[str, list[str]]:
        return {name: node["spec"].get("podCIDRs", []) for name, node in self.nodes.items()}

    def admit(self, path: str, old: Raw, new: Raw) -> None:
        if old["spec"].get("podCIDRs", new["spec"].get("podCIDRs")) != new["spec"].get("podCIDRs"):
            raise self.refused(422, "Invalid", "PATCH", path, {"causes": [{"field": "spec.podCIDRs"}]})
        if new["spec"] != old["spec"]:
            _owned(new, "cloud-controller-manager")

    def _note(self, name: str, node: Raw | None) -> None:
        if node is not None:
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


def _owned(node: Raw, by: str) -> None:
    fields: Raw = {"f:spec": {"f:podCIDR": {}, "f:podCIDRs": {}}}
    node["metadata"]["managedFields"] = [{"manager": by, "operation": "Update", "fieldsV1": fields}]


class Leader:
    """One process that leads: its cache shows what `sync` last saw, its queue is a list."""

    def __init__(self, server: Server, cluster: str = "10.0.0.0/24", *, chooser: Any = None) -> None:
        """Nodes get a /26 of the cluster CIDR, and of a second one a /64. `chooser`: the cloud that
        chooses the ranges."""
        self.server, self.events, self.metrics, self.clock = server, Recorder(), Metrics(), FakeClock()
        self.lister: Lister[V1Node] = Lister()
        self.queue: list[str] = []
        nets = tuple(map(ip_network, cluster.split(",")))
        options = (
            NodeIPAMOptions(cidr_allocator_type="CloudAllocator")
            if chooser
            else NodeIPAMOptions(cluster_cidrs=nets, node_cidr_mask_size=26)
            if len(nets) == 1
            else NodeIPAMOptions(cluster_cidrs=nets, node_cidr_mask_size_ipv4=26)
        )
        me: Any = self
        it = NodeIPAMController(me, me, chooser or me, options=options, metrics=self.metrics, clock=self.clock)
        it._recorder.event = self.events.event  # type: ignore[method-assign]  # the one seam to Events
        self.reconciler: Any = it._reconciler
        self.assigner, self.barrier, self.detector = it._assigner, it._barrier, it._detector
        self.allocations = it._assigner.allocations
        # The keys of a run are worked off here; those that come back later are the real queue's.
        it._assigner.queue = it._assigner.pending._queue = cast(
            Any, SimpleNamespace(add=lambda name, priority=0: self.queue.append(name), add_after=it._keys.add_after)
        )
        self.keys = it._keys
        for register in it._handlers:
            register()

    def add_handler(self, _add: Any, _update: Any, delete: Any) -> Any:
        """The controller's handler."""
        self.on_delete = delete

    def rest(self, name: str) -> Server:
        """The controller's client."""
        return self.server

    def informer(self, resource: Any) -> Any:
        """The controller's informer: this, as it has a lister."""
        return self

    @property
    def cache(self) -> dict[str, V1Node]:
        """By name, what it shows."""
        return self.lister.objects

    def sync(self) -> None:
        """The cache is as the server, and the triggers have heard of it."""
        self.lister.objects = {name: parsed_node(node) for name, node in self.server.nodes.items()}
        for node in self.cache.values():
            if not pod_cidrs_of(node):
                self.assigner.lacks(node)

    def start(self) -> None:
        self.sync()
        self.run(START, *self.cache)

    def join(self, name: str, *cidrs: str, by: str = "kubelet") -> list[Exception]:
        """A node is created, perhaps with ranges, and worked on."""
        self.server.create(name, *cidrs, by=by)
        return self.see(name)

    def see(self, *names: str) -> list[Exception]:
        """The cache is as the server, and these are worked on."""
        self.sync()
        return self.run(*names)

    def gone(self, name: str) -> None:
        """A node is deleted, and its ranges have rested."""
        self.server.delete(name)
        self.see(name)
        self.clock.advance(REST)
        self.run(name)

    def sweep(self) -> list[Exception]:
        """The regular comparison of allocations and cache, and what it brings."""
        self.assigner.sweep()
        return self.run()

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


def leads(server: Server, cluster: str = "10.0.0.0/24") -> Leader:
    """A leader that has begun."""
    leader = Leader(server, cluster)
    leader.start()
    return leader


FULL = {f"n{number}": f"10.0.0.{number * 64}/26" for number in range(4)}
"""Four nodes that have all of 10.0.0.0/24."""


def started(cluster: str = "10.0.0.0/24", **nodes: str) -> tuple[Server, Leader]:
    """A server with these nodes and their ranges, and a leader that has begun."""
    server = Server()
    for name, cidr in nodes.items():
        server.create(name, *filter(None, [cidr]))
    return server, leads(server, cluster)


def lost() -> Unreachable:
    return Unreachable("the answer was lost", sent=True)
