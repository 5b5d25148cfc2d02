"""The fake cloud's configuration: what the file may say, checked as a whole before anything is built.

From `--cloud-config` (YAML, of which JSON is a part) or from Python; read by cloud.py. `examples/fake-cloud.yaml` shows
every field.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Self

import yaml
from pydantic import Field, TypeAdapter, ValidationError, field_validator, model_validator

from cloudprovider.testing.fake.errors import FakeConfigError
from cloudprovider.testing.fake.faults import AnyFault
from cloudprovider.testing.fake.model import Count, Duration, Model
from cloudprovider.testing.fake.records import Cluster, Instance, RouteRecord, Volume

__all__ = ["FakeConfig", "InstanceGenerator", "read_config"]

CAPABILITIES = (
    "instances_v2", "instances_batch", "instances", "zones", "load_balancer", "routes", "pv_labeler", "clusters",
)  # fmt: skip
_DEFAULT_CAPABILITIES = tuple(name for name in CAPABILITIES if name != "instances")
Latency = Duration | tuple[Duration, Duration]


class InstanceConfig(Model):
    """One machine; `name` is its node's name."""

    name: Annotated[str, Field(min_length=1)]
    id: str = ""
    """Default: "i-" and the name."""
    type: str = "standard-2"
    zone: str = "zone-a"
    region: str = "region-1"
    addresses: tuple[tuple[str, str], ...] = ()
    """(type, address) pairs."""
    labels: Mapping[str, str] = Field(default_factory=dict)
    shutdown: bool = False

    def record(self) -> Instance:
        return Instance(
            name=self.name,
            id=self.id or f"i-{self.name}",
            type=self.type,
            zone=self.zone,
            region=self.region,
            addresses=self.addresses or (("Hostname", self.name),),
            labels=self.labels,
            shutdown=self.shutdown,
        )


class InstanceGenerator(Model):
    """Many machines alike: types and zones are dealt out in turn, addresses counted up in `network`."""

    count: Count = 0
    name: str = "node-{:04d}"
    """Python's format of the number."""
    first: Count = 0
    types: Annotated[tuple[str, ...], Field(min_length=1)] = ("standard-2",)
    zones: Annotated[tuple[str, ...], Field(min_length=1)] = ("zone-a",)
    region: str = "region-1"
    network: str = "10.0.0.0/8"
    labels: Mapping[str, str] = Field(default_factory=dict)

    @field_validator("network")
    @classmethod
    def _network(cls, value: str) -> str:
        ipaddress.ip_network(value)
        return value

    @field_validator("name")
    @classmethod
    def _pattern(cls, value: str) -> str:
        try:
            distinct = value.format(1) != value.format(2)
        except (IndexError, KeyError, ValueError) as error:
            raise ValueError(f"not a format of one number: {error}") from None
        if not distinct:
            raise ValueError("must contain a place for the number, as in node-{:04d}")
        return value

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if ipaddress.ip_network(self.network).num_addresses < self.first + self.count + 2:
            raise ValueError(f"network {self.network} has no room for {self.count} addresses")
        return self

    def instance(self, number: int) -> Instance:
        """The machine of that number, counted from `first`."""
        return self.named(self.name.format(number), number)

    def named(self, name: str, number: int) -> Instance:
        """A machine of this kind under any name; `number` decides its type, zone and address."""
        network = ipaddress.ip_network(self.network)
        address = network[1 + number % max(1, network.num_addresses - 2)]
        return Instance(
            name=name,
            id=f"i-{name}",
            type=self.types[number % len(self.types)],
            zone=self.zones[number % len(self.zones)],
            region=self.region,
            addresses=(("InternalIP", str(address)), ("Hostname", name)),
            labels=self.labels,
        )


class LoadBalancerConfig(Model):
    """Where ingress addresses come from, and how many load balancers there may be."""

    ipv4: str = "192.0.2.0/24"
    ipv6: str = "2001:db8:1b::/112"
    quota: Count | None = None

    @field_validator("ipv4", "ipv6")
    @classmethod
    def _network(cls, value: str) -> str:
        ipaddress.ip_network(value)
        return value


class RouteConfig(Model):
    """A route that is there from the beginning."""

    name: Annotated[str, Field(min_length=1)]
    destination_cidr: str
    cluster: str = ""
    target_node: str = ""
    blackhole: bool = False
    foreign: bool = True

    def record(self) -> RouteRecord:
        return RouteRecord(**self.model_dump())


class RouteTableConfig(Model):
    """The route table: how many routes it holds, and which are there already."""

    quota: Count | None = None
    existing: tuple[RouteConfig, ...] = ()


class VolumeConfig(Model):
    """A disk."""

    id: Annotated[str, Field(min_length=1)]
    zones: tuple[str, ...] = ()
    region: str = ""
    labels: Mapping[str, str] = Field(default_factory=dict)

    def record(self) -> Volume:
        return Volume(**self.model_dump())


class ClusterConfig(Model):
    """A cluster of the account."""

    name: Annotated[str, Field(min_length=1)]
    master: str = ""

    def record(self) -> Cluster:
        return Cluster(**self.model_dump())


class FakeConfig(Model):
    """The whole configuration. Immutable; every field has a default."""

    provider: str = "fake"
    """The provider's name, and how its provider IDs begin."""
    provider_ids: bool = True
    """False: a cloud without provider IDs, as some older ones."""
    has_cluster_id: bool = True
    capabilities: tuple[str, ...] = _DEFAULT_CAPABILITIES
    max_batch: Annotated[int, Field(ge=1)] = 100
    seed: int = 0
    caller: str = ""
    """Written into the log of mutating calls beside the process ID."""
    state: str = ""
    """Path of an SQLite file that holds the cloud for several processes; empty: in memory."""
    instances: tuple[InstanceConfig, ...] = ()
    generate: tuple[InstanceGenerator, ...] = ()
    on_demand: InstanceGenerator | None = None
    """An instance of this kind appears for whatever node name is asked about."""
    latency: Mapping[str, Latency] = Field(default_factory=dict)
    """By pattern of methods: seconds, or a pair of the least and the most."""
    faults: tuple[AnyFault, ...] = ()
    load_balancers: LoadBalancerConfig = LoadBalancerConfig()
    routes: RouteTableConfig = RouteTableConfig()
    volumes: tuple[VolumeConfig, ...] = ()
    clusters: tuple[ClusterConfig, ...] = ()

    @field_validator("capabilities")
    @classmethod
    def _capabilities(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [name for name in value if name not in CAPABILITIES]
        if unknown:
            raise ValueError(f"unknown: {', '.join(unknown)}; known: {', '.join(CAPABILITIES)}")
        return value

    def all_instances(self) -> Iterator[Instance]:
        """The machines that the cloud begins with."""
        for one in self.instances:
            yield one.record()
        for group in self.generate:
            for number in range(group.first, group.first + group.count):
                yield group.instance(number)


_ADAPTER = TypeAdapter(FakeConfig)


def read_config(data: bytes, source: str = "") -> FakeConfig:
    """The configuration in a YAML or JSON file. Raises FakeConfigError with every problem and the path to its field."""
    try:
        raw: Any = yaml.safe_load(data)
    except yaml.YAMLError as error:
        raise FakeConfigError([f"not YAML: {error}"], source) from error
    try:
        return _ADAPTER.validate_python({} if raw is None else raw)
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, one['loc'])) or 'file'}: {one['msg']}" for one in error.errors()]
        raise FakeConfigError(problems, source) from None
