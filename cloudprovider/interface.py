"""Interface: the one class that every provider subclasses, and Clusters.

The registry's factory returns an Interface; the host calls `initialize` once, and then asks it for
capabilities. See the module of each capability for the contract of its methods.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cloudprovider.helpers.providerid import same_provider_id

if TYPE_CHECKING:
    from cloudprovider.host import ClientBuilder, StopSignal
    from cloudprovider.instances import Instances, InstancesBatch, InstancesV2
    from cloudprovider.loadbalancer import LoadBalancer
    from cloudprovider.localinstance import LocalInstance
    from cloudprovider.ownedresources import OwnedResources
    from cloudprovider.podcidrs import PodCIDRs
    from cloudprovider.routes import Routes
    from cloudprovider.volumes import PVLabeler
    from cloudprovider.zones import Zones

__all__ = ["Clusters", "Interface"]


class Interface(ABC):
    """A cloud, as Kubernetes needs to see it.

    Only `provider_name` must be written. Each accessor returns the capability, or None (the
    default) when the cloud has none; one class may implement several capabilities and return
    itself. Accessors are called often and from many threads: they return the same object every time
    and do no work.

    A provider that wants to read the cluster's objects from the host's caches also defines
    `set_informers` (see `cloudprovider.InformerUser`).

    Follows: Interface in k8s.io/cloud-provider cloud.go.
    """

    @abstractmethod
    def provider_name(self) -> str:
        """The provider's name, as in --cloud-provider and before "://" in provider IDs. Never
        changes."""

    def initialize(self, client_builder: ClientBuilder, stop: StopSignal) -> None:
        """Called once, before any capability is used. May open sessions and start threads of its
        own.

        Those threads must be daemons or end when `stop` is set. Raising keeps the manager from
        starting, so check the credentials here. Change nothing in the cloud: with `--webhooks`
        every replica calls it, also one that does not lead. Default: nothing.
        """
        return

    def load_balancer(self) -> LoadBalancer | None:
        """Load balancers for Services; None turns the service controller off."""
        return None

    def instances(self) -> Instances | None:
        """The older form of instances, used only where `instances_v2` and `instances_batch` are
        None."""
        return None

    def instances_v2(self) -> InstancesV2 | None:
        """Instances, one node a call."""
        return None

    def instances_batch(self) -> InstancesBatch | None:
        """Instances, many nodes a call; preferred over the others when present."""
        return None

    def zones(self) -> Zones | None:
        """Zones, asked only together with the older `instances`."""
        return None

    def clusters(self) -> Clusters | None:
        """The clusters in this cloud account."""
        return None

    def routes(self) -> Routes | None:
        """Routes between the nodes' pod networks; None turns the route controller off."""
        return None

    def pod_cidrs(self) -> PodCIDRs | None:
        """The nodes' pod CIDRs, where the cloud chooses them; asked only with
        --cidr-allocator-type=CloudAllocator."""
        return None

    def pv_labeler(self) -> PVLabeler | None:
        """Zones and regions of volumes without a CSI driver, asked by the controller and the
        webhook for them."""
        return None

    def owned_resources(self) -> OwnedResources | None:
        """What else a cluster leaves in the cloud, asked by `teardown` alone."""
        return None

    def local_instance(self) -> LocalInstance | None:
        """The machine that the program runs on. Asked before `initialize`, for `node-info`."""
        return None

    def has_cluster_id(self) -> bool:
        """Whether the cluster ID that the cloud needs is set. False keeps the manager from starting
        unless a flag allows untagged clouds. Default: True, for clouds that need none."""
        return True

    def provider_id_prefixes(self) -> Sequence[str]:
        """How the provider IDs of this cloud's nodes begin. Default: the name and "://".

        A node whose provider ID begins otherwise belongs to someone else and is left alone. Return
        an empty sequence when the cloud has no provider IDs: an answer with one is refused then.
        """
        return (f"{self.provider_name()}://",)

    def same_provider_id(self, one: str, other: str) -> bool:
        """Whether two different provider IDs name the same instance: another spelling of one.

        `one` stands on a Node, where it can never change, `other` is what you answered for that
        node. When they are not the same, the node is refused: another instance has its name. Pure:
        asked inside a call's deadline, from many threads; must not call the cloud. Default: the
        same but for letter case and an empty authority (`cloudprovider.helpers.same_provider_id`).
        Override it where your cloud's IDs differ by letter case alone, or where an older version of
        your provider spelled them in another way.
        """
        return same_provider_id(one, other)

    def scrub_dns(self, nameservers: Sequence[str], searches: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
        """Adapt the DNS settings that containers get. Asked by `node-info --resolv-conf`, without
        `initialize`; default: unchanged.

        `nameservers` and `searches` are those of the machine's resolver file, in its order. Pure,
        or bounded by `current_call()`.

        Follows: ScrubDNS in cloud.go of releases before 1.10.
        """
        return nameservers, searches


class Clusters(ABC):
    """The clusters in this cloud account. Asked by `python -m cloudprovider clusters`, never by the
    manager.

    Read-only, repeatable, from many threads at once. An exception means unknown: an account without
    clusters is an empty sequence.

    Follows: Clusters in k8s.io/cloud-provider cloud.go.
    """

    @abstractmethod
    def list_clusters(self) -> Sequence[str]:
        """The names of the clusters, in any order."""

    @abstractmethod
    def master(self, cluster_name: str) -> str:
        """The address of a cluster's control plane, a DNS name or an IP address; "" while the cloud
        knows none.

        Raises `CloudProviderError` for a cluster that is not there.
        """
