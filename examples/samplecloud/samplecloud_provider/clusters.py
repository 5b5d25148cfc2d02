"""Clusters: those of the account, and where their control planes are reached."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from cloudprovider import Clusters
from samplecloud_provider.cloud import Cloud
from samplecloud_provider.instances import answered


class SampleClusters(Clusters):
    """The clusters in the cloud's document."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    @override
    def list_clusters(self) -> Sequence[str]:
        with answered(), self._cloud.document() as document:
            return sorted(document.clusters)

    @override
    def master(self, cluster_name: str) -> str:
        with answered():
            return self._cloud.control_plane(cluster_name)
