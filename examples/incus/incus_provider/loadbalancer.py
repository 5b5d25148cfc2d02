"""LoadBalancer: a network forward for each Service, with an address of the configured ranges.

What a forward was made for stands in its configuration, so everything is found again, and forwards
of others are never touched.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kubernetes.client.models.v1_load_balancer_ingress import V1LoadBalancerIngress
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_service import V1Service
from typing_extensions import override

from cloudprovider import CloudProviderError, LoadBalancer, OwnedLoadBalancer, OwnedLoadBalancers, RetryError
from cloudprovider.helpers import provider_id_of, uid_of
from incus_provider.client import Client, Conflict, NotFound, path_of
from incus_provider.config import Config
from incus_provider.forwards import (
    CLUSTER,
    NAME,
    SERVICE,
    TARGET,
    UID,
    chosen,
    document,
    free_addresses,
    is_of,
    marks,
    same,
    with_target,
)
from incus_provider.instances import listed
from incus_provider.machine import provider_id, target_address, uuid_of
from incus_provider.resources import Forward

TARGET_SECONDS = 10.0
"""How long until a machine that could not be a target is looked at again."""
_CALLS = 3
"""How many requests one call makes: forwards, instances, the change."""


class IncusLoadBalancers(LoadBalancer, OwnedLoadBalancers):
    """Load balancers named as `get_load_balancer_name` does by default; the name is a mark."""

    def __init__(self, client: Client, config: Config) -> None:
        self._client = client
        self._network = config.network
        self._ranges = config.load_balancer_addresses

    @override
    def get_load_balancer(self, cluster_name: str, service: V1Service) -> V1LoadBalancerStatus | None:
        found = self._of(cluster_name, service, self._forwards())
        return _status(found[0]) if found else None

    @override
    def check_service(self, service: V1Service) -> None:
        marks("", "", service)
        if asked := _asked_address(service):
            free_addresses(self._ranges, (), asked)

    @override
    def ensure_load_balancer(
        self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]
    ) -> V1LoadBalancerStatus:
        wanted = marks(cluster_name, self.get_load_balancer_name(cluster_name, service), service)
        asked = _asked_address(service)
        forwards = self._forwards(calls=_CALLS)
        mine = self._of(cluster_name, service, forwards)
        keep = next((one for one in mine if asked in ("", one.listen_address)), None)
        made = Forward(listen_address=keep.listen_address if keep else "", description=wanted[SERVICE], config=wanted)
        made, left = self._aimed(made, service, nodes, keep)
        if keep is None:
            taken = {one.listen_address for one in forwards}
            keep = made = self._created(made, free_addresses(self._ranges, taken, asked))
        if not same(keep, made):
            self._client.change("PUT", self._path(keep), document(made))
        for other in mine:  # with the address that the Service had before
            if other.listen_address != keep.listen_address:
                self._delete(other)
        if service.status and service.status.load_balancer and service.status.load_balancer.ingress:
            _wait_for(left)  # else better an address without a target than none
        return _status(made)

    @override
    def update_load_balancer(self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]) -> None:
        mine = self._of(cluster_name, service, self._forwards(calls=_CALLS))
        if not mine:
            raise CloudProviderError("the load balancer does not exist")  # the host ensures it at once
        made, left = self._aimed(mine[0], service, nodes, mine[0])
        if not same(mine[0], made):
            self._client.change("PUT", self._path(made), document(made))
        _wait_for(left)

    @override
    def ensure_load_balancer_deleted(self, cluster_name: str, service: V1Service) -> None:
        for one in self._of(cluster_name, service, self._forwards(calls=_CALLS)):
            self._delete(one)

    @override
    def owned_load_balancers(self, cluster_name: str) -> Sequence[OwnedLoadBalancer]:
        return [
            OwnedLoadBalancer(one.config.get(NAME, ""), one.config.get(SERVICE, ""), one.config[UID])
            for one in self._forwards()
            if one.config.get(CLUSTER) == cluster_name and UID in one.config
        ]

    def _forwards(self, *, calls: int = 1) -> tuple[Forward, ...]:
        path = path_of("networks", self._network, "forwards")
        return self._client.get(tuple[Forward, ...], path, calls=calls, recursion="1")

    def _of(self, cluster: str, service: V1Service, forwards: Sequence[Forward]) -> list[Forward]:
        """The Service's forwards: one, or two while its address is changed."""
        mine = [one for one in forwards if is_of(one, cluster, service)]
        return sorted(mine, key=lambda one: one.listen_address)

    def _aimed(
        self, forward: Forward, service: V1Service, nodes: Sequence[V1Node], present: Forward | None
    ) -> tuple[Forward, int]:
        """The forward with one of the nodes as its target: one that runs and has an address; and,
        where none does, how many could not be it. Then it stays the node that it is."""
        asked = self._asked(nodes)
        addresses = self._targets(asked)
        target = chosen(uid_of(service), addresses)
        address = addresses.get(target, "")
        former = present.config.get(TARGET, "") if present is not None else ""
        if present is not None and present.ports and not target and former in asked.values():
            target, address = former, present.ports[0].target_address
        return with_target(forward, target, address), 0 if addresses else len(asked)

    def _asked(self, nodes: Sequence[V1Node]) -> Mapping[str, str]:
        """Provider IDs of the nodes that may be ours, by UUID."""
        asked = {}
        for node in nodes:
            try:
                asked[uuid_of(provider_id_of(node), self._client.project)] = provider_id_of(node)
            except CloudProviderError:  # a foreign node spoils nothing
                continue
        return asked

    def _targets(self, asked: Collection[str]) -> Mapping[str, str]:
        """Addresses by provider ID."""
        if not asked:
            return {}
        return {
            provider_id(self._client.project, one): address
            for one in listed(self._client, with_state=True, calls=_CALLS - 1)
            if one.uuid in asked and one.status == "Running" and (address := target_address(one, self._network))
        }

    def _created(self, forward: Forward, addresses: Sequence[str]) -> Forward:
        for address in addresses:
            made = forward.model_copy(update={"listen_address": address})
            try:
                self._client.change("POST", path_of("networks", self._network, "forwards"), document(made))
            except Conflict:  # taken since the listing, by a Service that is built at the same time
                continue
            return made
        raise CloudProviderError(
            "every address that the load balancer could have is taken: give more load_balancer_addresses in the "
            "cloud config, or delete load balancers"
        )

    def _delete(self, forward: Forward) -> None:
        try:
            self._client.change("DELETE", self._path(forward))
        except NotFound:
            return

    def _path(self, forward: Forward) -> str:
        return path_of("networks", self._network, "forwards", forward.listen_address)


def _wait_for(left: int) -> None:
    if left:
        raise RetryError(f"none of {left} nodes runs and has an address in the network yet", TARGET_SECONDS)


def _asked_address(service: V1Service) -> str:
    return (service.spec.load_balancer_ip if service.spec is not None else None) or ""


def _status(forward: Forward) -> V1LoadBalancerStatus:
    return V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress(ip=forward.listen_address, ip_mode="VIP")])
