"""The clusters in the fake cloud's account (stage 5)."""

from __future__ import annotations

from collections.abc import Sequence

from cloudprovider.interface import Clusters
from cloudprovider.testing.fake.errors import BadRequest
from cloudprovider.testing.fake.gate import Gate
from cloudprovider.testing.fake.records import CLUSTERS
from cloudprovider.testing.fake.store import View

__all__ = ["FakeClusters"]


class FakeClusters(Clusters):
    """What the configuration and the console say there is."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def list_clusters(self) -> Sequence[str]:
        return self._gate.read("list_clusters", [], lambda view: tuple(cluster.name for cluster in view.scan(CLUSTERS)))

    def master(self, cluster_name: str) -> str:
        def work(view: View) -> str:
            cluster = view.get(CLUSTERS, cluster_name)
            if cluster is None:
                raise BadRequest(f"there is no cluster {cluster_name}")
            return cluster.master

        return self._gate.read("master", [(cluster_name,)], work)
