"""From a configuration to the world that it describes: records for the store (before stage 5 begins). Pure.

Checks on the way what no single field can know: names and IDs that are taken twice, and patterns whose results are no
names or addresses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_network

from attrs import Factory, define

from cloudprovider.helpers.ips import parse_ip
from cloudprovider.testing.fake.config import FakeConfig, InstanceConfig, InstanceGenerator, Template, as_tuple
from cloudprovider.testing.fake.records import Address, Cluster, Instance, RouteRecord, Volume

__all__ = ["World", "expand", "from_template", "instance_id", "single"]

_NODE_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_MANY = 3  # problems of one entry that are told one by one


@define
class World:
    """What is in the cloud at its beginning, and what is wrong with the configuration that says so."""

    instances: list[Instance] = Factory(list)
    routes: list[RouteRecord] = Factory(list)
    volumes: list[Volume] = Factory(list)
    clusters: list[Cluster] = Factory(list)
    problems: list[str] = Factory(list)


def instance_id(name: str, generation: int = 1) -> str:
    """The ID of a machine that was given none. A later machine of the same name is of another generation."""
    return f"i-{name}" if generation == 1 else f"i-{name}-{generation}"


def expand(config: FakeConfig, places: Mapping[str, Sequence[int]] | None = None) -> World:
    """The world of a configuration.

    `places` are, by field, the places that its entries have in the file, where some were left out.
    """
    world = World()
    taken: dict[tuple[str, str], str] = {}
    entries: list[tuple[str, int, InstanceConfig | InstanceGenerator]] = [
        *(("instances", place, one) for place, one in enumerate(config.instances)),
        *(("generate", place, one) for place, one in enumerate(config.generate)),
    ]
    for field, place, entry in entries:
        path = f"{field}[{places[field][place] if places and field in places else place}]"
        made, problems = ([single(entry)], []) if isinstance(entry, InstanceConfig) else _generate(entry)
        for instance in made:
            for taking in (("name", instance.name), ("id", instance.id)):
                if taking in taken:
                    problems.append(f"{taking[0]}: {taking[1]} is taken already, by {taken[taking]}")
                taken.setdefault(taking, path)
        world.problems += [f"{path}.{problem}" for problem in problems[:_MANY]]
        if len(problems) > _MANY:
            world.problems.append(f"{path}: {len(problems) - _MANY} more problems of this kind")
        world.instances += made
    world.routes = [RouteRecord(**route.model_dump()) for route in config.routes.existing]
    world.volumes = [Volume(**volume.model_dump()) for volume in config.volumes]
    world.clusters = [Cluster(**cluster.model_dump()) for cluster in config.clusters]
    world.problems += _doubles("volumes", "id", (volume.id for volume in world.volumes))
    world.problems += _doubles("clusters", "name", (cluster.name for cluster in world.clusters))
    world.problems += _doubles("faults", "name", (fault.name for fault in config.faults if fault.name))
    world.problems += _doubles("routes.existing", "destination_cidr", (r.destination_cidr for r in world.routes))
    world.problems += _doubles("routes.existing", "name", (r.name for r in world.routes))
    return world


def single(entry: InstanceConfig, generation: int = 1) -> Instance:
    """The machine that an entry describes."""
    return Instance(
        name=entry.name,
        id=entry.id or instance_id(entry.name, generation),
        type=entry.type,
        zone=entry.zone,
        region=entry.region,
        addresses=entry.addresses or (("Hostname", entry.name),),
        labels=entry.labels,
        shutdown=entry.shutdown,
        pod_cidrs=entry.pod_cidrs,
    )


def from_template(
    template: Template, name: str, number: int, *, id: str = "", brought: Sequence[Address] = ()
) -> Instance:
    """The machine of this name and number that a template gives.

    `brought` are IPs that stand for those of `network`. Raises ValueError when a pattern makes no IP address, or
    `pod_network` has no range left.
    """
    zone, type_ = _place(template, number)
    values = {"i": number, "name": name, "zone": zone, "type": type_}
    addresses = list(brought) or [("InternalIP", _nth(network, number)) for network in as_tuple(template.network)]
    for kind, patterns in template.addresses.items():
        for pattern in as_tuple(patterns):
            address = pattern.format(**values)
            if kind.endswith("IP") and parse_ip(address) is None:
                raise ValueError(f"addresses.{kind}: makes {address!r}, which is no IP address")
            addresses.append((kind, address))
    if "Hostname" not in template.addresses:
        addresses.append(("Hostname", name))
    return Instance(
        name=name,
        id=id or instance_id(name),
        type=type_,
        zone=zone,
        region=template.region,
        addresses=addresses,
        labels={key: pattern.format(**values) for key, pattern in template.labels.items()},
        pod_cidrs=[_nth_range(network, number) for network in as_tuple(template.pod_network)],
    )


def _place(template: Template, number: int) -> tuple[str, str]:
    """Zones in turn, and types in turn whenever the zones are through, so that every zone gets every type."""
    round_, place = divmod(number, len(template.zones))
    return template.zones[place], template.types[round_ % len(template.types)]


def _generate(entry: InstanceGenerator) -> tuple[list[Instance], list[str]]:
    made: list[Instance] = []
    problems: list[str] = []
    for number in range(entry.first, entry.first + entry.count):
        zone, type_ = _place(entry, number)
        name = entry.name.format(number, i=number, zone=zone, type=type_)
        if not _NODE_NAME.fullmatch(name):
            problems.append(f"name: makes {name!r}, which is no node name")
        try:
            made.append(from_template(entry, name, number))
        except ValueError as error:
            problems.append(str(error))
    return made, problems


@lru_cache(maxsize=64)
def _network(text: str) -> IPv4Network | IPv6Network:
    return ip_network(text)


def _nth(text: str, number: int) -> str:
    network = _network(text)
    return str(network.network_address + 1 + number % max(1, network.num_addresses - 2))


def _nth_range(text: str, number: int) -> str:
    """The range of a machine's pods. Raises ValueError when there are not so many."""
    network = _network(text)
    size = max(network.prefixlen, 24 if network.version == 4 else 64)
    if number >> (size - network.prefixlen):
        raise ValueError(f"pod_network: {text} has no /{size} with the number {number}")
    first = int(network.network_address) + (number << (network.max_prefixlen - size))
    return str(type(network)((first, size)))


def _doubles(path: str, field: str, values: Iterable[str]) -> list[str]:
    seen: set[str] = set()
    problems: dict[str, None] = {}
    for value in values:
        if value in seen:
            problems[f"{path}: {value} is the {field} of several"] = None
        seen.add(value)
    return list(problems)
