"""The fake cloud's configuration: the fields, their defaults and what they mean (before stage 5 begins).

Read from `--cloud-config` by configfile.py, or made in Python: ``FakeConfig(generate=(InstanceGenerator(count=3),))``.
`examples/fake-cloud.yaml` shows every field.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from ipaddress import ip_network
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from cloudprovider.helpers.ips import parse_ip
from cloudprovider.testing.fake.faults import AnyFault
from cloudprovider.testing.fake.methods import matching_methods
from cloudprovider.testing.fake.model import Count, Duration, Model, Patterns

__all__ = [
    "CAPABILITIES",
    "Capability",
    "ClusterConfig",
    "FakeConfig",
    "InstanceConfig",
    "InstanceGenerator",
    "LoadBalancerConfig",
    "OnDemand",
    "RouteConfig",
    "RouteTableConfig",
    "Template",
    "VolumeConfig",
    "as_tuple",
]

Capability = Literal[
    "instances_v2", "instances_batch", "instances", "ssh_keys", "zones", "load_balancer", "owned_load_balancers",
    "routes", "pod_cidrs", "pv_labeler", "clusters", "local_instance",
]  # fmt: skip
CAPABILITIES: tuple[Capability, ...] = (
    "instances_v2", "instances_batch", "instances", "ssh_keys", "zones", "load_balancer", "owned_load_balancers",
    "routes", "pod_cidrs", "pv_labeler", "clusters", "local_instance",
)  # fmt: skip
_FIELDS = frozenset({"i", "name", "zone", "type"})
AddressType = Literal["InternalIP", "ExternalIP", "Hostname", "InternalDNS", "ExternalDNS"]
OneOrMore = str | tuple[str, ...]


def as_tuple(value: OneOrMore) -> tuple[str, ...]:
    """One text, or several, as several."""
    return (value,) if isinstance(value, str) else value


def _format(value: str, known: frozenset[str]) -> set[str]:
    """The fields of a pattern; only plain ones, and a number's format, are let through."""
    try:
        parts = list(string.Formatter().parse(value))
    except ValueError as error:
        raise ValueError(f"is no pattern: {error}") from None
    for _, name, spec, conversion in parts:
        if name is not None and (name not in known or conversion):
            raise ValueError(f"a pattern knows {', '.join(f'{{{name}}}' for name in sorted(known))} here")
        if spec and name not in ("i", ""):
            raise ValueError("only the number takes a format, as in {i:04d}")
        try:
            format(0, spec or "")
        except ValueError:
            raise ValueError("the number takes the format of a whole number, as in {i:04d}") from None
    return {name for _, name, _, _ in parts if name is not None}


def _pattern(value: str) -> str:
    _format(value, _FIELDS)
    return value


def _named(value: str) -> str:
    _format(value, frozenset({"name"}))
    return value


def _patterns(value: OneOrMore) -> OneOrMore:
    for one in as_tuple(value):
        _pattern(one)
    return value


def _cidr(value: str) -> str:
    try:
        ip_network(value)
    except ValueError:
        raise ValueError("is no IP range like 10.0.0.0/16, host bits zero") from None
    return value


def _cidrs(value: OneOrMore) -> OneOrMore:
    for one in as_tuple(value):
        _cidr(one)
    return value


def _family(version: int) -> AfterValidator:
    def check(value: str) -> str:
        if ip_network(_cidr(value)).version != version:
            raise ValueError(f"is no IPv{version} range")
        return value

    return AfterValidator(check)


def _pairs(value: Any) -> Any:
    """Addresses written as a mapping, {InternalIP: 10.0.0.1, Hostname: [a, b]}, as pairs."""
    if not isinstance(value, Mapping):
        return value
    listed = [(kind, one if isinstance(one, list | tuple) else [one]) for kind, one in value.items()]
    return [(kind, address) for kind, addresses in listed for address in addresses]


def _address(pair: tuple[AddressType, str]) -> tuple[AddressType, str]:
    if pair[0].endswith("IP") and parse_ip(pair[1]) is None:
        raise ValueError("is no IP address")
    return pair


Pattern = Annotated[str, AfterValidator(_pattern)]
CIDR = Annotated[str, AfterValidator(_cidr)]
Text = Annotated[str, StringConstraints(min_length=1)]
NodeName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]
Pair = Annotated[tuple[AddressType, str], AfterValidator(_address)]


class InstanceConfig(Model):
    """One machine; `name` is its node's name."""

    name: NodeName
    id: str = ""
    """What follows "://" in its provider ID. Default: "i-" and the name."""
    type: str = "standard-2"
    zone: str = "zone-a"
    region: str = "region-1"
    addresses: Annotated[tuple[Pair, ...], BeforeValidator(_pairs)] = ()
    """(type, address) pairs; in a file also a mapping of types. Default: its name as Hostname."""
    labels: Mapping[str, str] = {}
    shutdown: bool = False
    pod_cidrs: tuple[CIDR, ...] = ()
    """The ranges of its pods, as this cloud chose them; none: not yet."""


class Template(Model):
    """What machines that are made in numbers have in common. Patterns know {i}, {name}, {zone} and {type}."""

    types: Annotated[tuple[str, ...], Field(min_length=1)] = ("standard-2",)
    """Dealt out in turn, each to one round of the zones."""
    zones: Annotated[tuple[str, ...], Field(min_length=1)] = ("zone-a",)
    """Dealt out in turn."""
    region: str = "region-1"
    network: Annotated[OneOrMore, AfterValidator(_cidrs)] = "10.0.0.0/8"
    """Every machine has an InternalIP in this range, counted up; several for several families, () for none."""
    addresses: Mapping[AddressType, Annotated[OneOrMore, AfterValidator(_patterns)]] = {}
    """Further addresses by type: patterns. Each machine also has its name as Hostname, unless that is given here."""
    labels: Mapping[str, Pattern] = {}
    """Values are patterns."""
    pod_network: Annotated[OneOrMore, AfterValidator(_cidrs)] = ()
    """Every machine has a range of pod addresses in it, a /24 or for IPv6 a /64, counted up; several for several
    families. Default: the cloud chooses none."""


class InstanceGenerator(Template):
    """Many machines alike, in a few lines."""

    count: Annotated[int, Field(ge=0, le=1_000_000, strict=True)] = 0
    name: str = "node-{:04d}"
    """Python's format of the number: node-{:04d}, node-{i}; {zone} and {type} can stand in it too."""
    first: Count = 0
    """The first number."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(_format(self.name, frozenset({"", "i", "zone", "type"})) & {"", "i"}) != 1:
            raise ValueError("'name' must contain a place for the number, as in node-{:04d}")
        for network in as_tuple(self.network):
            if ip_network(network).num_addresses < self.first + self.count + 2:
                raise ValueError(f"'network' {network} has no room for {self.count} addresses")
        return self


class OnDemand(Template):
    """A machine appears for whatever node name is asked about: for demonstrations against clusters that exist already.

    One that was removed at the console stays away. A node whose provider ID another cloud gave is not ours to know.
    """

    names: Patterns = "*"
    """Only for these node names, as patterns."""
    addresses_from_node: bool = True
    """The IPs that the node brings, in its provided-node-ip annotation or else its status, replace `network`'s."""


class LoadBalancerConfig(Model):
    """How load balancers behave."""

    ipv4: Annotated[str, _family(4)] = "192.0.2.0/24"
    """Where ingress addresses come from."""
    ipv6: Annotated[str, _family(6)] = "2001:db8:1b::/112"
    hostname: Annotated[str, AfterValidator(_named)] = ""
    """A pattern with {name}: load balancers are then reached by this DNS name, and the status shows no address."""
    names: Literal["uid", "cluster-namespace-name"] = "uid"
    """How they are named: from the Service's UID, or readably, which two clusters of one name can clash over."""
    revision: str = ""
    """What `load_balancer_revision` says."""
    quota: Count | None = None
    """So many in the whole cloud."""
    provisioning: Duration = 0.0
    """So long after its creation, ensure raises RetryError and no address is shown."""
    strict_backends: bool = False
    """Nodes that are no machines of this cloud fail the call; else they become backends all the same."""


class RouteConfig(Model):
    """A rule that is in the table from the beginning."""

    name: Text
    destination_cidr: CIDR
    cluster: str = ""
    target_node: str = ""
    blackhole: bool = False
    foreign: bool = True
    """Another system's (a VPN, a supernet), not of the cluster's making."""


class RouteTableConfig(Model):
    """The route table, and how routes behave."""

    quota: Count | None = None
    """So many rules in the whole table, foreign ones included."""
    existing: tuple[RouteConfig, ...] = ()
    list_foreign: bool = True
    """Whether `list_routes` shows foreign rules too, as careless providers do: the host must leave them alone."""
    tells_owner: bool = False
    """Whether rules say if they were made for the cluster that asks (`Route.owned`)."""
    node_addresses: bool = False
    """Whether rules know their target node's addresses (`Route.enable_node_addresses`)."""
    blackhole_on_removal: bool = True
    """Rules to a machine that is removed become blackholes without a target."""
    strict_targets: bool = False
    """A target node that is no machine of this cloud fails the call."""


class VolumeConfig(Model):
    """A disk, found by the volume handle of the PersistentVolume, or its name."""

    id: Text
    zones: tuple[str, ...] = ()
    region: str = ""
    labels: Mapping[str, str] = {}


class ClusterConfig(Model):
    """A cluster of the account."""

    name: Text
    master: str = ""


def _latency_method(value: str) -> str:
    if not matching_methods((value,)):
        raise ValueError("matches no method of the fake cloud")
    return value


def _latency(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | tuple) else (value, value)


def _ordered(value: tuple[float, float]) -> tuple[float, float]:
    if value[1] < value[0]:
        raise ValueError("the most must not be less than the least")
    return value


Latency = Annotated[tuple[Duration, Duration], BeforeValidator(_latency), AfterValidator(_ordered)]


class FakeConfig(Model):
    """The whole configuration. Immutable; every field has a default, by which the cloud is empty."""

    provider: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")] = "fake"
    """The provider's name, and how its provider IDs begin."""
    provider_ids: bool = True
    """False: a cloud without provider IDs, as some older ones; its machines are found by name."""
    has_cluster_id: bool = True
    capabilities: tuple[Capability, ...] = tuple(name for name in CAPABILITIES if name != "instances")
    """What the cloud can do; for the rest the accessors of `Interface` answer None. `instances` is the older form."""
    max_batch: Annotated[int, Field(ge=1, strict=True)] = 100
    """A longer batch is refused."""
    seed: Annotated[int, Field(strict=True)] = 0
    """Of everything that is drawn: latencies, probabilities, junk."""
    caller: str = ""
    """A name for this process: in the call log beside the process ID, and for faults to match."""
    log: Literal["changes", "all"] = "changes"
    """Which calls are logged; all are counted."""
    state: str = ""
    """Path of an SQLite file that holds the cloud for several processes; empty: in memory. In a configuration file it
    is relative to that file.

    This file is the cloud: once it exists, what the configuration says of the world (machines, routes, volumes,
    clusters, faults) is not put in again."""
    busy_timeout: Duration = 10.0
    """How long to wait for another process that writes to the file."""
    zone: str = ""
    """Where the program itself runs, for `get_zone`; empty: nowhere in this cloud."""
    region: str = ""
    machine: str = ""
    """The name of the machine that the program itself runs on, for `local_instance`; empty: this host's name."""
    instances: tuple[InstanceConfig, ...] = ()
    generate: tuple[InstanceGenerator, ...] = ()
    on_demand: OnDemand | None = None
    latency: Mapping[Annotated[str, AfterValidator(_latency_method)], Latency] = {}
    """By pattern of methods, of which the first that matches counts: a duration, or the least and the most."""
    faults: tuple[AnyFault, ...] = ()
    load_balancers: LoadBalancerConfig = LoadBalancerConfig()
    routes: RouteTableConfig = RouteTableConfig()
    volumes: tuple[VolumeConfig, ...] = ()
    clusters: tuple[ClusterConfig, ...] = ()

    def has(self, capability: Capability) -> bool:
        """Whether the cloud has this capability."""
        return capability in self.capabilities
