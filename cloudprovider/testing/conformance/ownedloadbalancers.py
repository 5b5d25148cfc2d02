"""Scenarios O: the load balancers of a cluster are listed, each with the Service that it was made
for, and what else a cluster leaves in the cloud."""

from __future__ import annotations

from functools import partial
from typing import Any

from kubernetes.client.models.v1_service import V1Service

from cloudprovider.checks import answers
from cloudprovider.loadbalancer import OwnedLoadBalancer, OwnedLoadBalancers
from cloudprovider.ownedresources import OwnedResource, OwnedResources
from cloudprovider.testing.conformance.base import ConformanceBase
from cloudprovider.testing.conformance.calls import attempt, right, unwell
from cloudprovider.testing.conformance.features import Feature, extension_of
from cloudprovider.testing.conformance.registry import scenario
from cloudprovider.testing.conformance.trial import Trial, declared

_OWNED = Feature.LOAD_BALANCER | Feature.OWNED_LOAD_BALANCERS


def owned(trial: Trial) -> OwnedLoadBalancers:
    found: OwnedLoadBalancers | None = extension_of(trial.provider, OwnedLoadBalancers)
    assert found is not None, f"load_balancer() returns {trial.balancers()!r}, which is no OwnedLoadBalancers"
    return found


def listed(trial: Trial, service: V1Service, cluster_name: str = "") -> list[OwnedLoadBalancer]:
    """The entries of this Service, in the list of the cluster."""
    answer: Any = owned(trial).owned_load_balancers(cluster_name or trial.cluster_name)
    listed = right("owned_load_balancers", answers.owned_load_balancers, answer)
    assert service.metadata is not None
    name = trial.balancers().get_load_balancer_name(cluster_name or trial.cluster_name, service)
    return [one for one in listed if one.name == name or one.service_uid == service.metadata.uid]


class OwnedLoadBalancerScenarios(ConformanceBase):
    """`OwnedLoadBalancers`."""

    @scenario("O1", _OWNED)
    def test_o1_it_is_listed_with_its_service(self, trial: Trial) -> None:
        """A load balancer is listed once, with its name and the name or UID of its Service as
        recorded."""
        service, _ = trial.standing()
        metadata = service.metadata
        assert metadata is not None

        def look() -> None:
            found = listed(trial, service)
            assert len(found) == 1, f"owned_load_balancers has {found!r} for one Service"
            name = trial.balancer_name(service)
            assert found[0].name == name, f"owned_load_balancers names it {found[0].name!r}; its name is {name!r}"
            assert found[0].service in ("", f"{metadata.namespace}/{metadata.name}"), f"{found[0]!r}: another Service"
            assert found[0].service_uid in ("", metadata.uid), f"{found[0]!r}: the Service's UID is {metadata.uid}"

        trial.eventually(look)

    @scenario("O2", _OWNED)
    def test_o2_a_deleted_one_is_not_listed(self, trial: Trial) -> None:
        """A load balancer that was deleted is no longer listed."""
        service = trial.service()
        trial.ensure(service, trial.machines(1))
        trial.remove(service)

        def look() -> None:
            found = listed(trial, service)
            assert not found, f"owned_load_balancers still has {found!r} after the deletion"

        trial.eventually(look)

    @scenario("O3", _OWNED)
    def test_o3_another_clusters_are_not_listed(self, trial: Trial) -> None:
        """A load balancer of this cluster is not listed for another cluster of the account."""
        service, _ = trial.standing()
        found = listed(trial, service, f"{trial.cluster_name}-2")
        assert not found, f"owned_load_balancers of another cluster has {found!r}"

    @scenario("O4", _OWNED, hooks=("outage",))
    def test_o4_an_outage_is_no_empty_list(self, trial: Trial) -> None:
        """While the cloud cannot answer, `owned_load_balancers` raises."""
        with trial.outage():
            unwell("owned_load_balancers", partial(owned(trial).owned_load_balancers, trial.cluster_name))

    @scenario("O5", _OWNED, hooks=("outage", "resources"))
    def test_o5_half_built_ones_are_listed(self, trial: Trial) -> None:
        """Where building was interrupted and left something in the cloud, the load balancer is
        listed."""
        before, service, nodes = trial.resources(), trial.service(), trial.machines(1)
        build = trial.building(service, nodes)
        for after in range(2):
            with trial.outage(after):
                attempt(build)
            left = trial.resources() - before
            name = trial.balancer_name(service)
            # Some clouds undo what failed: then there is nothing to list.
            if name in left:
                found = listed(trial, service)
                assert found, f"{sorted(left)} stand in the cloud, half-built, and owned_load_balancers has none of it"

    @scenario("O7", _OWNED, hooks=("resources",))
    def test_o7_a_listed_one_is_deleted_by_what_the_list_says(self, trial: Trial) -> None:
        """`delete_owned_load_balancer` deletes what was listed, with every part of it, also when
        repeated."""
        before, service = trial.resources(), trial.service()
        trial.ensure(service, trial.machines(1))
        found: list[OwnedLoadBalancer] = []

        def find() -> None:
            found[:] = listed(trial, service)
            assert len(found) == 1, f"owned_load_balancers has {found!r} for one Service"

        trial.eventually(find)
        for _ in range(2):
            trial.patiently(lambda: owned(trial).delete_owned_load_balancer(trial.cluster_name, found[0]))

        def look() -> None:
            left = trial.resources() - before
            assert not left, (
                f"delete_owned_load_balancer returned, and {sorted(left)} are left: its default deletes by namespace, "
                "name and UID of the Service alone; override it where you need more"
            )

        trial.eventually(look)


def _resources(trial: Trial) -> OwnedResources:
    return declared(trial.provider.owned_resources(), "owned_resources")


def _listed(trial: Trial, cluster_name: str) -> dict[str, OwnedResource]:
    answer: Any = _resources(trial).list_owned_resources(cluster_name)
    return {one.id: one for one in right("list_owned_resources", answers.owned_resources, answer)}


class OwnedResourceScenarios(ConformanceBase):
    """`OwnedResources`."""

    @scenario("O8", Feature.OWNED_RESOURCES, hooks=("create_owned_resource",))
    def test_o8_a_clusters_own_are_listed_and_deleted(self, trial: Trial) -> None:
        """A resource is listed and deleted for its cluster alone; to delete it twice is success."""
        ours, other = trial.cluster_name, f"{trial.cluster_name}-2"
        mine, theirs = trial.lab.create_owned_resource(ours), trial.lab.create_owned_resource(other)
        found: dict[str, OwnedResource] = {}

        def find() -> None:
            found.update(_listed(trial, ours))
            assert mine in found, f"list_owned_resources lacks {mine}: it has {sorted(found)}"

        trial.eventually(find)
        assert theirs not in found, f"list_owned_resources has {theirs}, which is another cluster's"
        # The wrong cluster first, which must change nothing, and the right one twice.
        for cluster, one in ((other, found[mine]), (ours, found[mine]), (ours, found[mine])):
            trial.patiently(partial(_resources(trial).delete_owned_resource, cluster, one))
            if cluster == other:
                left = _listed(trial, ours)
                assert mine in left, f"{mine} was deleted for another cluster, which does not own it"

        def look() -> None:
            left = _listed(trial, ours)
            assert mine not in left, f"list_owned_resources still has {mine} after its deletion"

        trial.eventually(look)
        trial.patiently(partial(_resources(trial).delete_owned_resource, other, _listed(trial, other)[theirs]))

    @scenario("O9", Feature.OWNED_RESOURCES, hooks=("outage",))
    def test_o9_an_outage_is_no_empty_list(self, trial: Trial) -> None:
        """While the cloud cannot answer, `list_owned_resources` raises."""
        with trial.outage():
            unwell("list_owned_resources", partial(_resources(trial).list_owned_resources, trial.cluster_name))
