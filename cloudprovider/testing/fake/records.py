"""What the fake cloud remembers: one frozen record per thing, and how each is kept in a store (stage 5's far end).

The capabilities and the console write these through `store.Transaction`; nothing of them leaves the package except by
way of the capabilities' own return types and the console's listings.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Generic, TypeVar, cast

import attrs
from attrs import field, frozen

__all__ = [
    "CLUSTERS",
    "INGRESS",
    "INSTANCES",
    "LOAD_BALANCERS",
    "REMOVED_INSTANCES",
    "ROUTES",
    "SSH_KEYS",
    "VOLUMES",
    "Address",
    "Cluster",
    "Instance",
    "Kind",
    "LoadBalancerRecord",
    "LoadBalancerState",
    "Mark",
    "Port",
    "RouteRecord",
    "SSHKey",
    "Volume",
    "record_kind",
]

T = TypeVar("T")
_DECODED = 4096  # texts of each kind, whose records are kept
Address = tuple[str, str]
"""(type, address), as in ("InternalIP", "10.0.0.1")."""


@frozen
class Kind(Generic[T]):
    """One collection of records in a store: its name, its text form, and how it is found."""

    name: str
    encode: Callable[[T], str] = field(repr=False)
    decode: Callable[[str], T] = field(repr=False)
    index: Callable[[T], str] | None = None
    """A second way to find records; several may share one value."""
    history: bool = False
    """Whether the version before the last change is kept, for stale answers."""


def record_kind(name: str, cls: type[T], *, index: Callable[[T], str] | None = None, history: bool = False) -> Kind[T]:
    """The Kind of an attrs class whose fields are JSON values, or have converters that take JSON values."""

    def encode(value: T) -> str:
        return json.dumps(
            attrs.asdict(cast("attrs.AttrsInstance", value), value_serializer=_plain), separators=(",", ":")
        )

    @lru_cache(_DECODED)  # records are frozen, and a call about a thousand nodes reads a thousand of them
    def decode(text: str) -> T:
        return cls(**json.loads(text))

    return Kind(name, encode, decode, index, history)


def _plain(_: object, __: object, value: Any) -> Any:
    return value.value if isinstance(value, enum.Enum) else value


def _addresses(value: Iterable[Iterable[str]]) -> tuple[Address, ...]:
    return tuple((kind, address) for kind, address in value)


def _strings(value: Iterable[str]) -> tuple[str, ...]:
    return tuple(value)


def _own(value: Mapping[str, str]) -> Mapping[str, str]:
    return dict(value)


@frozen
class Instance:
    """A machine. `name` is the name of its node; `id` is unique for ever, also after the name was used again."""

    name: str
    id: str
    type: str = ""
    zone: str = ""
    region: str = ""
    addresses: tuple[Address, ...] = field(default=(), converter=_addresses)
    labels: Mapping[str, str] = field(factory=dict, converter=_own)
    shutdown: bool = False
    pod_cidrs: tuple[str, ...] = field(default=(), converter=_strings)


class LoadBalancerState(enum.Enum):
    """How far a load balancer got."""

    ACTIVE = "active"
    HALF_BUILT = "half-built"
    """Created and named, but without address, ports or backends: the next ensure completes it."""
    PROVISIONING = "provisioning"
    """Complete, but the cloud still works on it and shows no address."""


@frozen
class Port:
    """A listener: traffic for `port` goes to `node_port` of the backends."""

    port: int
    node_port: int = 0
    protocol: str = "TCP"
    name: str = ""


def _ports(value: Iterable[Port | Mapping[str, Any]]) -> tuple[Port, ...]:
    return tuple(port if isinstance(port, Port) else Port(**port) for port in value)


@frozen
class LoadBalancerRecord:
    """A load balancer. `name` is its key in the cloud, whatever cluster or Service it serves."""

    name: str
    cluster: str
    service: str
    """ "namespace/name" of the Service."""
    service_uid: str
    state: LoadBalancerState = field(default=LoadBalancerState.ACTIVE, converter=LoadBalancerState)
    ingress: tuple[str, ...] = field(default=(), converter=_strings)
    """IP addresses, in the order of the Service's families."""
    hostname: str = ""
    """Where the cloud answers with DNS names, the name; the status then shows it in place of the addresses."""
    ports: tuple[Port, ...] = field(default=(), converter=_ports)
    backends: tuple[str, ...] = field(default=(), converter=_strings)
    """Provider IDs, sorted; the node's name stands for one that has none."""
    source_ranges: tuple[str, ...] = field(default=(), converter=_strings)
    created: float = 0.0
    """Unix seconds."""
    changes: int = 0
    """How often it was really changed after its creation; an ensure that finds all in order does not count."""


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


@frozen
class Mark:
    """A small note under a key of its own: who holds an ingress address, that a name was removed."""

    value: str = ""


INSTANCES = record_kind("instance", Instance, index=lambda instance: instance.id, history=True)
REMOVED_INSTANCES = record_kind("removed-instance", Mark)
"""Names of instances that were removed: on-demand instances never come back under them by themselves."""
LOAD_BALANCERS = record_kind("load-balancer", LoadBalancerRecord, index=lambda balancer: balancer.cluster, history=True)
INGRESS = record_kind("ingress", Mark)
"""By IP address: the load balancer that holds it."""
ROUTES = record_kind("route", RouteRecord, index=lambda route: route.destination_cidr, history=True)
VOLUMES = record_kind("volume", Volume, history=True)
CLUSTERS = record_kind("cluster", Cluster, history=True)
SSH_KEYS = record_kind("ssh-key", SSHKey)
"""By user and key."""
