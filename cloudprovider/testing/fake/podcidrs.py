"""The pod CIDRs that the fake cloud chose for its machines (stage 5). The configuration and the console choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cloudprovider.errors import CloudProviderError
from cloudprovider.podcidrs import PodCIDRs
from cloudprovider.testing.fake.errors import BadRequest
from cloudprovider.testing.fake.machines import Machines, node_key
from cloudprovider.testing.fake.store import View

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

__all__ = ["FakePodCIDRs"]


class FakePodCIDRs(PodCIDRs):
    """Ranges of machines' pods; more nodes than the configured number are refused, as clouds do."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines

    @property
    def max_batch(self) -> int:
        """The largest batch that is not refused."""
        return self._machines.config.max_batch

    def pod_cidrs(self, nodes: Sequence[V1Node]) -> Mapping[str, Sequence[str] | CloudProviderError]:
        def work(view: View) -> dict[str, Sequence[str] | CloudProviderError]:
            if len(nodes) > self.max_batch:
                raise BadRequest(f"{len(nodes)} nodes in a batch, and {self.max_batch} are the most")
            found = self._machines.by_nodes(view, [node_key(node) for node in nodes])
            return {name: one if isinstance(one, CloudProviderError) else one.pod_cidrs for name, one in found.items()}

        return self._machines.ask("pod_cidrs", nodes, work, list(nodes))
