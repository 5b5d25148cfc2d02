"""Scenarios O8 and O9: what else a cluster leaves in the cloud."""

from __future__ import annotations

from functools import partial
from typing import Any

from cloudprovider.checks import answers
from cloudprovider.ownedresources import OwnedResource, OwnedResources
from cloudprovider.testing.conformance.base import ConformanceBase
from cloudprovider.testing.conformance.calls import right, unwell
from cloudprovider.testing.conformance.features import Feature
from cloudprovider.testing.conformance.registry import scenario
from cloudprovider.testing.conformance.trial import Trial, declared


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
