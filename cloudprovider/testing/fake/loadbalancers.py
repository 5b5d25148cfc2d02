"""Load balancers of the fake cloud (stage 5): named, with ingress addresses of a range, and backends by provider ID."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from attrs import evolve
from kubernetes.client.models.v1_load_balancer_ingress import V1LoadBalancerIngress
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus

from cloudprovider.loadbalancer import LoadBalancer
from cloudprovider.testing.fake.config import FakeConfig
from cloudprovider.testing.fake.errors import BadRequest, QuotaExceeded
from cloudprovider.testing.fake.gate import Gate
from cloudprovider.testing.fake.records import (
    INGRESS,
    LOAD_BALANCERS,
    LoadBalancerRecord,
    LoadBalancerState,
    Mark,
    Port,
)
from cloudprovider.testing.fake.store import Store, Transaction

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node
    from kubernetes.client.models.v1_service import V1Service

__all__ = ["FakeLoadBalancers"]


class FakeLoadBalancers(LoadBalancer):
    """LoadBalancer of one fake cloud. Ensure and delete are idempotent; an ensure that finds all in order writes
    nothing."""

    def __init__(self, config: FakeConfig, gate: Gate, store: Store, now: Callable[[], float]) -> None:
        self._config = config
        self._gate = gate
        self._store = store
        self._now = now

    def get_load_balancer(self, cluster_name: str, service: V1Service) -> V1LoadBalancerStatus | None:
        name = self.get_load_balancer_name(cluster_name, service)

        def work(as_of: float | None) -> V1LoadBalancerStatus | None:
            with self._store.read(as_of) as view:
                record = view.get(LOAD_BALANCERS, name)
            return None if record is None else _status(record)

        return self._gate.call("get_load_balancer", [_keys(name, service)], work, arguments=[service])

    def ensure_load_balancer(
        self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]
    ) -> V1LoadBalancerStatus:
        name = self.get_load_balancer_name(cluster_name, service)

        def work(_: float | None) -> V1LoadBalancerStatus:
            with self._store.write() as change:
                present = change.get(LOAD_BALANCERS, name) or self._created(change, name, cluster_name, service)
                wanted = evolve(
                    present,
                    state=LoadBalancerState.ACTIVE,
                    ingress=present.ingress or self._addresses(change, name, service),
                    ports=_ports(service),
                    backends=_backends(nodes),
                    source_ranges=tuple((service.spec.load_balancer_source_ranges if service.spec else None) or ()),
                )
                if wanted != present:
                    change.put(LOAD_BALANCERS, name, evolve(wanted, changes=present.changes + 1))
                return _status(wanted)

        def half_built() -> None:
            with self._store.write() as change:
                if change.get(LOAD_BALANCERS, name) is None:
                    half = self._created(change, name, cluster_name, service)
                    change.put(LOAD_BALANCERS, name, evolve(half, state=LoadBalancerState.HALF_BUILT))

        return self._gate.call(
            "ensure_load_balancer",
            [_keys(name, service)],
            work,
            arguments=[service, nodes],
            cluster=cluster_name,
            half_built=half_built,
        )

    def update_load_balancer(self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]) -> None:
        name = self.get_load_balancer_name(cluster_name, service)

        def work(_: float | None) -> None:
            with self._store.write() as change:
                present = change.get(LOAD_BALANCERS, name)
                if present is None:
                    raise BadRequest(f"there is no load balancer {name}")
                wanted = evolve(present, backends=_backends(nodes))
                if wanted != present:
                    change.put(LOAD_BALANCERS, name, evolve(wanted, changes=present.changes + 1))

        keys = [_keys(name, service)]
        self._gate.call("update_load_balancer", keys, work, arguments=[service, nodes], cluster=cluster_name)

    def ensure_load_balancer_deleted(self, cluster_name: str, service: V1Service) -> None:
        name = self.get_load_balancer_name(cluster_name, service)

        def work(_: float | None) -> None:
            with self._store.write() as change:
                delete_load_balancer(change, name)

        keys = [_keys(name, service)]
        self._gate.call("ensure_load_balancer_deleted", keys, work, arguments=[service], cluster=cluster_name)

    def owned_load_balancers(self, cluster_name: str) -> Sequence[str]:
        """The names of the load balancers that this cluster's Services were given."""

        def work(as_of: float | None) -> tuple[str, ...]:
            with self._store.read(as_of) as view:
                return tuple(one.name for one in view.scan(LOAD_BALANCERS) if one.cluster == cluster_name)

        return self._gate.call("owned_load_balancers", [(cluster_name,)], work)

    def _created(self, change: Transaction, name: str, cluster_name: str, service: V1Service) -> LoadBalancerRecord:
        quota = self._config.load_balancers.quota
        if quota is not None and len(change.scan(LOAD_BALANCERS)) >= quota:
            raise QuotaExceeded(f"the quota of {quota} load balancers is used up")
        meta = service.metadata
        assert meta is not None
        record = LoadBalancerRecord(
            name=name,
            cluster=cluster_name,
            service=f"{meta.namespace}/{meta.name}",
            service_uid=meta.uid or "",
            state=LoadBalancerState.HALF_BUILT,
            created=self._now(),
        )
        change.put(LOAD_BALANCERS, name, record)
        return record

    def _addresses(self, change: Transaction, name: str, service: V1Service) -> tuple[str, ...]:
        families = (service.spec.ip_families if service.spec is not None else None) or ["IPv4"]
        settings = self._config.load_balancers
        return tuple(
            _allocate(change, settings.ipv6 if family == "IPv6" else settings.ipv4, name) for family in families
        )


def delete_load_balancer(change: Transaction, name: str) -> bool:
    """Delete a load balancer and free its addresses; whether there was one."""
    record = change.get(LOAD_BALANCERS, name)
    if record is None:
        return False
    for address in record.ingress:
        change.delete(INGRESS, address)
    return change.delete(LOAD_BALANCERS, name)


def _allocate(change: Transaction, network: str, name: str) -> str:
    parsed = ipaddress.ip_network(network)
    usable = parsed.num_addresses - 2
    start = change.counter(f"ingress/{network}")
    for step in range(usable):
        address = str(parsed[1 + (start + step) % usable])
        if change.get(INGRESS, address) is None:
            change.put(INGRESS, address, Mark(name))
            change.add(f"ingress/{network}", step + 1)
            return address
    raise QuotaExceeded(f"every ingress address of {network} is taken")


def _keys(name: str, service: V1Service) -> tuple[str, ...]:
    meta = service.metadata
    assert meta is not None
    return name, f"{meta.namespace}/{meta.name}"


def _ports(service: V1Service) -> tuple[Port, ...]:
    ports = (service.spec.ports if service.spec is not None else None) or ()
    return tuple(Port(one.port, one.node_port or 0, one.protocol or "TCP", one.name or "") for one in ports)


def _backends(nodes: Sequence[V1Node]) -> tuple[str, ...]:
    named = (
        (node.spec.provider_id if node.spec else None) or (node.metadata.name if node.metadata else "")
        for node in nodes
    )
    return tuple(sorted(name for name in named if name))


def _status(record: LoadBalancerRecord) -> V1LoadBalancerStatus:
    if record.hostname:
        return V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress(hostname=record.hostname)])
    return V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress(ip=address) for address in record.ingress])
