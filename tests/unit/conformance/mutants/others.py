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
from kubernetes.client.models.v1_persistent_volume import V1PersistentVolume
from kubernetes.client.models.v1_service import V1Service

from cloudprovider import (
    Call,
    CloudProviderError,
    DiskNotFound,
    InstanceMetadata,
    InstanceNotFound,
    Route,
    call_scope,
)
from cloudprovider.testing.conformance import Feature
from cloudprovider.testing.fake import FakeCloud
from cloudprovider.testing.fake.loadbalancers import FakeOwningLoadBalancers
from cloudprovider.testing.fake.others import FakeClusters, FakeLocalInstance, FakePVLabeler, FakeRoutes
from cloudprovider.wellknown import LABEL_TOPOLOGY_ZONE
from tests.unit.conformance.fakelab import SECRET
from tests.unit.conformance.mutants.bench import ALL, breaks
from tests.unit.conformance.mutants.nodes import RACE, is_outage

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


@breaks("R1")
class DisownsItsOwn(FakeRoutes):
    """Every route is listed as somebody else's."""

    def list_routes(self, cluster_name: str) -> Sequence[Route]:
        return [evolve(route, owned=False) for route in super().list_routes(cluster_name)]


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


@breaks("R7")
class NoBlackholes(FakeRoutes):
    """A route whose machine was deleted looks like any other."""

    def list_routes(self, cluster_name: str) -> Sequence[Route]:
        return [evolve(route, blackhole=False) for route in super().list_routes(cluster_name)]


@breaks("R8")
class EmptyInAnOutage(FakeRoutes):
    """An error of the cloud is taken for an empty table."""

    def list_routes(self, cluster_name: str) -> Sequence[Route]:
        try:
            return super().list_routes(cluster_name)
        except CloudProviderError as error:
            if is_outage(error):
                return []
            raise


@breaks("R9")
class SwallowsErrors(FakeRoutes):
    """`delete_route` returns although the cloud refused."""

    def delete_route(self, cluster_name: str, route: Route) -> None:
        try:
            super().delete_route(cluster_name, route)
        except CloudProviderError as error:
            if not is_outage(error):
                raise


@breaks("R10")
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


@breaks("R11")
class OneRouteForAllThreads(FakeRoutes):
    """The route that is created is kept in an attribute that all threads share."""

    route: Route

    def create_route(self, cluster_name: str, name_hint: str, route: Route) -> None:
        self.route = route
        time.sleep(RACE)
        super().create_route(cluster_name, name_hint, self.route)


@breaks("R12")
class ListsItsOwn(_Remembers):
    """Routes are listed from memory: those that were made before a restart are missing."""

    def create_route(self, cluster_name: str, name_hint: str, route: Route) -> None:
        super().create_route(cluster_name, name_hint, route)
        self.remembered[route.destination_cidr] = route

    def list_routes(self, cluster_name: str) -> Sequence[Route]:
        return [route for route in super().list_routes(cluster_name) if route.destination_cidr in self.remembered]


@breaks("R13")
class CreatesWhenCancelled(FakeRoutes):
    """Nothing looks at whether the host still wants the route."""

    def create_route(self, cluster_name: str, name_hint: str, route: Route) -> None:
        with call_scope(Call()):
            super().create_route(cluster_name, name_hint, route)


@breaks("R14")
class NoTimeLimit(FakeRoutes):
    """Requests have no time limit."""

    def list_routes(self, cluster_name: str) -> Sequence[Route]:
        with call_scope(Call()):
            return super().list_routes(cluster_name)


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


# ---- PVLabeler

Labels = Mapping[str, str]


@breaks("V1")
class NoZone(FakePVLabeler):
    """A volume has no zone."""

    def get_labels_for_volume(self, pv: V1PersistentVolume) -> Labels:
        return {key: one for key, one in super().get_labels_for_volume(pv).items() if key != LABEL_TOPOLOGY_ZONE}


@breaks("V2")
class LabelsItself(FakePVLabeler):
    """The labels are written on the PersistentVolume that was handed over."""

    def get_labels_for_volume(self, pv: V1PersistentVolume) -> Labels:
        assert pv.metadata is not None
        labels = dict(super().get_labels_for_volume(pv))
        pv.metadata.labels = labels
        return labels


@breaks("V3")
class NothingInsteadOfGone(FakePVLabeler):
    """A volume that is gone has no labels."""

    def get_labels_for_volume(self, pv: V1PersistentVolume) -> Labels:
        try:
            return super().get_labels_for_volume(pv)
        except DiskNotFound:
            return {}


@breaks("V4")
class NothingInAnOutage(FakePVLabeler):
    """An error of the cloud is taken for "no labels"."""

    def get_labels_for_volume(self, pv: V1PersistentVolume) -> Labels:
        try:
            return super().get_labels_for_volume(pv)
        except CloudProviderError as error:
            if is_outage(error):
                return {}
            raise


@breaks("V5")
class EveryVolumeIsOurs(FakePVLabeler):
    """A volume of another kind is said to be missing."""

    def get_labels_for_volume(self, pv: V1PersistentVolume) -> Labels:
        labels = super().get_labels_for_volume(pv)
        if not labels:
            raise DiskNotFound("no such disk")
        return labels


# ---- Clusters


@breaks("C1")
class NoMaster(FakeClusters):
    """`master` answers None."""

    def master(self, cluster_name: str) -> str:
        super().master(cluster_name)
        return None  # type: ignore[return-value]  # the mistake


@breaks("C2")
class NoClusters(FakeClusters):
    """An error of the cloud is taken for an empty account."""

    def list_clusters(self) -> Sequence[str]:
        try:
            return super().list_clusters()
        except CloudProviderError as error:
            if is_outage(error):
                return []
            raise


@breaks("C3")
class AddressByConvention(FakeClusters):
    """`master` makes an address of any name."""

    def master(self, cluster_name: str) -> str:
        return f"{cluster_name}.cloud.example"


@breaks("C4")
class ListsWithoutLimit(FakeClusters):
    """Requests have no time limit."""

    def list_clusters(self) -> Sequence[str]:
        with call_scope(Call()):
            return super().list_clusters()


# ---- LocalInstance


@breaks("M1")
class ForbiddenLabel(FakeLocalInstance):
    """A label of Kubernetes itself is among the additional ones: a kubelet does not start with
    it."""

    def local_metadata(self) -> InstanceMetadata:
        return evolve(super().local_metadata(), additional_labels={"node-role.kubernetes.io/worker": ""})


@breaks("M2")
class NamedByTheFirstPart(FakeLocalInstance):
    """The node's name is made of the host name, where the cloud knows the machine by another
    one."""

    def local_node_name(self, hostname: str) -> str:
        return super().local_node_name(hostname).partition("-")[0]


@breaks("M3")
class NeedsToBeInitialized(FakeCloud):
    """`local_instance()` answers None until `initialize` was called."""

    def initialize(self, client_builder: ClientBuilder, stop: StopSignal) -> None:
        super().initialize(client_builder, stop)
        self.__dict__["_ready"] = True

    def local_instance(self) -> FakeLocalInstance | None:
        return super().local_instance() if "_ready" in self.__dict__ else None


@breaks("M4")
class ZoneFromTheName(FakeLocalInstance):
    """The zone on the machine is spelled in another way than in the cloud."""

    def local_metadata(self) -> InstanceMetadata:
        answer = super().local_metadata()
        return evolve(answer, zone=f"{answer.region}-{answer.zone}")


@breaks("M5")
class UnreachableIsElsewhere(FakeLocalInstance):
    """A metadata service that does not answer is taken for a machine that is no instance."""

    def local_metadata(self) -> InstanceMetadata:
        try:
            return super().local_metadata()
        except CloudProviderError as error:
            if is_outage(error):
                raise InstanceNotFound("there is no metadata service") from error
            raise


@breaks("M6")
class NoTimeLimitOnBoot(FakeLocalInstance):
    """Requests to the metadata service have no time limit."""

    def local_metadata(self) -> InstanceMetadata:
        with call_scope(Call()):
            return super().local_metadata()


# ---- Interface


@breaks("G1", Feature.INSTANCES_V2)
class AnotherName(FakeCloud):
    """`provider_name()` is not the entry point's name."""

    def provider_name(self) -> str:
        return "fakecloud"


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


@breaks("G4")
class NewObjects(FakeCloud):
    """`routes()` makes a new object at each call."""

    def routes(self) -> FakeRoutes | None:
        return copy.copy(super().routes())


@breaks("G5")
class OnePrefix(FakeCloud):
    """`provider_id_prefixes()` is one text."""

    def provider_id_prefixes(self) -> Any:
        return "fake://"


@breaks("G6")
class AllTheSame(FakeCloud):
    """`same_provider_id` always says yes."""

    def same_provider_id(self, one: str, other: str) -> bool:
        return True


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


@breaks("G9")
class ForeignErrors(FakeOwningLoadBalancers):
    """The client's own exceptions are passed on."""

    def get_load_balancer(self, cluster_name: str, service: V1Service) -> Any:
        try:
            return super().get_load_balancer(cluster_name, service)
        except CloudProviderError as error:
            raise OSError(str(error)) from error


@breaks("G10")
class NoClusterID(FakeCloud):
    """`has_cluster_id()` answers False."""

    def has_cluster_id(self) -> bool:
        return False


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
