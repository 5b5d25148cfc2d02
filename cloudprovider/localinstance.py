"""LocalInstance: what the machine that the program runs on says of itself, from the cloud's
metadata service there.

Asked by `python -m cloudprovider node-info` as a machine boots, before its kubelet starts; never by
the manager. The answers become the kubelet's flags. What they say is checked again: the node
controller compares what a kubelet wrote with what the cloud says.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloudprovider.instances import InstanceMetadata

__all__ = ["LocalInstance"]


class LocalInstance(ABC):
    """The machine that the program runs on. Optional; ours, without a Go counterpart.

    No cluster, no credentials of the cloud: the methods are called after the factory alone, on a
    provider whose `initialize` was not called, and the accessor returns the object then already.
    They change nothing, may be called again at any time and from many threads, and give their
    requests the time limit of `current_call()`.

    `InstanceNotFound` means that the metadata service answered, and that this machine is no
    instance of the cloud. Any other exception means unknown, and is tried again: a metadata service
    may not answer in the first seconds of a boot.
    """

    @abstractmethod
    def local_metadata(self) -> InstanceMetadata:
        """This machine, as `InstancesV2.instance_metadata` answers for its node: the same provider
        ID, zone, region, type, addresses and labels.

        What the metadata service does not know stays empty, but for `provider_id`. Raises
        `InstanceNotFound`.
        """

    def local_node_name(self, hostname: str) -> str:
        """The name of this machine's node: the one by which the provider finds an instance without
        a provider ID.

        `hostname` is the machine's host name in lower case, without blanks around it, as a kubelet
        reads it. Default: `hostname` itself. Raises `InstanceNotFound`.
        """
        return hostname
