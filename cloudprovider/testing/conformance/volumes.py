"""Scenarios V and C: labels of volumes, and the clusters of an account."""

from __future__ import annotations

from functools import partial
from typing import Any

from kubernetes.client.models.v1_nfs_volume_source import V1NFSVolumeSource
from kubernetes.client.models.v1_object_meta import V1ObjectMeta
from kubernetes.client.models.v1_persistent_volume import V1PersistentVolume
from kubernetes.client.models.v1_persistent_volume_spec import V1PersistentVolumeSpec

from cloudprovider.checks import answers
from cloudprovider.errors import CloudProviderError, DiskNotFound
from cloudprovider.interface import Clusters
from cloudprovider.internal.readonly import read_only
from cloudprovider.testing.conformance.base import ConformanceBase
from cloudprovider.testing.conformance.calls import attempt, right, unchanged, unwell
from cloudprovider.testing.conformance.features import Feature
from cloudprovider.testing.conformance.registry import scenario
from cloudprovider.testing.conformance.trial import Trial, declared
from cloudprovider.volumes import PVLabeler
from cloudprovider.wellknown import LABEL_TOPOLOGY_ZONE

_LABELER, _CLUSTERS = Feature.PV_LABELER, Feature.CLUSTERS


def _labeler(trial: Trial) -> PVLabeler:
    return declared(trial.provider.pv_labeler(), "pv_labeler")


def _clusters(trial: Trial) -> Clusters:
    return declared(trial.provider.clusters(), "clusters")


class VolumeScenarios(ConformanceBase):
    """`PVLabeler`."""

    @scenario("V1", _LABELER, hooks=("create_volume",))
    def test_v1_a_volume_has_its_zone(self, trial: Trial) -> None:
        """A volume has labels that the API server takes, its zone among them, the same every
        time."""
        labeler, volume = _labeler(trial), trial.volume()

        def look() -> None:
            labels = labeler.get_labels_for_volume(volume)
            right("get_labels_for_volume", answers.labels, labels)
            assert labels.get(LABEL_TOPOLOGY_ZONE), f"get_labels_for_volume answered {labels!r}, without a zone"
            again = labeler.get_labels_for_volume(volume)
            assert again == labels, f"get_labels_for_volume answered {labels!r}, and then {again!r}"

        trial.eventually(look)

    @scenario("V2", _LABELER, hooks=("create_volume",))
    def test_v2_the_volume_is_read_only(self, trial: Trial) -> None:
        """The PersistentVolume that is handed over is not changed."""
        volume = read_only(trial.volume())
        with unchanged("get_labels_for_volume"):
            trial.eventually(partial(_labeler(trial).get_labels_for_volume, volume), retry=DiskNotFound)

    @scenario("V3", _LABELER, hooks=("create_volume", "delete_volume"))
    def test_v3_a_deleted_volume_is_not_found(self, trial: Trial) -> None:
        """For a volume that was deleted, DiskNotFound is raised."""
        # By the lab alone: at the end nothing is left to delete.
        volume = trial.lab.create_volume()
        trial.lab.delete_volume(volume)

        def look() -> None:
            outcome = attempt(partial(_labeler(trial).get_labels_for_volume, volume))
            assert isinstance(outcome.error, DiskNotFound), f"get_labels_for_volume {outcome} for a deleted volume"

        trial.eventually(look)

    @scenario("V4", _LABELER, hooks=("create_volume", "outage"))
    def test_v4_an_outage_is_no_absence(self, trial: Trial) -> None:
        """While the cloud cannot answer, labels are not empty and the volume is not gone: an error
        is raised."""
        volume = trial.volume()
        with trial.outage():
            error = unwell("get_labels_for_volume", partial(_labeler(trial).get_labels_for_volume, volume))
        assert not isinstance(error, DiskNotFound), "get_labels_for_volume raised DiskNotFound in an outage"

    @scenario("V5", _LABELER)
    def test_v5_a_volume_of_another_kind_has_no_labels(self, trial: Trial) -> None:
        """A volume that is no disk of this cloud (NFS, say) has no labels, and is not said to be
        missing."""
        foreign = V1PersistentVolume(
            metadata=V1ObjectMeta(name="conformance-nfs"),
            spec=V1PersistentVolumeSpec(nfs=V1NFSVolumeSource(server="192.0.2.1", path="/exports")),
        )
        outcome = attempt(partial(_labeler(trial).get_labels_for_volume, foreign))
        assert outcome.error is None, f"get_labels_for_volume {outcome} for an NFS volume, which is not this cloud's"
        # A zone would keep pods of all other zones from the volume.
        assert not outcome.value, f"get_labels_for_volume {outcome} for an NFS volume"


class ClusterScenarios(ConformanceBase):
    """`Clusters`."""

    @scenario("C1", _CLUSTERS)
    def test_c1_clusters_have_masters(self, trial: Trial) -> None:
        """`list_clusters` answers names, and `master` a text for each of them: an address, or ""
        while the cloud knows none."""
        clusters = _clusters(trial)
        names: Any = clusters.list_clusters()
        for name in right("list_clusters", answers.texts, names):
            right(f"master({name!r})", answers.revision, clusters.master(name))

    @scenario("C2", _CLUSTERS, hooks=("outage",))
    def test_c2_an_outage_is_no_empty_account(self, trial: Trial) -> None:
        """While the cloud cannot answer, `list_clusters` raises."""
        with trial.outage():
            unwell("list_clusters", _clusters(trial).list_clusters)

    @scenario("C3", _CLUSTERS)
    def test_c3_an_unknown_cluster_is_an_error(self, trial: Trial) -> None:
        """`master` of a cluster that is not there raises a CloudProviderError; it does not make up
        an address."""
        outcome = attempt(partial(_clusters(trial).master, f"{trial.cluster_name}-absent"))
        assert isinstance(outcome.error, CloudProviderError), f"master {outcome} for a cluster that is not there"

    @scenario("C4", _CLUSTERS, hooks=("hang",))
    def test_c4_a_hung_cloud_costs_the_deadline(self, trial: Trial) -> None:
        """While the cloud hangs, `list_clusters` ends soon after its deadline."""
        trial.in_a_hang(_clusters(trial).list_clusters)
