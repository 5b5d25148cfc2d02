"""Mutants of L and O: load balancers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any

from attrs import evolve
from kubernetes.client.models.v1_load_balancer_ingress import V1LoadBalancerIngress
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_service import V1Service

from cloudprovider import CloudProviderError, LoadBalancerKept, OwnedLoadBalancer
from cloudprovider.helpers import annotations_of, key_of, labels_of, provider_id_of, uid_of
from cloudprovider.testing.fake.loadbalancers import ADOPT, FakeOwningLoadBalancers
from cloudprovider.testing.fake.machines import BadRequest
from cloudprovider.testing.fake.records import LoadBalancerRecord, LoadBalancerState
from tests.unit.conformance.mutants.bench import breaks, broken
from tests.unit.conformance.mutants.ways import answering, in_an_outage, instead_of, shared_by_threads, unlimited

Status = V1LoadBalancerStatus
BALANCERS = FakeOwningLoadBalancers


def _unnamed(name: str, service: V1Service, wrong: str) -> str:
    """The wrong name, but for a Service that names its load balancer itself."""
    return name if ADOPT in annotations_of(service) else wrong


def another(service: V1Service) -> V1Service:
    """A Service of the same name with another UID."""
    copy = deepcopy(service)
    assert copy.metadata is not None
    copy.metadata.uid = f"again-{copy.metadata.uid}"
    return copy


class _Remembers(FakeOwningLoadBalancers):
    """The same, with what one instance of the program remembers of its Services."""

    def __init__(self, *args: Any) -> None:
        raise AssertionError("made from the fake cloud's own")

    @property
    def remembered(self) -> dict[str, int]:
        """By UID, a number."""
        found: dict[str, int] = self.__dict__.setdefault("_remembered", {})
        return found


@breaks("L1", without=["adopting_annotations"])
class LookingBuilds(_Remembers):
    """`get_load_balancer` builds a load balancer where it finds none for the first time."""

    def get_load_balancer(self, cluster_name: str, service: V1Service) -> Status | None:
        found = super().get_load_balancer(cluster_name, service)
        if found is None and uid_of(service) not in self.remembered:
            self.remembered[uid_of(service)] = 1
            super().ensure_load_balancer("lost", another(service), [])
        return found

    def ensure_load_balancer(self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]) -> Status:
        self.remembered[uid_of(service)] = 1
        return super().ensure_load_balancer(cluster_name, service, nodes)


broken(
    "L2", BALANCERS, "get_load_balancer ensure_load_balancer", answering(lambda found, *_: found and _with_port(found)),
    "The status has an address with a port, which is no IP address.",
)  # fmt: skip


def _with_port(status: Status) -> Status:
    return Status(ingress=[V1LoadBalancerIngress(ip=f"{point.ip}:80") for point in status.ingress or ()])


@breaks("L3")
class BuildsAnother(_Remembers):
    """After three calls for one Service there are two load balancers."""

    def ensure_load_balancer(self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]) -> Status:
        built = super().ensure_load_balancer(cluster_name, service, nodes)
        self.remembered[uid_of(service)] = self.remembered.get(uid_of(service), 0) + 1
        if self.remembered[uid_of(service)] == 3:
            super().ensure_load_balancer("lost", another(service), nodes)
        return built


broken(
    "L4", BALANCERS, "_name",
    answering(lambda name, _, service: _unnamed(name, service, f"{labels_of(service).get('team', 'none')}-{name}")),
    "The name has the Service's label \"team\" in it.",
)  # fmt: skip


broken(
    "L5", BALANCERS, "_name",
    answering(
        lambda name, cluster, service: _unnamed(name, service, f"{cluster}-{key_of(service).replace('/', '-')}")
    ),
    "The name is made from the cluster's, the namespace's and the Service's names, without the UID.",
)  # fmt: skip


@breaks("L6")
class RevisionOfTheProcess(FakeOwningLoadBalancers):
    """The revision is a number of its own for each process."""

    numbers = itertools.count()

    def load_balancer_revision(self) -> str:
        number: int = self.__dict__.setdefault("_number", next(self.numbers))
        return str(number)


def _is_new(base: LoadBalancerRecord) -> bool:
    return base.state is LoadBalancerState.HALF_BUILT


def built(
    scenario: str, spoilt: Callable[[LoadBalancerRecord, LoadBalancerRecord], LoadBalancerRecord], wrong: str
) -> None:
    """A mutant that builds something else: `spoilt` gets what was wanted, and what there was
    before."""
    broken(scenario, BALANCERS, "_complete", answering(lambda wanted, base, *_: spoilt(wanted, base)), wrong)


built(
    "L7", lambda wanted, base: evolve(wanted, ports=wanted.ports[:1]) if _is_new(base) else wanted,
    "A new load balancer has the Service's first port only.",
)  # fmt: skip


def _keeps_old_ports(wanted: LoadBalancerRecord, base: LoadBalancerRecord) -> LoadBalancerRecord:
    known = {port.port for port in wanted.ports}
    return evolve(wanted, ports=[*wanted.ports, *(port for port in base.ports if port.port not in known)])


built("L8", _keeps_old_ports, "A port that the Service no longer has stays open.")


built(
    "L9", lambda wanted, base: evolve(wanted, backends=wanted.backends[:1]) if _is_new(base) else wanted,
    "A new load balancer has one target only.",
)  # fmt: skip


built(
    "L10", lambda wanted, base: evolve(wanted, backends=sorted({*wanted.backends, *base.backends})),
    "`ensure_load_balancer` adds targets and removes none.",
)  # fmt: skip


built(
    "L18",
    lambda wanted, base: evolve(wanted, source_ranges=base.source_ranges)
    if base.source_ranges and wanted.source_ranges
    else wanted,
    "Source ranges that were set once are not changed, until they are taken away.",
)  # fmt: skip


@breaks("L11")
class KeepsTheLast(FakeOwningLoadBalancers):
    """An empty list of nodes is taken for a mistake: the targets stay."""

    def update_load_balancer(self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]) -> None:
        if nodes:
            super().update_load_balancer(cluster_name, service, nodes)


@breaks("L12")
class UpdatesAll(FakeOwningLoadBalancers):
    """`update_load_balancer` does all that `ensure_load_balancer` does."""

    def update_load_balancer(self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]) -> None:
        super().update_load_balancer(cluster_name, service, nodes)
        self.ensure_load_balancer(cluster_name, service, nodes)


broken(
    "L13", BALANCERS, "update_load_balancer", instead_of(BadRequest, lambda *_: None),
    "`update_load_balancer` returns where there is no load balancer.",
)  # fmt: skip


@breaks("L14")
class TripsOverStrangers(FakeOwningLoadBalancers):
    """A node of another cloud fails the call."""

    def ensure_load_balancer(self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]) -> Status:
        if not all(provider_id_of(node).startswith("fake://") for node in nodes):
            raise CloudProviderError("a node is not of this cloud")
        return super().ensure_load_balancer(cluster_name, service, nodes)


@breaks("L15", without=["adopting_annotations"])
class ScribblesOnServices(FakeOwningLoadBalancers):
    """A mark is written on the Service that was handed over."""

    def get_load_balancer(self, cluster_name: str, service: V1Service) -> Status | None:
        assert service.metadata is not None
        service.metadata.annotations = {"example.com/seen": "yes"}
        return super().get_load_balancer(cluster_name, service)


@breaks("L16")
class KnowsOnlyItsOwn(_Remembers):
    """Load balancers are known from memory: those that were built before a restart are not."""

    def get_load_balancer(self, cluster_name: str, service: V1Service) -> Status | None:
        found = super().get_load_balancer(cluster_name, service)
        return found if uid_of(service) in self.remembered else None

    def ensure_load_balancer(self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]) -> Status:
        self.remembered[uid_of(service)] = 1
        return super().ensure_load_balancer(cluster_name, service, nodes)


broken(
    "L17", BALANCERS, "ensure_load_balancer", shared_by_threads,
    "The Service that is worked on is kept in an attribute that all threads share.",
)  # fmt: skip


@breaks("L20", without=["outage", "builds_slowly", "resources"])
class LeavesAPart(FakeOwningLoadBalancers):
    """Deletion leaves a part of the load balancer in the cloud."""

    def ensure_load_balancer_deleted(self, cluster_name: str, service: V1Service) -> None:
        present = super().get_load_balancer(cluster_name, service) is not None
        super().ensure_load_balancer_deleted(cluster_name, service)
        if present:
            super().ensure_load_balancer("lost", another(service), [])


@breaks("L21", without=["adopting_annotations", "resources"])
class NothingToDelete(FakeOwningLoadBalancers):
    """Deleting what does not exist fails."""

    def ensure_load_balancer_deleted(self, cluster_name: str, service: V1Service) -> None:
        if super().get_load_balancer(cluster_name, service) is None:
            raise CloudProviderError("there is no such load balancer")
        super().ensure_load_balancer_deleted(cluster_name, service)


@breaks("L22")
class BeginsAnew(FakeOwningLoadBalancers):
    """A half-built load balancer is not completed: another is built beside it."""

    found_half_built = False

    def _base(
        self, name: str, cluster_name: str, service: V1Service, present: LoadBalancerRecord | None
    ) -> LoadBalancerRecord:
        self.found_half_built = present is not None and present.state is LoadBalancerState.HALF_BUILT
        return super()._base(name, cluster_name, service, present)

    def ensure_load_balancer(self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]) -> Status:
        built = super().ensure_load_balancer(cluster_name, service, nodes)
        if self.found_half_built:
            super().ensure_load_balancer("lost", another(service), nodes)
        return built


@breaks("L23")
class DeletesFinishedOnes(FakeOwningLoadBalancers):
    """Deletion leaves a half-built load balancer alone."""

    def ensure_load_balancer_deleted(self, cluster_name: str, service: V1Service) -> None:
        found = super().get_load_balancer(cluster_name, service)
        if found is None or found.ingress:
            super().ensure_load_balancer_deleted(cluster_name, service)


@breaks("L24", without=["bad_answers", "builds_slowly"])
class DeletesOnce(_Remembers):
    """A deletion that failed once is believed done when it is repeated."""

    def ensure_load_balancer_deleted(self, cluster_name: str, service: V1Service) -> None:
        if uid_of(service) in self.remembered:
            return
        try:
            super().ensure_load_balancer_deleted(cluster_name, service)
        except CloudProviderError:
            self.remembered[uid_of(service)] = 1
            raise


broken(
    "L25", BALANCERS, "get_load_balancer", in_an_outage(lambda *_: None),
    'An error of the cloud is taken for "no such load balancer".',
)  # fmt: skip


broken(
    "L26", BALANCERS, "update_load_balancer", in_an_outage(lambda *_: None),
    "`update_load_balancer` returns although the cloud refused.",
)  # fmt: skip


@breaks("L27")
class DeletesByServiceName(FakeOwningLoadBalancers):
    """Deletion removes every load balancer that was made for a Service of that name, whichever
    cluster's."""

    def ensure_load_balancer_deleted(self, cluster_name: str, service: V1Service) -> None:
        super().ensure_load_balancer_deleted(cluster_name, service)
        assert service.metadata is not None
        for cluster in (cluster_name, f"{cluster_name}-2"):
            for found in super().owned_load_balancers(cluster):
                if found.service == f"{service.metadata.namespace}/{service.metadata.name}":
                    other = deepcopy(service)
                    assert other.metadata is not None
                    other.metadata.uid = found.service_uid
                    super().ensure_load_balancer_deleted(cluster, other)


@breaks("L28")
class ChangesOnce(_Remembers):
    """A change that failed once is believed done when it is repeated."""

    def ensure_load_balancer(self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]) -> Status:
        built, failed = 1, 2
        if self.remembered.get(uid_of(service)) == failed:
            return super().get_load_balancer(cluster_name, service) or Status(ingress=[])
        try:
            status = super().ensure_load_balancer(cluster_name, service, nodes)
        except CloudProviderError:
            if self.remembered.get(uid_of(service)) == built:
                self.remembered[uid_of(service)] = failed
            raise
        self.remembered[uid_of(service)] = built
        return status


broken(
    "L29", BALANCERS, "ensure_load_balancer", unlimited,
    "Nothing looks at whether the host still wants the load balancer.",
)  # fmt: skip


broken("L30", BALANCERS, "get_load_balancer", unlimited, "Requests have no time limit.")


@breaks("L31")
class ReturnsWhereItKeeps(FakeOwningLoadBalancers):
    """Deletion returns although the load balancer is kept, so the host deletes it once more."""

    def ensure_load_balancer_deleted(self, cluster_name: str, service: V1Service) -> None:
        with suppress(LoadBalancerKept):
            super().ensure_load_balancer_deleted(cluster_name, service)


@breaks("L32")
class DeletesOnlyWhatIsWanted(FakeOwningLoadBalancers):
    """Deletion does nothing for a Service that is not of type LoadBalancer any more."""

    def ensure_load_balancer_deleted(self, cluster_name: str, service: V1Service) -> None:
        if service.spec is not None and service.spec.type == "LoadBalancer":
            super().ensure_load_balancer_deleted(cluster_name, service)


# ---- kept ones


@breaks("L47")
class AdoptsWithoutTheAddress(FakeOwningLoadBalancers):
    """A load balancer that is adopted gets another address."""

    def _base(self, name: str, cluster: str, service: V1Service, present: LoadBalancerRecord | None) -> Any:
        base = super()._base(name, cluster, service, present)
        adopted = present is not None and present.service_uid != uid_of(service)
        return evolve(base, ingress=()) if adopted else base


@breaks("L48")
class AdoptsWhatIsInUse(FakeOwningLoadBalancers):
    """A load balancer is adopted whether it was kept or serves another Service."""

    def _check_adoption(self, name: str, cluster_name: str, service: V1Service) -> None:
        record = self._world.load_balancers.get(name)
        if record is None or record.cluster != cluster_name or record.kept:
            super()._check_adoption(name, cluster_name, service)


@breaks("L49")
class AdoptsOfEveryCluster(FakeOwningLoadBalancers):
    """A load balancer is adopted without a look at whose cluster's it is."""

    def _check_adoption(self, name: str, cluster_name: str, service: V1Service) -> None:
        record = self._world.load_balancers.get(name)
        super()._check_adoption(name, record.cluster if record is not None else cluster_name, service)


@breaks("L51")
class AdoptsOfEveryNamespace(FakeOwningLoadBalancers):
    """A load balancer that was kept is adopted without a look at whose it was."""

    def _check_adoption(self, name: str, cluster_name: str, service: V1Service) -> None:
        record = self._world.load_balancers.get(name)
        if record is None or record.cluster != cluster_name or not record.kept:
            super()._check_adoption(name, cluster_name, service)


@breaks("L50")
class DeletesWhatIsNamed(FakeOwningLoadBalancers):
    """Deletion takes the load balancer that the Service names, which it may never have got."""

    def ensure_load_balancer_deleted(self, cluster_name: str, service: V1Service) -> None:
        name = self._name(cluster_name, service)
        record = self._world.load_balancers.get(name)
        if record is not None and record.kept and record.cluster == cluster_name and ADOPT in annotations_of(service):
            del self._world.load_balancers[name]
            return
        super().ensure_load_balancer_deleted(cluster_name, service)


# ---- OwnedLoadBalancers

Owned = Sequence[OwnedLoadBalancer]


broken(
    "O1", BALANCERS, "owned_load_balancers",
    answering(lambda found, _: [evolve(one, service=one.service.partition("/")[2]) for one in found]),
    "The Service's name is recorded without its namespace.",
)  # fmt: skip


@breaks("O2")
class ListsDeletedOnes(_Remembers):
    """A load balancer that was deleted stays in the list."""

    def ensure_load_balancer_deleted(self, cluster_name: str, service: V1Service) -> None:
        super().ensure_load_balancer_deleted(cluster_name, service)
        self.remembered[uid_of(service)] = 1

    def owned_load_balancers(self, cluster_name: str) -> Owned:
        deleted = [OwnedLoadBalancer(f"a{uid}", "", uid) for uid in self.remembered]
        return [*super().owned_load_balancers(cluster_name), *deleted]


@breaks("O3")
class ListsEveryClusters(FakeOwningLoadBalancers):
    """The load balancers of all clusters are listed."""

    def owned_load_balancers(self, cluster_name: str) -> Owned:
        first = cluster_name.removesuffix("-2")
        return [*super().owned_load_balancers(first), *super().owned_load_balancers(f"{first}-2")]


broken(
    "O4", BALANCERS, "owned_load_balancers", in_an_outage(lambda _: []),
    "An error of the cloud is taken for an empty list.",
)  # fmt: skip


@breaks("O5")
class ListsFinishedOnes(_Remembers):
    """Only load balancers that were built to their end are listed."""

    def ensure_load_balancer(self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]) -> Status:
        built = super().ensure_load_balancer(cluster_name, service, nodes)
        self.remembered[uid_of(service)] = 1
        return built

    def owned_load_balancers(self, cluster_name: str) -> Owned:
        return [one for one in super().owned_load_balancers(cluster_name) if one.service_uid in self.remembered]


@breaks("O7")
class LeavesWhatTheListNames(FakeOwningLoadBalancers):
    """What was listed is not deleted where its Service cannot be asked for its annotations."""

    def delete_owned_load_balancer(self, cluster_name: str, owned: OwnedLoadBalancer) -> None:
        return
