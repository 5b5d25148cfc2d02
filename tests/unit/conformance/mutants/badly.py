"""Mutants over a cloud that answers badly, takes its time, is full, or has machines that are easily
confused."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Any

from attrs import evolve
from kubernetes.client.models.v1_load_balancer_ingress import V1LoadBalancerIngress
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_service import V1Service

from cloudprovider import (
    ClientBuilder,
    InstanceMetadata,
    InstanceNotFound,
    InstanceState,
    InvalidService,
    Route,
    StopSignal,
    Throttled,
    current_call,
)
from cloudprovider.errors import QuotaExceeded
from cloudprovider.helpers import node_name, provider_id_of
from cloudprovider.testing.conformance import Feature
from cloudprovider.testing.fake import FakeCloud
from cloudprovider.testing.fake.instances import FakeInstancesBatch, FakeInstancesV2
from cloudprovider.testing.fake.loadbalancers import FakeOwningLoadBalancers
from cloudprovider.testing.fake.others import FakeRoutes
from cloudprovider.testing.fake.records import Instance, LoadBalancerRecord
from tests.unit.conformance.fakelab import STATE, Ambiguous, Building, Refused
from tests.unit.conformance.mutants.bench import ALL, breaks, broken
from tests.unit.conformance.mutants.ways import answering, answering_each, gone, instead_of

V2, BATCH, BALANCERS = FakeInstancesV2, FakeInstancesBatch, FakeOwningLoadBalancers
Status = V1LoadBalancerStatus


def _plainly(*_: object) -> Any:
    raise Refused("429")


broken(
    "G13", FakeRoutes, "list_routes", instead_of(Throttled, _plainly),
    "429 is an error like any other, by which the host does not slow down.",
)  # fmt: skip


@breaks("G14")
class TriesForEver(FakeInstancesV2):
    """A call that the cloud refuses with 401 is tried again until its deadline."""

    def instance_exists(self, node: V1Node) -> bool:
        while True:
            try:
                return super().instance_exists(node)
            except Refused as error:
                if error.status != 401:
                    raise
            current_call().pause(0.02)


@breaks("G15")
class SetsTheTimeLimitOfAllSockets(FakeCloud):
    """Its client's time limit is set for every socket of the process."""

    def initialize(self, client_builder: ClientBuilder, stop: StopSignal) -> None:
        super().initialize(client_builder, stop)
        socket.setdefaulttimeout(60)


@breaks("G16")
class NeverRenews(FakeRoutes):
    """A token that has ended is used for ever."""

    ended = False

    def list_routes(self, cluster_name: str) -> Sequence[Route]:
        if self.ended:
            raise Refused("401")
        try:
            return super().list_routes(cluster_name)
        except Refused as error:
            self.ended = error.status == 401
            raise


# ---- bad answers


def _refused(*statuses: int) -> Callable[[Any], bool]:
    return lambda error: error.status in statuses


ONE = ALL & ~Feature.INSTANCES_BATCH
MANY = ALL & ~Feature.INSTANCES_V2
broken(
    "I14", V2, "instance_exists", instead_of(Refused, gone, where=_refused(403)),
    "403 is taken for \"there is no such machine\".", ONE,
)  # fmt: skip
broken(
    "B15", BATCH, "instances_state",
    instead_of(Refused, lambda nodes: {node_name(one): InstanceState.GONE for one in nodes}, where=_refused(404)),
    "A proxy's 404 is taken for \"there is no such machine\".", MANY,
)  # fmt: skip
broken(
    "L33", BALANCERS, "get_load_balancer", instead_of(Refused, lambda *_: None, where=_refused(401, 403, 404)),
    "Any 4xx is taken for \"there is no such load balancer\".",
)  # fmt: skip


@breaks("L34")
class BlamesTheService(FakeOwningLoadBalancers):
    """Every failure is an InvalidService, which is not tried again before the Service changes."""

    def ensure_load_balancer(self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]) -> Status:
        try:
            return super().ensure_load_balancer(cluster_name, service, nodes)
        except Refused as error:
            raise InvalidService(str(error)) from error


broken(
    "O6", BALANCERS, "owned_load_balancers", instead_of(Refused, lambda *_: (), where=_refused(200)),
    "An answer without the list is taken for an empty one.",
)  # fmt: skip
broken(
    "R20", FakeRoutes, "list_routes", instead_of(Refused, lambda *_: (), where=_refused(200)),
    "An answer without the list is taken for an empty one.",
)  # fmt: skip
broken(
    "R21", FakeRoutes, "delete_route", instead_of(Refused, lambda *_: None, where=_refused(404)),
    "A proxy's 404 is taken for \"the route is deleted\".",
)  # fmt: skip


# ---- machines that are easily confused


def _state(part: Any, node: V1Node) -> str:
    found = part._machines.by_key(node_name(node), provider_id_of(node))
    return str(found.labels.get(STATE, "")) if isinstance(found, Instance) else ""


PAGE = 8


def _on_later_pages(part: Any, nodes: Sequence[V1Node]) -> list[str]:
    names = list(part._machines.world.instances)
    return [name for name in map(node_name, nodes) if name in names[PAGE:]]


@breaks("I13", ONE)
class ReadsTheFirstPage(FakeInstancesV2):
    """Machines that are not on the first page of the listing are said to be gone."""

    def instance_metadata(self, node: V1Node) -> InstanceMetadata:
        if _on_later_pages(self, [node]):
            raise InstanceNotFound("it is not in the listing")
        return super().instance_metadata(node)


@breaks("B14", MANY)
class ReadsTheFirstPageForAll(FakeInstancesBatch):
    """In a batch, machines that are not on the first page of the listing are said to be gone."""

    def instances_metadata(self, nodes: Sequence[V1Node]) -> dict[str, Any]:
        none = InstanceNotFound("it is not in the listing")
        return {**super().instances_metadata(nodes), **dict.fromkeys(_on_later_pages(self, nodes), none)}


broken(
    "R19", FakeRoutes, "list_routes", answering(lambda found, *_: found[:PAGE]),
    "The first page of the table is taken for the whole.",
)  # fmt: skip


@breaks("I15", ONE)
class FailedIsGone(FakeInstancesV2):
    """A machine in the state "error" is said to be gone."""

    def instance_exists(self, node: V1Node) -> bool:
        found = self._machines.by_key(node_name(node), provider_id_of(node))
        return super().instance_exists(node) and not (
            isinstance(found, Instance) and found.labels.get(STATE) == "error"
        )


@breaks("B16", MANY)
class BeingDeletedIsGone(FakeInstancesBatch):
    """A machine that is being deleted is said to be gone."""

    def instances_state(self, nodes: Sequence[V1Node]) -> dict[str, Any]:
        machines = {node_name(node): self._machines.by_key(node_name(node), provider_id_of(node)) for node in nodes}
        leaving = [
            n for n, one in machines.items() if isinstance(one, Instance) and one.labels.get(STATE) == "deleting"
        ]
        return {**super().instances_state(nodes), **dict.fromkeys(leaving, InstanceState.GONE)}


def _beginning(part: Any, node: V1Node) -> Instance | None:
    """A machine whose name begins as the node's, which has none of its whole name."""
    names = part._machines.world.instances
    found = [one for name, one in sorted(names.items()) if name.startswith(node_name(node))]
    return found[0] if found and not provider_id_of(node) and node_name(node) not in names else None


@breaks("I16", ONE)
class ByTheBeginning(FakeInstancesV2):
    """A machine is found by the beginning of its name."""

    def instance_metadata(self, node: V1Node) -> InstanceMetadata:
        found = _beginning(self, node)
        return super().instance_metadata(node) if found is None else self._machines.metadata(found)


@breaks("B17", MANY)
class AllByTheBeginning(FakeInstancesBatch):
    """In a batch, a machine is found by the beginning of its name."""

    def instances_metadata(self, nodes: Sequence[V1Node]) -> dict[str, Any]:
        alike = {node_name(node): _beginning(self, node) for node in nodes}
        found = {name: self._machines.metadata(one) for name, one in alike.items() if one is not None}
        return {**super().instances_metadata(nodes), **found}


@breaks("I17", ONE)
class TakesTheFirst(FakeInstancesV2):
    """Of several machines of one name the first is taken."""

    def instance_metadata(self, node: V1Node) -> InstanceMetadata:
        try:
            return super().instance_metadata(node)
        except Ambiguous:
            return self._machines.metadata(self._machines.by_name(node_name(node)))


@breaks("B18", MANY)
class SeveralAreNone(FakeInstancesBatch):
    """Of several machines of one name none is taken: it is said to be gone."""

    def instances_metadata(self, nodes: Sequence[V1Node]) -> dict[str, Any]:
        found = super().instances_metadata(nodes)
        none = InstanceNotFound("not exactly one")
        return {name: none if isinstance(value, Ambiguous) else value for name, value in found.items()}


def _swapped(found: InstanceMetadata, *_: object) -> InstanceMetadata:
    return evolve(found, zone=found.region, region=found.zone)


broken("I18", V2, "instance_metadata", answering(_swapped), "Zone and region are swapped.", ONE)
broken(
    "B19", BATCH, "instances_metadata", answering_each(InstanceMetadata, _swapped), "Zone and region are swapped.", MANY
)


# ---- load balancers and routes


def _complete(change: Callable[[LoadBalancerRecord, LoadBalancerRecord], LoadBalancerRecord]) -> Any:
    return answering(lambda made, base, *_: change(made, base))


broken(
    "L35", BALANCERS, "_complete",
    _complete(lambda made, _: evolve(made, ports=[evolve(port, protocol="TCP") for port in made.ports])),
    "Every port is one over TCP.",
)  # fmt: skip
broken(
    "L36", BALANCERS, "_complete",
    _complete(lambda made, base: evolve(made, health_check=base.health_check or made.health_check)),
    "The health check of the first build stays.",
)  # fmt: skip
broken(
    "L37", BALANCERS, "_complete",
    _complete(lambda made, base: evolve(made, source_ranges=made.source_ranges or base.source_ranges)),
    "Source ranges are set, and never taken away.",
)  # fmt: skip
broken(
    "L38", BALANCERS, "ensure_load_balancer", instead_of(Building, lambda *_: Status(ingress=[])),
    "A status without address is returned while the cloud builds.",
)  # fmt: skip
broken(
    "L39", BALANCERS, "ensure_load_balancer_deleted", instead_of(Building, lambda *_: None),
    "The deletion returns once the cloud has begun it.",
)  # fmt: skip
broken(
    "L40", BALANCERS, "ensure_load_balancer",
    instead_of(QuotaExceeded, lambda *_: Status(ingress=[V1LoadBalancerIngress(ip="203.0.113.1")])),
    "A quota that is used up is passed over.",
)  # fmt: skip


@breaks("L41")
class ChecksBeforeItDeletes(FakeOwningLoadBalancers):
    """The Service is checked before its load balancer is deleted, as it is before it is built."""

    def ensure_load_balancer_deleted(self, cluster_name: str, service: V1Service) -> None:
        if service.spec is not None and service.spec.session_affinity == "ClientIP":
            raise InvalidService("session affinity is not supported")
        super().ensure_load_balancer_deleted(cluster_name, service)


@breaks("R22")
class StoppedIsABlackhole(FakeRoutes):
    """The route to a machine that is switched off is listed as a blackhole."""

    def list_routes(self, cluster_name: str) -> Sequence[Route]:
        off = {name for name, one in self._world.instances.items() if one.shutdown}
        return [
            evolve(one, blackhole=one.target_node in off or one.blackhole) for one in super().list_routes(cluster_name)
        ]


broken(
    "R23", FakeRoutes, "create_route", instead_of(QuotaExceeded, lambda *_: None),
    "A full route table is passed over.",
)  # fmt: skip
