"""libcloud's Node as the facts that Kubernetes wants. Pure.

Drivers put the same fact in different places, and as a text, a dict, an object or a URL; `read`
takes it out of any of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import frozen
from kubernetes.client.models.v1_node_address import V1NodeAddress
from libcloud.compute.types import NodeState

from cloudprovider import InstanceMetadata, InstanceState
from cloudprovider.helpers import label_value, parse_ip
from cloudprovider.wellknown import (
    NODE_ADDRESS_EXTERNAL_IP,
    NODE_ADDRESS_HOSTNAME,
    NODE_ADDRESS_INTERNAL_DNS,
    NODE_ADDRESS_INTERNAL_IP,
)
from libcloud_provider.profiles import Parts, Profile
from libcloud_provider.providerids import ProviderIDs

_OFF = ("stopped", "suspended", "paused")


@frozen(kw_only=True)
class Machine:
    """A machine as the driver shows it."""

    parts: Parts
    state: InstanceState | None
    """None: the driver's word means several things."""
    kind: str
    zone: str
    region: str
    private: tuple[str, ...]
    public: tuple[str, ...]
    internal_dns: str
    names: frozenset[str]
    """By which a node may be called, in small letters."""
    node: Any
    """libcloud's own, for the drivers of load balancers that want it."""

    @property
    def addresses(self) -> frozenset[str]:
        """All IP addresses, written in one way."""
        return frozenset(str(parse_ip(one)) for one in (*self.private, *self.public))


def machine_of(node: Any, profile: Profile, region: str) -> Machine:
    """The facts in libcloud's Node. `region` is the configuration's, and counts more than the
    node's."""
    zone = read(node, profile.zone)
    found = re.fullmatch(profile.region_of_zone, zone) if profile.region_of_zone else None
    name, own_id = str(node.name or ""), str(node.id or "")
    names = {name, own_id, *(read(node, path) for path in profile.names.split("|"))}
    return Machine(
        parts=Parts(id=own_id, name=name, zone=zone),
        state=_state(node, profile),
        kind=read(node, profile.kind),
        zone=zone,
        region=region or read(node, profile.region) or (found[1] if found else ""),
        private=_ips(node.private_ips),
        public=_ips(node.public_ips),
        internal_dns=read(node, profile.internal_dns),
        names=frozenset(one.casefold() for one in names if one),
        node=node,
    )


def metadata(node: str, machine: Machine, ids: ProviderIDs) -> InstanceMetadata:
    """What the node of this machine gets. Its name is its Hostname, unless the cloud gives its
    machines a private DNS name. Raises `CloudProviderError` where the cloud does not say
    what the provider ID needs."""
    return InstanceMetadata(
        provider_id=ids.write(machine.parts),
        instance_type=label_value(machine.kind),
        node_addresses=tuple(_addresses(node, machine)),
        zone=label_value(machine.zone),
        region=label_value(machine.region),
    )


def read(node: Any, paths: str) -> str:
    """The first value that stands at one of these paths, as one word; "" for none. Of a URL its
    last part, of an object its ID or name."""
    for path in paths.split("|"):
        value = node
        for part in path.split(".") if path else ():
            value = value.get(part) if isinstance(value, Mapping) else getattr(value, part, None)
        if path and value is not None and not callable(value):
            found = _text(value)
            if found:
                return found
    return ""


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        value = value.get("slug") or value.get("code") or value.get("id") or value.get("name") or ""
    elif not isinstance(value, str | int):
        value = getattr(value, "id", None) or getattr(value, "name", None) or ""
    text = str(value).strip()
    return text.rstrip("/").rpartition("/")[2] if "://" in text or text.startswith("/") else text


def _state(node: Any, profile: Profile) -> InstanceState | None:
    state = str(node.state)
    if state == str(NodeState.TERMINATED):
        return profile.terminated
    if state in _OFF:
        return InstanceState.SHUTDOWN
    return InstanceState.RUNNING  # it is there; also while it is starting, failed, or in an unknown state


def _ips(addresses: Iterable[Any]) -> tuple[str, ...]:
    """Those that are IP addresses, each once: drivers mix in None, names, and doubles."""
    return tuple(dict.fromkeys(str(one) for one in addresses or () if parse_ip(str(one)) is not None))


def _addresses(node: str, machine: Machine) -> Iterable[V1NodeAddress]:
    for address in machine.private:
        yield V1NodeAddress(type=NODE_ADDRESS_INTERNAL_IP, address=address)
    for address in machine.public:
        if address not in machine.private:
            yield V1NodeAddress(type=NODE_ADDRESS_EXTERNAL_IP, address=address)
    if machine.internal_dns:
        yield V1NodeAddress(type=NODE_ADDRESS_INTERNAL_DNS, address=machine.internal_dns)
    yield V1NodeAddress(type=NODE_ADDRESS_HOSTNAME, address=machine.internal_dns or node)
