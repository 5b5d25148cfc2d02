"""The fake cloud's configuration: the fields, their defaults and what they mean.

Read from `--cloud-config`, or made in Python: ``FakeConfig.model_validate({"generate": [{"count":
3}]})``. `examples/fake-cloud.yaml` shows every field.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_network
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from cloudprovider.config import ProviderConfig, Seconds
from cloudprovider.ips import parse_ip
from cloudprovider.testing.fake.methods import METHODS, Patterns, matches
from cloudprovider.testing.fake.records import Address, Instance

Capability = Literal[
    "instances_v2", "instances_batch", "instances", "ssh_keys", "zones", "load_balancer", "owned_load_balancers",
    "routes", "pod_cidrs", "pv_labeler", "clusters", "local_instance", "owned_resources",
]  # fmt: skip
CAPABILITIES: tuple[Capability, ...] = get_args(Capability)
AddressType = Literal["InternalIP", "ExternalIP", "Hostname", "InternalDNS", "ExternalDNS"]


def _cidr(value: str) -> str:
    try:
        return str(ip_network(value))
    except ValueError:
        raise ValueError("is no CIDR") from None


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


def _span(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | tuple) else (value, value)


def _ordered(value: tuple[float, float]) -> tuple[float, float]:
    if value[1] < value[0]:
        raise ValueError("the most must not be less than the least")
    return value


def _method_pattern(value: str) -> str:
    if not matches(value, METHODS):
        raise ValueError("matches no method of the fake cloud")
    return value


Duration = Annotated[Seconds, Field(ge=0, allow_inf_nan=False)]
"""Seconds; in a file also Go's form, "200ms" or "1m30s"."""
CIDR = Annotated[str, AfterValidator(_cidr)]
Text = Annotated[str, StringConstraints(min_length=1)]
Texts = Annotated[tuple[str, ...], Field(min_length=1)]
NodeName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]
Pair = Annotated[tuple[AddressType, str], AfterValidator(_address)]
Latency = Annotated[tuple[Duration, Duration], BeforeValidator(_span), AfterValidator(_ordered)]


class InstanceConfig(ProviderConfig):
    """One machine; `name` is its node's name."""

    name: NodeName
    id: str = ""
    """What follows "://" in its provider ID. Default: "i-" and the name."""
    type: str = "standard-2"
    zone: str = "zone-a"
    region: str = "region-1"
    addresses: Annotated[tuple[Pair, ...], BeforeValidator(_pairs)] = ()
    """(type, address) pairs; in a file also a mapping of types. Default: an InternalIP in
    198.18.0.0/15, always the same for a name, and its name as Hostname."""
    labels: Mapping[str, str] = {}
    taints: tuple[tuple[str, str, str], ...] = ()
    """(key, value, effect) of each that its node gets when it joins."""
    annotations: Mapping[str, str] = {}
    shutdown: bool = False
    pod_cidrs: tuple[CIDR, ...] = ()
    """The ranges of its pods, as this cloud chose them; none: not yet."""

    def instance(self) -> Instance:
        """The machine; its ID is empty where none is given."""
        network = ip_network("198.18.0.0/15")
        # Of the name and not of a counter: a restart must not give a node another address.
        own = network.network_address + 1 + zlib.crc32(self.name.encode()) % (network.num_addresses - 2)
        default = (("InternalIP", str(own)), ("Hostname", self.name))
        return Instance(**self.model_dump() | {"addresses": self.addresses or default})


class Template(ProviderConfig):
    """What machines that are made in numbers have in common."""

    types: Texts = ("standard-2",)
    """Dealt out in turn, each to one round of the zones."""
    zones: Texts = ("zone-a",)
    """Dealt out in turn."""
    region: str = "region-1"
    network: CIDR = "10.0.0.0/8"
    """Every machine has an InternalIP in this range, counted up, and its name as Hostname."""

    def instance(self, name: str, number: int, brought: Sequence[Address] = ()) -> Instance:
        """The machine of this name and number; its ID is empty. `brought` are IPs that stand for
        that of `network`."""
        # Types in turn whenever the zones are through, so that every zone gets every type.
        turn, place = divmod(number, len(self.zones))
        network = ip_network(self.network)
        address = network.network_address + 1 + number % max(1, network.num_addresses - 2)
        return Instance(
            name=name,
            id="",
            type=self.types[turn % len(self.types)],
            zone=self.zones[place],
            region=self.region,
            addresses=(*(brought or [("InternalIP", str(address))]), ("Hostname", name)),
        )


class InstanceGenerator(Template):
    """Many machines alike, in one line."""

    count: Annotated[int, Field(ge=0, le=1_000_000, strict=True)] = 0
    name: str = "node-{:04d}"
    """Python's format of the number."""
    first: Annotated[int, Field(ge=0, strict=True)] = 0
    """The first number."""

    def instances(self) -> Iterator[Instance]:
        """All of them."""
        for number in range(self.first, self.first + self.count):
            yield self.instance(self.name.format(number), number)

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            # Tried, as Python's formats have more spellings than a pattern could know.
            different = self.name.format(0) != self.name.format(1)
        except (ValueError, LookupError):
            different = False
        if not different:
            raise ValueError("'name' must contain a place for the number, as in node-{:04d}")
        if ip_network(self.network).num_addresses < self.first + self.count + 2:
            raise ValueError(f"'network' {self.network} has no room for {self.count} addresses")
        return self


class OnDemand(Template):
    """A machine appears for whatever node name is asked about: for demonstrations against clusters
    that exist already.

    The IPs that the node brings, in its provided-node-ip annotation or else its status, replace
    `network`'s. A machine that was removed at the console stays away. A node whose provider ID
    another cloud gave is not ours to know.
    """

    names: Patterns = "*"
    """Only for these node names, as patterns."""


class LoadBalancerConfig(ProviderConfig):
    """How load balancers behave."""

    ipv4: CIDR = "192.0.2.0/24"
    """Where ingress addresses come from."""
    ipv6: CIDR = "2001:db8:1b::/112"


class RouteConfig(ProviderConfig):
    """A rule that is in the table from the beginning."""

    name: Text
    destination_cidr: CIDR
    cluster: str = ""
    target_node: str = ""
    blackhole: bool = False
    foreign: bool = True
    """Another system's (a VPN, a supernet), not of the cluster's making."""


class RouteTableConfig(ProviderConfig):
    """The route table, and how routes behave. Rules of other systems are listed too, as careless
    providers do, and rules to a machine that is removed become blackholes."""

    existing: tuple[RouteConfig, ...] = ()
    node_addresses: bool = False
    """Whether rules know their target node's addresses (`Route.enable_node_addresses`)."""
    strict_targets: bool = False
    """A target node that is no machine of this cloud fails the call."""


class VolumeConfig(ProviderConfig):
    """A disk, found by the volume handle of the PersistentVolume, or its name."""

    id: Text
    zones: tuple[str, ...] = ()
    region: str = ""
    labels: Mapping[str, str] = {}


class ClusterConfig(ProviderConfig):
    """A cluster of the account."""

    name: Text
    master: str = ""


class FakeConfig(ProviderConfig):
    """The whole configuration. Immutable; every field has a default, by which the cloud is
    empty."""

    provider: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")] = "fake"
    """The provider's name, and how its provider IDs begin."""
    provider_ids: bool = True
    """False: a cloud without provider IDs, as some older ones; its machines are found by name."""
    has_cluster_id: bool = True
    capabilities: tuple[Capability, ...] = tuple(name for name in CAPABILITIES if name != "instances")
    """What the cloud can do; for the rest the accessors of `Interface` answer None. `instances` is
    the older form."""
    max_batch: Annotated[int, Field(ge=1, strict=True)] = 100
    """A longer batch is refused."""
    caller: str = ""
    """A name for this process in the call log, beside the process ID."""
    log: Literal["changes", "all"] = "changes"
    """Which calls are logged; all are counted."""
    zone: str = ""
    """Where the program itself runs, for `get_zone`; empty: nowhere in this cloud."""
    region: str = ""
    machine: str = ""
    """The name of the machine that the program itself runs on, for `local_instance`; empty: this
    host's name."""
    instances: tuple[InstanceConfig, ...] = ()
    generate: tuple[InstanceGenerator, ...] = ()
    on_demand: OnDemand | None = None
    latency: Mapping[Annotated[str, AfterValidator(_method_pattern)], Latency] = {}
    """By pattern of methods, of which the first that matches counts: a duration, or the least and
    the most."""
    load_balancers: LoadBalancerConfig = LoadBalancerConfig()
    routes: RouteTableConfig = RouteTableConfig()
    volumes: tuple[VolumeConfig, ...] = ()
    clusters: tuple[ClusterConfig, ...] = ()
    server: str = ""
    """Where another process serves this cloud, "host:port"; written by `FakeCloud.share`."""
    server_key: str = ""
    """What that process knows its clients by."""

    def has(self, capability: Capability) -> bool:
        """Whether the cloud has this capability."""
        return capability in self.capabilities

    def machines(self) -> Iterator[Instance]:
        """The machines that are there at the beginning; an ID is empty where none is given."""
        yield from (one.instance() for one in self.instances)
        for one in self.generate:
            yield from one.instances()

    @model_validator(mode="after")
    def _check(self) -> Self:
        ids = [one.id or f"i-{one.name}" for one in self.machines()]
        for what, values in (
            ("instances: name", [one.name for one in self.machines()]),
            ("instances: id", ids),
            ("routes.existing: name", [one.name for one in self.routes.existing]),
            ("routes.existing: destination_cidr", [one.destination_cidr for one in self.routes.existing]),
        ):
            # The last one would win in silence, and a machine be missing.
            if len(set(values)) < len(values):
                double = next(value for value in values if values.count(value) > 1)
                raise ValueError(f"{what} {double} is taken twice")
        return self
