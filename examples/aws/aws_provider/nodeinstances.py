"""Which instances are nodes of the cluster: from the host's cache of nodes, which knows their
provider IDs. It tells their routes from those of strangers where an instance lacks the cluster's
tag.
"""

from __future__ import annotations

from collections.abc import Set

from aws_provider.finder import PROVIDER
from cloudprovider import Listers
from cloudprovider.helpers import provider_id_of


class NodeInstances:
    """IDs of instances. Thread-safe."""

    def __init__(self) -> None:
        self._listers: Listers | None = None

    def use(self, listers: Listers) -> None:
        """Read the nodes here from now on."""
        self._listers = listers

    def instances(self) -> Set[str]:
        """The ID of every node's instance; empty without a filled cache."""
        if self._listers is None or not self._listers.has_synced():
            return frozenset()
        ids = (provider_id_of(node) for node in self._listers.nodes.list())
        return {one.rpartition("/")[2] for one in ids if one.startswith(f"{PROVIDER}://")}
