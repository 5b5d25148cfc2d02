"""Mutants of R, V, C, M and G: routes, volumes, clusters, the program's own machine, and the
provider as a whole."""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import evolve
from kubernetes.client.models.v1_node_address import V1NodeAddress
from kubernetes.client.models.v1_persistent_volume import V1PersistentVolume
from kubernetes.client.models.v1_service import V1Service

from cloudprovider import CloudProviderError, DiskNotFound, InstanceNotFound, OwnedResource, Route
from cloudprovider.testing.conformance import Feature
from cloudprovider.testing.fake import BadRequest, FakeCloud
from cloudprovider.testing.fake.loadbalancers import FakeOwningLoadBalancers
from cloudprovider.testing.fake.others import (
    FakeClusters,
    FakeLocalInstance,
    FakeOwnedResources,
    FakePVLabeler,
    FakeRoutes,
)
from cloudprovider.wellknown import LABEL_TOPOLOGY_ZONE
from tests.unit.conformance.fakelab import SECRET
from tests.unit.conformance.mutants.bench import ALL, breaks, broken
from tests.unit.conformance.mutants.ways import (
    answering,
    gone,
    in_an_outage,
    instead_of,
    shared_by_threads,
    unlimited,
)

if TYPE_CHECKING:
    from cloudprovider import ClientBuilder, StopSignal

log = logging.getLogger(__name__)


# ---- Routes


class _Remembers(FakeRoutes):
    """The same, with what one instance of the program remembers of its routes."""

    @property
    def remembered(self) -> dict[str, Route]:
        """By what the mutant likes."""
        found: dict[str, Route] = self.__dict__.setdefault("_remembered", {})
        return found


broken(
    "R1", FakeRoutes, "list_routes", answering(lambda found, _: [evolve(one, owned=False) for one in found]),
    "Every route is listed as somebody else's.",
)  # fmt: skip


@breaks("R2")
class RouteExists(FakeRoutes):
    """A route that exists already is an error."""

    def create_route(self, cluster_name: str, name_hint: str, route: Route) -> None:
        if any(one.destination_cidr == route.destination_cidr for one in super().list_routes(cluster_name)):
            raise CloudProviderError("the route exists")
        super().create_route(cluster_name, name_hint, route)


@breaks("R3")
class DeletedTwice(_Remembers):
    """Deleting a route a second time is an error."""

    def delete_route(self, cluster_name: str, route: Route) -> None:
        if route.name in self.remembered:
            raise CloudProviderError("there is no such route")
        super().delete_route(cluster_name, route)
        self.remembered[route.name] = route


@breaks("R4")
class NamedByHint(_Remembers):
    """A route is named by the hint alone: the second of a node takes the first one's place."""

    def create_route(self, cluster_name: str, name_hint: str, route: Route) -> None:
        name = f"{cluster_name}-{name_hint}"
        for one in super().list_routes(cluster_name):
            known = self.remembered.get(name)
            if known is not None and one.destination_cidr == known.destination_cidr != route.destination_cidr:
                super().delete_route(cluster_name, one)
        super().create_route(cluster_name, name_hint, route)
        self.remembered[name] = route


@breaks("R5")
class LongNamesFail(FakeRoutes):
    """A name hint of more than 63 characters fails the call."""

    def create_route(self, cluster_name: str, name_hint: str, route: Route) -> None:
        if len(name_hint) > 63:
            raise CloudProviderError("the name is too long")
        super().create_route(cluster_name, name_hint, route)


@breaks("R6")
class ListsTheWholeTable(FakeRoutes):
    """The routes of all clusters are listed."""

    def list_routes(self, cluster_name: str) -> Sequence[Route]:
        first = cluster_name.removesuffix("-2")
        return [*super().list_routes(first), *super().list_routes(f"{first}-2")]


broken(
    "R7", FakeRoutes, "list_routes", answering(lambda found, _: [evolve(one, blackhole=False) for one in found]),
    "A route whose machine was deleted looks like any other.",
)  # fmt: skip


broken(
    "R8", FakeRoutes, "list_routes", in_an_outage(lambda _: []),
    "An error of the cloud is taken for an empty table.",
)  # fmt: skip


broken(
    "R9", FakeRoutes, "delete_route", in_an_outage(lambda *_: None),
    "`delete_route` returns although the cloud refused.",
)  # fmt: skip


@breaks("R10", without=["bad_answers"])
class CreatesOnce(_Remembers):
    """A creation that failed once is believed done when it is repeated."""

    def create_route(self, cluster_name: str, name_hint: str, route: Route) -> None:
        if route.destination_cidr in self.remembered:
            return
        try:
            super().create_route(cluster_name, name_hint, route)
        except CloudProviderError:
            self.remembered[route.destination_cidr] = route
            raise


broken(
    "R11", FakeRoutes, "create_route", shared_by_threads,
    "The route that is created is kept in an attribute that all threads share.",
)  # fmt: skip


@breaks("R12")
class ListsItsOwn(_Remembers):
    """Routes are listed from memory: those that were made before a restart are missing."""

    def create_route(self, cluster_name: str, name_hint: str, route: Route) -> None:
        super().create_route(cluster_name, name_hint, route)
        self.remembered[route.destination_cidr] = route

    def list_routes(self, cluster_name: str) -> Sequence[Route]:
        return [route for route in super().list_routes(cluster_name) if route.destination_cidr in self.remembered]


broken(
    "R13", FakeRoutes, "create_route", unlimited, "Nothing looks at whether the host still wants the route."
)  # fmt: skip


broken("R14", FakeRoutes, "list_routes", unlimited, "Requests have no time limit.")


@breaks("R15")
class DeletesByTarget(FakeRoutes):
    """Where a route is not found by its name, all routes to its node are deleted."""

    def delete_route(self, cluster_name: str, route: Route) -> None:
        routes = super().list_routes(cluster_name)
        if all(one.name != route.name for one in routes):
            routes = [one for one in routes if one.target_node == route.target_node]
            for one in routes:
                super().delete_route(cluster_name, one)
        super().delete_route(cluster_name, route)


@breaks("R16")
class RoutesToNowhere(FakeRoutes):
    """The route to a node without a machine is made, and is a blackhole."""

    def create_route(self, cluster_name: str, name_hint: str, route: Route) -> None:
        try:
            super().create_route(cluster_name, name_hint, route)
        except InstanceNotFound:
            super().create_route(cluster_name, name_hint, evolve(route, blackhole=True))


_GATEWAY = [V1NodeAddress(type="InternalIP", address="10.99.0.1")]

broken(
    "R17", FakeRoutes, "list_routes",
    answering(lambda found, _: [
        evolve(one, enable_node_addresses=True, target_node_addresses=_GATEWAY) for one in found
    ]),
    "Routes are listed with the gateway's address instead of their node's.",
)  # fmt: skip

broken(
    "R18", FakeRoutes, "list_routes",
    answering(lambda found, _: [evolve(one, target_provider_id="") for one in found]),
    "Routes are listed by the names that their machines have in the cloud.",
)  # fmt: skip


# ---- PVLabeler

LABELS = "get_labels_for_volume"


broken(
    "V1", FakePVLabeler, LABELS,
    answering(lambda found, _: {key: one for key, one in found.items() if key != LABEL_TOPOLOGY_ZONE}),
    "A volume has no zone.",
)  # fmt: skip


@breaks("V2")
class LabelsItself(FakePVLabeler):
    """The labels are written on the PersistentVolume that was handed over."""

    def get_labels_for_volume(self, pv: V1PersistentVolume) -> Mapping[str, str]:
        assert pv.metadata is not None
        labels = dict(super().get_labels_for_volume(pv))
        pv.metadata.labels = labels
        return labels


broken(
    "V3", FakePVLabeler, LABELS, instead_of(DiskNotFound, lambda _: {}), "A volume that is gone has no labels."
)  # fmt: skip


broken(
    "V4", FakePVLabeler, LABELS, in_an_outage(lambda _: {}), 'An error of the cloud is taken for "no labels".'
)  # fmt: skip


@breaks("V5")
class EveryVolumeIsOurs(FakePVLabeler):
    """A volume of another kind is said to be missing."""

    def get_labels_for_volume(self, pv: V1PersistentVolume) -> Mapping[str, str]:
        labels = super().get_labels_for_volume(pv)
        if not labels:
            raise DiskNotFound("no such disk")
        return labels


# ---- Clusters


broken("C1", FakeClusters, "master", answering(lambda *_: None), "`master` answers None.")


broken(
    "C2", FakeClusters, "list_clusters", in_an_outage(list),
    "An error of the cloud is taken for an empty account.",
)  # fmt: skip


broken(
    "C3", FakeClusters, "master", instead_of(BadRequest, lambda name: f"{name}.cloud.example"),
    "`master` makes an address of any name.",
)  # fmt: skip


broken("C4", FakeClusters, "list_clusters", unlimited, "Requests have no time limit.")


# ---- LocalInstance


broken(
    "M1", FakeLocalInstance, "local_metadata",
    answering(lambda found: evolve(found, additional_labels={"node-role.kubernetes.io/worker": ""})),
    "A label of Kubernetes itself is among the additional ones: a kubelet does not start with it.",
)  # fmt: skip


broken(
    "M2", FakeLocalInstance, "local_node_name", answering(lambda name, _: name.partition("-")[0]),
    "The node's name is made of the host name, where the cloud knows the machine by another one.",
)  # fmt: skip


@breaks("M3")
class NeedsToBeInitialized(FakeCloud):
    """`local_instance()` answers None until `initialize` was called."""

    def initialize(self, client_builder: ClientBuilder, stop: StopSignal) -> None:
        super().initialize(client_builder, stop)
        self.__dict__["_ready"] = True

    def local_instance(self) -> FakeLocalInstance | None:
        return super().local_instance() if "_ready" in self.__dict__ else None


broken(
    "M4", FakeLocalInstance, "local_metadata",
    answering(lambda found: evolve(found, zone=f"{found.region}-{found.zone}")),
    "The zone on the machine is spelled in another way than in the cloud.",
)  # fmt: skip


broken(
    "M5", FakeLocalInstance, "local_metadata", in_an_outage(gone),
    "A metadata service that does not answer is taken for a machine that is no instance.",
)  # fmt: skip


broken(
    "M6", FakeLocalInstance, "local_metadata", unlimited, "Requests to the metadata service have no time limit."
)  # fmt: skip


# ---- Interface


broken(
    "G1", FakeCloud, "provider_name", answering(lambda _: "fakecloud"),
    "`provider_name()` is not the entry point's name.", Feature.INSTANCES_V2,
)  # fmt: skip


@breaks("G2", declared=ALL & ~Feature.ROUTES)
class OffersMore(FakeCloud):
    """It has routes, which its test class does not declare."""


class _Duck:
    """What clusters look like, without being a Clusters."""

    def list_clusters(self) -> Sequence[str]:
        return ["one"]

    def master(self, cluster_name: str) -> str:
        return "192.0.2.1"


@breaks("G3", ALL, without=["outage"])
class LooksLikeClusters(FakeCloud):
    """`clusters()` returns an object that is no Clusters."""

    def clusters(self) -> Any:
        duck: _Duck = self.__dict__.setdefault("_duck", _Duck())
        return duck


broken("G4", FakeCloud, "routes", answering(copy.copy), "`routes()` makes a new object at each call.")


broken(
    "G5", FakeCloud, "provider_id_prefixes", answering(lambda _: "fake://"), "`provider_id_prefixes()` is one text."
)  # fmt: skip


broken("G6", FakeCloud, "same_provider_id", answering(lambda *_: True), "`same_provider_id` always says yes.")


@breaks("G7")
class ShowsItsToken(FakeCloud):
    """The provider's repr shows the token."""

    def __repr__(self) -> str:
        return f"FakeCloud(token={SECRET!r})"


@breaks("G8")
class LogsItsToken(FakeCloud):
    """The token is logged at the start."""

    def initialize(self, client_builder: ClientBuilder, stop: StopSignal) -> None:
        log.debug("connecting with %s", SECRET)
        super().initialize(client_builder, stop)


@breaks("G9", without=["bad_answers"])
class ForeignErrors(FakeOwningLoadBalancers):
    """The client's own exceptions are passed on."""

    def get_load_balancer(self, cluster_name: str, service: V1Service) -> Any:
        try:
            return super().get_load_balancer(cluster_name, service)
        except CloudProviderError as error:
            raise OSError(str(error)) from error


broken("G10", FakeCloud, "has_cluster_id", answering(lambda _: False), "`has_cluster_id()` answers False.")


@breaks("G11")
class ThreadsWithoutEnd(FakeCloud):
    """A thread is started that does not heed the stop signal."""

    def initialize(self, client_builder: ClientBuilder, stop: StopSignal) -> None:
        super().initialize(client_builder, stop)
        threading.Thread(target=time.sleep, args=(1.0,), name="refresh-token").start()


@breaks("G12")
class OneListForAll(_Remembers):
    """Every listing is the same list, which the caller may have changed."""

    def list_routes(self, cluster_name: str) -> Sequence[Route]:
        kept: list[Any] = self.__dict__.setdefault("_listed", [])
        strange = [one for one in kept if not isinstance(one, Route)]
        kept[:] = [*super().list_routes(cluster_name), *strange]
        return kept


# ---- OwnedResources


@breaks("O8")
class DeletesOfEveryCluster(FakeOwnedResources):
    """A resource is deleted by its ID, whichever cluster's it is."""

    def delete_owned_resource(self, cluster_name: str, resource: OwnedResource) -> None:
        found = self._world.resources.get(resource.id)
        super().delete_owned_resource(found.cluster if found is not None else cluster_name, resource)


broken(
    "O9", FakeOwnedResources, "list_owned_resources", in_an_outage(lambda _: []),
    "An error of the cloud is taken for an empty list.",
)  # fmt: skip
