"""What the fake cloud remembers: one frozen record per thing, and the world that holds them all."""

from __future__ import annotations

import enum
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import evolve, field, frozen

Address = tuple[str, str]
"""(type, address), as in ("InternalIP", "10.0.0.1")."""


def _addresses(value: Iterable[Iterable[str]]) -> tuple[Address, ...]:
    return tuple((kind, address) for kind, address in value)


def _triples(value: Iterable[Iterable[str]]) -> tuple[tuple[str, str, str], ...]:
    return tuple((key, content, effect) for key, content, effect in value)


def _strings(value: Iterable[str]) -> tuple[str, ...]:
    return tuple(value)


def _ports(value: Iterable[Port]) -> tuple[Port, ...]:
    return tuple(value)


def _own(value: Mapping[str, str]) -> Mapping[str, str]:
    return dict(value)


@frozen
class Instance:
    """A machine. `name` is the name of its node; `id` is unique for ever, also after the name was
    used again."""

    name: str
    id: str
    type: str = ""
    zone: str = ""
    region: str = ""
    addresses: tuple[Address, ...] = field(default=(), converter=_addresses)
    labels: Mapping[str, str] = field(factory=dict, converter=_own)
    taints: tuple[tuple[str, str, str], ...] = field(default=(), converter=_triples)
    """(key, value, effect)"""
    annotations: Mapping[str, str] = field(factory=dict, converter=_own)
    shutdown: bool = False
    pod_cidrs: tuple[str, ...] = field(default=(), converter=_strings)


class LoadBalancerState(enum.Enum):
    """How far a load balancer got."""

    ACTIVE = "active"
    HALF_BUILT = "half-built"
    """Created and named, but without address, ports or backends: the next ensure completes it."""


@frozen
class Port:
    """A listener: traffic for `port` goes to `node_port` of the backends."""

    port: int
    node_port: int = 0
    protocol: str = "TCP"
    name: str = ""


@frozen
class LoadBalancerRecord:
    """A load balancer. `name` is its key in the cloud, whatever cluster or Service it serves."""

    name: str
    cluster: str
    service: str
    """ "namespace/name" of the Service."""
    service_uid: str
    state: LoadBalancerState = LoadBalancerState.ACTIVE
    ingress: tuple[str, ...] = field(default=(), converter=_strings)
    """IP addresses, in the order of the Service's families."""
    ports: tuple[Port, ...] = field(default=(), converter=_ports)
    backends: tuple[str, ...] = field(default=(), converter=_strings)
    """Provider IDs, sorted; the node's name stands for one that has none."""
    source_ranges: tuple[str, ...] = field(default=(), converter=_strings)
    health_check: tuple[str, int] | None = None
    """HTTP path and port, where the Service has them."""
    kept: bool = False
    """Whether it was left on purpose when its Service was deleted."""
    changes: int = 0
    """How often it was really changed after its creation; an ensure that finds all in order does
    not count."""


@frozen
class RouteRecord:
    """A rule of the route table. Keyed by `name`; one rule for each destination."""

    name: str
    cluster: str
    destination_cidr: str
    target_node: str = ""
    target_addresses: tuple[Address, ...] = field(default=(), converter=_addresses)
    blackhole: bool = False
    foreign: bool = False
    """Made by hand or by another system (a VPN, a supernet): not this cloud's for any cluster."""


@frozen
class ResourceRecord:
    """Something else that was made for a cluster, as a security group. Keyed by `id`."""

    id: str
    kind: str
    cluster: str
    name: str = ""


@frozen
class Volume:
    """A disk: what `get_labels_for_volume` says about it."""

    id: str
    zones: tuple[str, ...] = field(default=(), converter=_strings)
    region: str = ""
    labels: Mapping[str, str] = field(factory=dict, converter=_own)


@frozen
class SSHKey:
    """A public key with which a user may log in, and the machines that have it."""

    user: str
    line: str
    """ "<type> <base64>"."""
    machines: tuple[str, ...] = field(default=(), converter=_strings)
    """IDs, sorted; a machine that is made later has it only once it is installed again."""


@frozen
class Cluster:
    """A cluster of the account, and the address of its control plane."""

    name: str
    master: str = ""


class World:
    """All that is in one cloud. A caller that reads or changes it holds `lock`."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.removed: set[str] = set()
        """Names of machines that were removed: none appears again under them by itself."""
        self.appeared = 0
        """How many machines appeared because they were asked about."""
        self.load_balancers: dict[str, LoadBalancerRecord] = {}
        self.routes: dict[str, RouteRecord] = {}
        self.resources: dict[str, ResourceRecord] = {}
        self.volumes: dict[str, Volume] = {}
        self.clusters: dict[str, Cluster] = {}
        self.ssh_keys: dict[tuple[str, str], SSHKey] = {}
        """By user and line."""
        self._instances: dict[str, Instance] = {}
        self._by_id: dict[str, Instance] = {}
        self._used_ids: set[str] = set()

    @property
    def instances(self) -> Mapping[str, Instance]:
        """The machines by name."""
        return self._instances

    def by_id(self, instance_id: str) -> Instance | None:
        """The machine with this ID."""
        return self._by_id.get(instance_id)

    def put_instance(self, instance: Instance) -> Instance:
        """Create a machine, or replace its record; returns it. One without an ID is given one that
        no machine ever had."""
        # IDs are never used again, or the node of a former machine would find the new one.
        if not instance.id:
            instance = evolve(instance, id=self._new_id(instance.name))
        old = self._instances.get(instance.name)
        if old is not None:
            self._by_id.pop(old.id, None)
        self._instances[instance.name] = self._by_id[instance.id] = instance
        # Those of the configuration too.
        self._used_ids.add(instance.id)
        # Made on purpose, so that it may be found again.
        self.removed.discard(instance.name)
        return instance

    def remove_instance(self, name: str) -> None:
        """The machine is no more; rules to it become blackholes. Raises KeyError."""
        del self._by_id[self._instances.pop(name).id]
        self.removed.add(name)
        for record in list(self.routes.values()):
            # A rule of another system leads where that says, not to our machine.
            if record.target_node == name and not record.foreign:
                self.routes[record.name] = evolve(record, target_node="", target_addresses=(), blackhole=True)

    def rename_instance(self, name: str, new: str) -> Instance:
        """The machine has another name, and rules still lead to it. Raises KeyError."""
        renamed = evolve(self._instances.pop(name), name=new)
        for record in list(self.routes.values()):
            if record.target_node == name:
                self.routes[record.name] = evolve(record, target_node=new)
        return self.put_instance(renamed)

    def route_to(self, destination: str) -> RouteRecord | None:
        """The rule for a destination."""
        return next((one for one in self.routes.values() if one.destination_cidr == destination), None)

    def table(self, kind: str) -> dict[str, Any]:
        """The records of a kind that the console changes freely."""
        table: dict[str, Any] = getattr(self, kind)
        return table

    def _new_id(self, name: str) -> str:
        number, found = 1, f"i-{name}"
        while found in self._used_ids:
            number += 1
            found = f"i-{name}-{number}"
        return found
