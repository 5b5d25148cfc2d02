"""What a node gets from its instance. Pure: the server's answer in, `InstanceMetadata` out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from attrs import frozen
from kubernetes.client.models.v1_node_address import V1NodeAddress

from cloudprovider import CloudProviderError, InstanceMetadata, InstanceState
from cloudprovider.helpers import format_provider_id, label_value, parse_provider_id
from incus_provider.resources import Instance

PROVIDER = "incus"
"""Before "://" in provider IDs: must never change."""

FAMILIES = {"ipv4": "inet", "ipv6": "inet6"}
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UNITS = {"": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12} | {
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip
_SIZE = re.compile(r"([0-9]+) *([A-Za-z]*)")


@frozen
class Nic:
    """One of the instance's network devices."""

    device: str
    network: str
    """The name of the managed network or of the bridge; "" for what has neither."""
    hwaddr: str
    configured: str
    """The IPv4 address that it was given in the configuration; "" where DHCP chooses."""


def provider_id(project: str, instance: Instance) -> str:
    """The instance's provider ID. Raises `CloudProviderError` where it has no UUID."""
    if not _UUID.fullmatch(instance.uuid):
        raise CloudProviderError(
            f"instance {instance.name} has no volatile.uuid, which its provider ID is made of: start it once with "
            "this server"
        )
    return format_provider_id(PROVIDER, f"{project}/{instance.uuid}")


def uuid_of(provider_id: str, project: str) -> str:
    """The UUID in a provider ID. Raises `CloudProviderError` for what this provider never gives in
    this project: that is unknown to us, which is not "gone"."""
    try:
        parsed = parse_provider_id(provider_id)
    except ValueError as exc:
        raise CloudProviderError(f"cannot read the provider ID: {exc}") from exc
    found, _, uuid = parsed.instance.rpartition("/")
    if parsed.provider != PROVIDER or found != project or not _UUID.fullmatch(uuid):
        raise CloudProviderError(f"{provider_id} is no instance of the project {project}: {PROVIDER}://{project}/UUID")
    return uuid


def state(instance: Instance) -> InstanceState:
    """Only "Stopped" is switched off. A frozen instance wakes with its volumes in use, and "Error"
    is also what a cluster says while it cannot reach the member."""
    return InstanceState.SHUTDOWN if instance.status == "Stopped" else InstanceState.RUNNING


def nics(instance: Instance, network: str = "") -> list[Nic]:
    """The network devices by name, those of `network` first."""
    config = {**instance.expanded_config, **instance.config}
    found = [
        Nic(
            device=name,
            network=device.get("network") or device.get("parent", ""),
            hwaddr=device.get("hwaddr") or config.get(f"volatile.{name}.hwaddr", ""),
            configured=device.get("ipv4.address", ""),
        )
        for name, device in sorted(instance.expanded_devices.items())
        if device.get("type") == "nic"
    ]
    return sorted(found, key=lambda nic: nic.network != network)


def ips(instance: Instance, nic: Nic, family: str) -> Iterator[str]:
    """The addresses of a network device, the first one first. Interfaces are told apart by their
    hardware address: a virtual machine names its own, and pods' bridges are listed too."""
    network = (instance.state.network if instance.state is not None else None) or {}
    for interface in network.values():
        if nic.hwaddr and interface.hwaddr.lower() == nic.hwaddr.lower():
            for one in interface.addresses:
                if one.family == FAMILIES[family] and one.scope == "global":
                    yield one.address
    if family == "ipv4" and nic.configured not in ("", "none"):
        yield nic.configured


def target_address(instance: Instance, network: str) -> str:
    """The IPv4 address in a network; "" where it has none (yet)."""
    for nic in nics(instance, network):
        if nic.network == network:
            return next(ips(instance, nic, "ipv4"), "")
    return ""


def metadata(node: str, project: str, instance: Instance, region: str, network: str) -> InstanceMetadata:
    """What the instance's node gets; its name is its Hostname. Raises `CloudProviderError` where
    the instance has no UUID."""
    found = [
        V1NodeAddress(type="InternalIP", address=address)
        for nic in nics(instance, network)
        for family in FAMILIES
        if (address := next(ips(instance, nic, family), ""))  # further ones may be virtual, as of a VIP
    ]
    # Without an IP address it says nothing of addresses, so that a stopped instance's node keeps
    # those that it has.
    hostname = [V1NodeAddress(type="Hostname", address=node)] if found else []
    return InstanceMetadata(
        provider_id=provider_id(project, instance),
        instance_type=instance_type(instance),
        node_addresses=[*found, *hostname],
        zone="" if instance.location == "none" else label_value(instance.location),
        region=region,
    )


def instance_type(instance: Instance) -> str:
    """The limits in the server's own words for instance types: "c2-m4" for two CPUs and 4 GiB. ""
    where one has no limit."""
    cpus = _cpus(instance.expanded_config.get("limits.cpu", ""))
    memory = _bytes(instance.expanded_config.get("limits.memory", ""))
    return f"c{cpus}-m{memory / 2**30:.4g}" if cpus and memory else ""


def _cpus(limit: str) -> int:
    """How many, also where they are named: "0-3,7"."""
    if limit.isdecimal():
        return int(limit)
    count = 0
    for part in limit.split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            return 0
        count += int(last or first) - int(first) + 1
    return count


def _bytes(limit: str) -> int:
    """0 also for a share of the server's memory, in percent."""
    found = _SIZE.fullmatch(limit)
    return int(found[1]) * _UNITS.get(found[2], 0) if found is not None else 0
