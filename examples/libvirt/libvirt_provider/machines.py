"""What libvirt knows of virtual machines, and what their nodes get of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from xml.etree import ElementTree

import libvirt
from attrs import frozen
from kubernetes.client.models.v1_node_address import V1NodeAddress

from cloudprovider import CloudProviderError, InstanceMetadata, InstanceState
from cloudprovider.helpers import format_provider_id, parse_ip
from libvirt_provider.shapes import Connection, Domain

PROVIDER = "libvirt"
"""Before "://" in provider IDs: must never change."""

SOURCES = {
    "lease": libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_LEASE,
    "agent": libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_AGENT,
    "arp": libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_ARP,
}
OFF = frozenset({libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_CRASHED})
"""Switched off. One that is paused or asleep goes on with its volumes in use."""

_UNKNOWN_ADDRESS = frozenset(
    {
        libvirt.VIR_ERR_NO_SUPPORT, libvirt.VIR_ERR_OPERATION_INVALID, libvirt.VIR_ERR_ARGUMENT_UNSUPPORTED,
        libvirt.VIR_ERR_AGENT_UNRESPONSIVE, libvirt.VIR_ERR_CONFIG_UNSUPPORTED, libvirt.VIR_ERR_OPERATION_UNSUPPORTED,
        libvirt.VIR_ERR_OPERATION_TIMEOUT,
    }
)  # fmt: skip
"""This source knows no addresses of this machine (now); another one may."""
_KIB = {"b": 1 / 1024, "bytes": 1 / 1024, "KiB": 1, "k": 1, "MiB": 2**10, "M": 2**10, "GiB": 2**20, "G": 2**20}


@frozen
class Machine:
    """A virtual machine in a listing."""

    uuid: str
    name: str
    state: InstanceState


@frozen
class Details:
    """What its node gets."""

    machine: Machine
    instance_type: str
    addresses: tuple[str, ...]


def machines(connection: Connection) -> list[Machine]:
    """Every virtual machine of a host, in two requests. Raises libvirtError, and
    `CloudProviderError` where one was made in between."""
    domains = connection.listAllDomains(0)
    stats = connection.getAllDomainStats(libvirt.VIR_DOMAIN_STATS_STATE, 0)
    states = {domain.UUIDString(): found.get("state.state") for domain, found in stats}
    return [
        Machine(uuid, domain.name(), _state(domain.name(), states.get(uuid)))
        for domain in domains
        for uuid in (domain.UUIDString(),)
    ]


def details(
    connection: Connection, asked: Set[str], sources: Sequence[str]
) -> tuple[list[Machine], Mapping[str, Details | CloudProviderError]]:
    """Every virtual machine, and what the nodes of those get whose UUID or name is asked for, by
    UUID. Raises as `machines` does."""
    found = machines(connection)
    wanted = {one.uuid: one for one in found if asked & {one.uuid, one.name}}
    answers: dict[str, Details | CloudProviderError] = {}
    for domain in connection.listAllDomains(0) if wanted else ():
        if (machine := wanted.get(domain.UUIDString())) is not None:
            try:
                answers[machine.uuid] = _details(domain, machine, sources)
            except libvirt.libvirtError as exc:
                answers[machine.uuid] = CloudProviderError(f"virtual machine {machine.name}: {exc}")
    return found, answers


def metadata(node: str, found: Details, zone: str, region: str) -> InstanceMetadata:
    """What the node of a virtual machine gets; its name is its Hostname."""
    addresses = [V1NodeAddress(type="InternalIP", address=address) for address in found.addresses]
    # Without an IP address it says nothing of addresses, so that the node of a machine that is
    # switched off keeps those that it has.
    hostname = [V1NodeAddress(type="Hostname", address=node)] if addresses else []
    return InstanceMetadata(
        provider_id=provider_id(found.machine.uuid),
        instance_type=found.instance_type,
        node_addresses=[*addresses, *hostname],
        zone=zone,
        region=region,
    )


def provider_id(uuid: str) -> str:
    """Without the host: a machine keeps its UUID when it is migrated."""
    return format_provider_id(PROVIDER, f"/{uuid}")


def _state(name: str, state: object) -> InstanceState:
    if not isinstance(state, int):
        raise CloudProviderError(f"libvirt listed the virtual machine {name}, and not its state")
    return InstanceState.SHUTDOWN if state in OFF else InstanceState.RUNNING


def _details(domain: Domain, machine: Machine, sources: Sequence[str]) -> Details:
    try:
        document = ElementTree.fromstring(domain.XMLDesc(0))
    except ElementTree.ParseError as exc:
        raise CloudProviderError(f"virtual machine {machine.name}: libvirt's XML cannot be read: {exc}") from exc
    macs = [mac.get("address", "").lower() for mac in document.findall("./devices/interface/mac")]
    addresses: tuple[str, ...] = ()
    for source in sources if machine.state is InstanceState.RUNNING else ():
        addresses = addresses or _addresses(domain, SOURCES[source], macs)
    return Details(machine, instance_type(document), addresses)


def _addresses(domain: Domain, source: int, macs: Sequence[str]) -> tuple[str, ...]:
    """The first address of each family of each network interface, in the order of the machine's
    XML. Interfaces are told apart by their hardware address: the agent names pods' bridges, too."""
    try:
        interfaces = domain.interfaceAddresses(source, 0)
    except libvirt.libvirtError as exc:
        if exc.get_error_code() in _UNKNOWN_ADDRESS:
            return ()
        raise
    found = []
    for mac in macs:
        known = [
            one
            for each in interfaces.values()
            if (each.get("hwaddr") or "").lower() == mac
            for one in each["addrs"] or ()
        ]
        for version in (4, 6):
            fit = (ip for one in known if (ip := parse_ip(one["addr"])) is not None and not ip.is_link_local)
            found += [str(ip) for ip in fit if ip.version == version][:1]
    return tuple(dict.fromkeys(found))


def instance_type(document: ElementTree.Element) -> str:
    """ "c2-m4" for two CPUs and 4 GiB; "" where the XML does not say."""
    cpus, memory = document.findtext("vcpu", "").strip(), document.find("memory")
    size = (memory.text or "").strip() if memory is not None else ""
    factor = _KIB.get(memory.get("unit", "KiB")) if memory is not None else None
    if not cpus.isdecimal() or not size.isdecimal() or factor is None:
        return ""
    return f"c{cpus}-m{int(size) * factor / 2**20:.4g}"
