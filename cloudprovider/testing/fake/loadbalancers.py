"""The fake cloud's load balancers (stage 5): keyed by name, with addresses of a range, and backends by provider ID.

Every method is idempotent, and what is in order already is not touched (`LoadBalancerRecord.changes` and the log's
effects tell). The drift that people cause is made at the console.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING

from attrs import evolve
from kubernetes.client.models.v1_load_balancer_ingress import V1LoadBalancerIngress
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus

from cloudprovider.errors import CloudProviderError, RetryError
from cloudprovider.helpers.objects import key_of, ports_of, uid_of
from cloudprovider.loadbalancer import LoadBalancer, OwnedLoadBalancer, OwnedLoadBalancers
from cloudprovider.testing.fake.errors import BadRequest, QuotaExceeded
from cloudprovider.testing.fake.faultbook import Key
from cloudprovider.testing.fake.gate import Gate, Work
from cloudprovider.testing.fake.machines import Machines, node_key
from cloudprovider.testing.fake.records import (
    INGRESS,
    LOAD_BALANCERS,
    Instance,
    LoadBalancerRecord,
    LoadBalancerState,
    Mark,
    Port,
)
from cloudprovider.testing.fake.store import Transaction, View

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node
    from kubernetes.client.models.v1_service import V1Service

__all__ = [
    "FakeLoadBalancers",
    "FakeOwningLoadBalancers",
    "remove_load_balancer",
]


class FakeLoadBalancers(LoadBalancer):
    """Load balancers of one fake cloud. `now` gives Unix seconds."""

    def __init__(self, machines: Machines, gate: Gate, now: Callable[[], float]) -> None:
        self._machines = machines
        self._settings = machines.config.load_balancers
        self._gate = gate
        self._now = now

    def get_load_balancer_name(self, cluster_name: str, service: V1Service) -> str:
        self._gate.count("get_load_balancer_name")
        return self._name(cluster_name, service)

    def load_balancer_revision(self) -> str:
        self._gate.count("load_balancer_revision")
        return self._settings.revision

    def get_load_balancer(self, cluster_name: str, service: V1Service) -> V1LoadBalancerStatus | None:
        name = self._name(cluster_name, service)

        def work(view: View) -> V1LoadBalancerStatus | None:
            record = view.get(LOAD_BALANCERS, name)
            return None if record is None else _status(record)

        return self._gate.read(
            "get_load_balancer", [_key(name, service)], work, cluster=cluster_name, arguments=[service]
        )

    def ensure_load_balancer(
        self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]
    ) -> V1LoadBalancerStatus:
        name = self._name(cluster_name, service)

        def work(tx: Transaction, call: Work) -> V1LoadBalancerStatus:
            present = tx.get(LOAD_BALANCERS, name)
            if call.half_built and present is not None:
                return _status(present)
            wanted = self._base(tx, name, cluster_name, service, present)
            if not call.half_built:
                wanted = self._complete(tx, wanted, service, nodes)
            if wanted == present:
                call.effect = "unchanged"
            else:
                call.effect = "created" if present is None else "updated"
                tx.put(LOAD_BALANCERS, name, evolve(wanted, changes=0 if present is None else present.changes + 1))
            if wanted.state is LoadBalancerState.PROVISIONING:
                left = wanted.created + self._settings.provisioning - self._now()
                call.error = RetryError(f"the load balancer {name} is being provisioned", max(left, 0.0))
            return _status(wanted)

        arguments = [service, list(nodes)]
        key = _key(name, service)
        return self._gate.write("ensure_load_balancer", [key], work, cluster=cluster_name, arguments=arguments)

    def update_load_balancer(self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]) -> None:
        name = self._name(cluster_name, service)

        def work(tx: Transaction, call: Work) -> None:
            present = tx.get(LOAD_BALANCERS, name)
            if present is None:
                raise BadRequest(f"there is no load balancer {name} to update")
            backends = self._backends(tx, nodes)
            call.effect = "unchanged" if backends == present.backends else "updated"
            if backends != present.backends:
                tx.put(LOAD_BALANCERS, name, evolve(present, backends=backends, changes=present.changes + 1))

        arguments = [service, list(nodes)]
        self._gate.write("update_load_balancer", [_key(name, service)], work, cluster=cluster_name, arguments=arguments)

    def ensure_load_balancer_deleted(self, cluster_name: str, service: V1Service) -> None:
        name = self._name(cluster_name, service)

        def work(tx: Transaction, call: Work) -> None:
            call.effect = "deleted" if remove_load_balancer(tx, name) else "absent"

        key = _key(name, service)
        self._gate.write("ensure_load_balancer_deleted", [key], work, cluster=cluster_name, arguments=[service])

    def _name(self, cluster_name: str, service: V1Service) -> str:
        if self._settings.names == "uid":
            return super().get_load_balancer_name(cluster_name, service)
        return f"{cluster_name}-{key_of(service).replace('/', '-')}"[:63]

    def _base(
        self, tx: Transaction, name: str, cluster_name: str, service: V1Service, present: LoadBalancerRecord | None
    ) -> LoadBalancerRecord:
        """The load balancer before anything is attached to it."""
        uid = uid_of(service)
        if present is not None:
            return evolve(present, cluster=cluster_name, service=key_of(service), service_uid=uid)
        quota = self._settings.quota
        if quota is not None and len(tx.scan(LOAD_BALANCERS)) >= quota:
            raise QuotaExceeded(f"the quota of {quota} load balancers is used up")
        return LoadBalancerRecord(
            name=name,
            cluster=cluster_name,
            service=key_of(service),
            service_uid=uid,
            state=LoadBalancerState.HALF_BUILT,
            created=self._now(),
        )

    def _complete(
        self, tx: Transaction, base: LoadBalancerRecord, service: V1Service, nodes: Sequence[V1Node]
    ) -> LoadBalancerRecord:
        spec = service.spec
        ports = [
            Port(port=port.port, node_port=port.node_port, protocol=port.protocol, name=port.name)
            for port in ports_of(service)
        ]
        building = self._now() < base.created + self._settings.provisioning
        return evolve(
            base,
            state=LoadBalancerState.PROVISIONING if building else LoadBalancerState.ACTIVE,
            ingress=() if self._settings.hostname else self._addresses(tx, base, service),
            hostname=self._settings.hostname.format(name=base.name),
            ports=ports,
            backends=self._backends(tx, nodes),
            source_ranges=(spec.load_balancer_source_ranges if spec is not None else None) or (),
        )

    def _addresses(self, tx: Transaction, base: LoadBalancerRecord, service: V1Service) -> list[str]:
        """One address for each family of the Service: those that it has already, and new ones for the rest."""
        families = (service.spec.ip_families if service.spec is not None else None) or ["IPv4"]
        asked = (service.spec.load_balancer_ip if service.spec is not None else None) or ""
        ranges = {"IPv4": self._settings.ipv4, "IPv6": self._settings.ipv6}
        held = {_family(address): address for address in base.ingress}
        addresses: list[str] = []
        for family in families:
            if asked and _family(asked) == family:
                address = _take(tx, base.name, asked, ranges[family])
            else:
                seed = f"{base.cluster}/{base.service}"
                address = held.get(family) or _allocate(tx, base.name, ranges[family], seed)
            addresses.append(address)
        for address in base.ingress:
            if address not in addresses:
                tx.delete(INGRESS, address)
        return addresses

    def _backends(self, view: View, nodes: Sequence[V1Node]) -> tuple[str, ...]:
        keys = [node_key(node) for node in nodes]
        backends: set[str] = set()
        for (name, provider_id), found in zip(keys, self._found(view, keys), strict=True):
            if isinstance(found, Instance):
                backends.add(self._machines.provider_id(found) or name)
            elif self._settings.strict_backends:
                raise found
            else:
                backends.add(provider_id or name)
        return tuple(sorted(backends))

    def _found(self, view: View, keys: Sequence[Key]) -> list[Instance | CloudProviderError]:
        found = self._machines.by_nodes(view, keys)
        return [found[key[0]] for key in keys]


class FakeOwningLoadBalancers(FakeLoadBalancers, OwnedLoadBalancers):
    """The same in a cloud that can list what it made."""

    def owned_load_balancers(self, cluster_name: str) -> Sequence[OwnedLoadBalancer]:
        def work(view: View) -> tuple[OwnedLoadBalancer, ...]:
            return tuple(
                OwnedLoadBalancer(record.name, record.service, record.service_uid)
                for record in view.scan(LOAD_BALANCERS)
                if record.cluster == cluster_name
            )

        return self._gate.read("owned_load_balancers", [(cluster_name,)], work, cluster=cluster_name)


def remove_load_balancer(tx: Transaction, name: str) -> bool:
    """Delete a load balancer and let go of its addresses; whether there was one."""
    record = tx.get(LOAD_BALANCERS, name)
    if record is None:
        return False
    for address in record.ingress:
        tx.delete(INGRESS, address)
    return tx.delete(LOAD_BALANCERS, name)


def _key(name: str, service: V1Service) -> Key:
    return name, key_of(service)


def _family(address: str) -> str:
    return "IPv6" if ":" in address else "IPv4"


def _take(tx: Transaction, name: str, address: str, network: str) -> str:
    """The address that the Service asks for. Raises `BadRequest`."""
    try:
        inside = ip_address(address) in ip_network(network)
    except ValueError:
        inside = False
    holder = tx.get(INGRESS, address)
    if not inside or (holder is not None and holder.value != name):
        why = "is not of the range" if not inside else "is taken"
        raise BadRequest(f"the address {address} that the Service asks for {why}")
    tx.put(INGRESS, address, Mark(name))
    return address


def _allocate(tx: Transaction, name: str, network: str, seed: str) -> str:
    """A free address, always the same for the same Service in an empty range. Raises `QuotaExceeded`."""
    hosts = ip_network(network)
    size = max(1, hosts.num_addresses - 2)
    first = int.from_bytes(hashlib.sha256(f"{network} {seed}".encode()).digest()[:8], "big") % size
    offset = 1 if hosts.num_addresses > 2 else 0
    for step in range(size):
        address = str(hosts[offset + (first + step) % size])
        if tx.get(INGRESS, address) is None:
            tx.put(INGRESS, address, Mark(name))
            return address
    raise QuotaExceeded(f"every ingress address of {network} is taken")


def _status(record: LoadBalancerRecord) -> V1LoadBalancerStatus:
    if record.state is not LoadBalancerState.ACTIVE:
        return V1LoadBalancerStatus(ingress=[])
    if record.hostname:
        return V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress(hostname=record.hostname)])
    return V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress(ip=address) for address in record.ingress])
