"""The fake cloud's load balancers: keyed by name, with addresses of a range, and backends by
provider ID. What is in order already is not touched (`LoadBalancerRecord.changes` and the log's
effects tell)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any, Final

from attrs import evolve
from kubernetes.client.models.v1_load_balancer_ingress import V1LoadBalancerIngress
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from typing_extensions import override

from cloudprovider.errors import InvalidService, LoadBalancerKept, QuotaExceeded
from cloudprovider.helpers.objects import annotations_of, key_of, ports_of, uid_of
from cloudprovider.helpers.service import health_check_path_port
from cloudprovider.loadbalancer import LoadBalancer, OwnedLoadBalancer, OwnedLoadBalancers
from cloudprovider.testing.fake.faults import Key
from cloudprovider.testing.fake.gate import Part, carried
from cloudprovider.testing.fake.machines import BadRequest, node_key
from cloudprovider.testing.fake.records import Instance, LoadBalancerRecord, LoadBalancerState, Port

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node
    from kubernetes.client.models.v1_service import V1Service


KEEP: Final = "fake.cloud/keep-load-balancer"
"""Annotation of Services: with "true", the load balancer stays when its Service is deleted; with
"address" its address alone does, without ports and backends."""
ADOPT: Final = "fake.cloud/adopt-load-balancer"
"""Annotation of Services: the name of the load balancer that was kept, which the Service takes
over."""


def _balancer(self: FakeLoadBalancers, cluster_name: str, service: V1Service, *_: Any) -> list[Key]:
    return [(self._name(cluster_name, service), key_of(service))]


class FakeLoadBalancers(Part, LoadBalancer):
    """Load balancers of one fake cloud."""

    @override
    def get_load_balancer_name(self, cluster_name: str, service: V1Service) -> str:
        # Counted by hand: a fault on it would be one that no provider can have.
        self._gate.calls.count_call("get_load_balancer_name")  # no question to the cloud
        return self._name(cluster_name, service)

    @override
    def load_balancer_revision(self) -> str:
        self._gate.calls.count_call("load_balancer_revision")
        return ""

    @override
    @carried(_balancer)
    def get_load_balancer(self, cluster_name: str, service: V1Service) -> V1LoadBalancerStatus | None:
        record = self._found(cluster_name, service)
        return None if record is None else _status(record)

    @override
    @carried(_balancer, changes=True)
    def ensure_load_balancer(
        self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]
    ) -> V1LoadBalancerStatus:
        name = self._name(cluster_name, service)
        self._check_adoption(name, cluster_name, service)
        present = self._world.load_balancers.get(name)
        wanted = self._complete(self._base(name, cluster_name, service, present), service, nodes)
        self._put(present, wanted)
        return _status(wanted)

    @override
    @carried(_balancer, changes=True)
    def update_load_balancer(self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]) -> None:
        present = self._found(cluster_name, service)
        if present is None:
            raise BadRequest(f"there is no load balancer {self._name(cluster_name, service)} to update")
        self._put(present, evolve(present, backends=self._backends(nodes)))

    @override
    @carried(_balancer, changes=True)
    def ensure_load_balancer_deleted(self, cluster_name: str, service: V1Service) -> None:
        name = self._name(cluster_name, service)
        present = self._found(cluster_name, service)
        keep = annotations_of(service).get(KEEP)
        if present is not None and keep in ("true", "address"):
            parts: dict[str, Any] = {"ports": (), "backends": ()} if keep == "address" else {}
            self._world.load_balancers[name] = evolve(present, kept=True, **parts)
            self._gate.calls.effect("kept")
            raise LoadBalancerKept(
                f"{name} is kept, as the annotation {KEEP} asks; a Service with the annotation {ADOPT}: {name} "
                "takes it over"
            )
        if present is not None:
            del self._world.load_balancers[name]
        self._gate.calls.effect("absent" if present is None else "deleted")

    def _found(self, cluster_name: str, service: V1Service) -> LoadBalancerRecord | None:
        """The Service's load balancer. One that it names is its own only once it has adopted it,
        and one that was kept is not its own any more when another Service has adopted that."""
        record = self._world.load_balancers.get(self._name(cluster_name, service))
        if record is None or _owned(record).is_of(service):
            # Its default name follows from its UID; a name that it gives may be another cluster's.
            return None if record is not None and _named(service) and record.cluster != cluster_name else record
        return None if record.service_uid or _named(service) else record

    def _check_adoption(self, name: str, cluster_name: str, service: V1Service) -> None:
        record = self._world.load_balancers.get(name)
        if _named(service) and (record is None or record.cluster != cluster_name):
            raise InvalidService(f"the annotation {ADOPT} names {name}, and this cluster has no load balancer of it")
        # Kept ones have an owner: only a Service of its namespace may take them over.
        if record is not None and record.service_uid:
            _owned(record).check_adoptable(service)

    def _put(self, present: LoadBalancerRecord | None, wanted: LoadBalancerRecord) -> None:
        # What is in order is not written: so a test can tell repairs from repetitions.
        if wanted == present:
            self._gate.calls.effect("unchanged")
            return
        self._gate.calls.effect("created" if present is None else "updated")
        changes = 0 if present is None else present.changes + 1
        self._world.load_balancers[wanted.name] = evolve(wanted, changes=changes)

    def _name(self, cluster_name: str, service: V1Service) -> str:
        return _named(service) or super().get_load_balancer_name(cluster_name, service)

    def _base(
        self, name: str, cluster_name: str, service: V1Service, present: LoadBalancerRecord | None
    ) -> LoadBalancerRecord:
        """The load balancer before anything is attached to it."""
        uid = uid_of(service)
        if present is not None:
            return evolve(present, cluster=cluster_name, service=key_of(service), service_uid=uid, kept=False)
        return LoadBalancerRecord(
            name=name,
            cluster=cluster_name,
            service=key_of(service),
            service_uid=uid,
            state=LoadBalancerState.HALF_BUILT,
        )

    def _complete(self, base: LoadBalancerRecord, service: V1Service, nodes: Sequence[V1Node]) -> LoadBalancerRecord:
        spec = service.spec
        ports = [
            Port(port=port.port, node_port=port.node_port, protocol=port.protocol, name=port.name)
            for port in ports_of(service)
        ]
        return evolve(
            base,
            state=LoadBalancerState.ACTIVE,
            ingress=self._addresses(base, service),
            ports=ports,
            backends=self._backends(nodes),
            health_check=health_check_path_port(service),
            source_ranges=(spec.load_balancer_source_ranges if spec is not None else None) or (),
        )

    def _addresses(self, base: LoadBalancerRecord, service: V1Service) -> list[str]:
        """One address for each family of the Service: those that it has already, and new ones for
        the rest."""
        families = (service.spec.ip_families if service.spec is not None else None) or ["IPv4"]
        asked = (service.spec.load_balancer_ip if service.spec is not None else None) or ""
        ranges = {"IPv4": self._config.load_balancers.ipv4, "IPv6": self._config.load_balancers.ipv6}
        held = {_family(address): address for address in base.ingress}
        others = self._world.load_balancers.values()
        taken = {address for one in others if one.name != base.name for address in one.ingress}
        addresses: list[str] = []
        for family in families:
            if asked and _family(asked) == family:
                addresses.append(_take(asked, ranges[family], taken))
            else:
                seed = f"{base.cluster}/{base.service}"
                addresses.append(held.get(family) or _allocate(ranges[family], taken, seed))
        return addresses

    def _backends(self, nodes: Sequence[V1Node]) -> tuple[str, ...]:
        found = [(*node_key(node), self._machines.by_key(*node_key(node))) for node in nodes]
        backends = {
            (self._machines.provider_id(one) or name) if isinstance(one, Instance) else (provider_id or name)
            for name, provider_id, one in found
        }
        return tuple(sorted(backends))


class FakeOwningLoadBalancers(FakeLoadBalancers, OwnedLoadBalancers):
    """The same in a cloud that can list what it made."""

    @override
    @carried()
    def owned_load_balancers(self, cluster_name: str) -> Sequence[OwnedLoadBalancer]:
        return tuple(
            _owned(record) for _, record in sorted(self._world.load_balancers.items()) if record.cluster == cluster_name
        )

    @override
    def delete_owned_load_balancer(self, cluster_name: str, owned: OwnedLoadBalancer) -> None:
        """By its name, which may be an adopted one."""
        service = owned.placeholder()
        if service.metadata is not None and self._name(cluster_name, service) != owned.name:
            service.metadata.annotations = {ADOPT: owned.name}
        self.ensure_load_balancer_deleted(cluster_name, service)


def _named(service: V1Service) -> str:
    """The kept load balancer that the Service names; "" without one."""
    return annotations_of(service).get(ADOPT, "")


def _owned(record: LoadBalancerRecord) -> OwnedLoadBalancer:
    return OwnedLoadBalancer(record.name, record.service, record.service_uid, record.kept)


def _family(address: str) -> str:
    return "IPv6" if ":" in address else "IPv4"


def _take(address: str, network: str, taken: set[str]) -> str:
    """The address that the Service asks for. Raises `BadRequest`."""
    try:
        inside = ip_address(address) in ip_network(network)
    except ValueError:
        inside = False
    if not inside or address in taken:
        why = "is not of the range" if not inside else "is taken"
        raise BadRequest(f"the address {address} that the Service asks for {why}")
    return address


def _allocate(network: str, taken: set[str], seed: str) -> str:
    """A free address, always the same for the same Service in an empty range. Raises
    `QuotaExceeded`."""
    hosts = ip_network(network)
    size = max(1, hosts.num_addresses - 2)
    first = int.from_bytes(hashlib.sha256(f"{network} {seed}".encode()).digest()[:8], "big") % size
    offset = 1 if hosts.num_addresses > 2 else 0
    for step in range(size):
        address = str(hosts[offset + (first + step) % size])
        if address not in taken:
            return address
    raise QuotaExceeded(f"every ingress address of {network} is taken")


def _status(record: LoadBalancerRecord) -> V1LoadBalancerStatus:
    if record.state is not LoadBalancerState.ACTIVE:
        return V1LoadBalancerStatus(ingress=[])
    return V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress(ip=address) for address in record.ingress])
