"""What a kubelet is started with: from a `NodeInfo` to flags, a configuration file, JSON or an
environment file. Pure.

Follows: the kubelet of Kubernetes 1.36. Of what we know, its KubeletConfiguration has the provider
ID alone; name, address and labels of a node are flags.
"""

from __future__ import annotations

import json
import shlex
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from cloudprovider.helpers.labels import kubelet_may_set
from cloudprovider.ips import IPAddress, parse_ip
from cloudprovider.wellknown import (
    LABEL_INSTANCE_TYPE,
    LABEL_TOPOLOGY_REGION,
    LABEL_TOPOLOGY_ZONE,
    NODE_ADDRESS_INTERNAL_IP,
)

if TYPE_CHECKING:
    from cloudprovider.commands.nodeinfo import NodeInfo

_SPECIAL = str.maketrans({character: f"\\{character}" for character in '"\\`$'})


def node_ips(info: NodeInfo, here: Callable[[str], bool]) -> tuple[str, ...]:
    """For `--node-ip`: the first InternalIP of each family that a kubelet accepts, in the cloud's
    order.

    A kubelet ends where an address is not one of its machine's interfaces; `here` tells whether it
    is.
    """
    found: dict[int, str] = {}
    for address in info.metadata.node_addresses:
        ip = parse_ip(address.address) if address.type == NODE_ADDRESS_INTERNAL_IP else None
        # A kubelet does not start with an address that is not its machine's.
        if ip is not None and ip.version not in found and _acceptable(ip) and here(str(ip)):
            found[ip.version] = str(ip)
    return tuple(found.values())


def is_here(address: str) -> bool:
    """Whether this machine has the address, tried by binding a socket to it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as tried:
            # Asks the kernel alone: no packet is sent, and no list of interfaces has to be parsed.
            tried.bind((address, 0))
    except OSError:
        return False
    return True


def node_labels(info: NodeInfo) -> dict[str, str]:
    """For `--node-labels`: instance type, zone, region and the provider's own labels, those that a
    kubelet may set."""
    metadata = info.metadata
    labels = {
        LABEL_INSTANCE_TYPE: metadata.instance_type,
        LABEL_TOPOLOGY_REGION: metadata.region,
        LABEL_TOPOLOGY_ZONE: metadata.zone,
    }
    labels = {key: value for key, value in labels.items() if value}
    return labels | {key: value for key, value in metadata.additional_labels.items() if kubelet_may_set(key)}


def kubelet_flags(info: NodeInfo, ips: Sequence[str]) -> tuple[str, ...]:
    """The flags, each as one word; those without a value are left out."""
    return tuple(f"--{name}={value}" for name, value in _values(info, ips).items() if value)


def rendered(output: str, info: NodeInfo, ips: Sequence[str]) -> str:
    """The text of one of `FORMATS`, with a line's end at its end."""
    return FORMATS[output](info, ips)


def _flags(info: NodeInfo, ips: Sequence[str]) -> str:
    return shlex.join(kubelet_flags(info, ips)) + "\n"


def _configuration(info: NodeInfo, ips: Sequence[str]) -> str:
    others = [flag for flag in kubelet_flags(info, ips) if not flag.startswith("--provider-id=")]
    lines = [
        "# KubeletConfiguration has no fields for these; give them to the kubelet as flags:",
        f"#   {shlex.join(others)}",
        "apiVersion: kubelet.config.k8s.io/v1beta1",
        "kind: KubeletConfiguration",
    ]
    # An empty one would be a value; left out, the manager sets it.
    if info.metadata.provider_id:
        lines.append(f"providerID: {json.dumps(info.metadata.provider_id)}")
    return "\n".join([*lines, ""])


def _json(info: NodeInfo, ips: Sequence[str]) -> str:
    metadata = info.metadata
    shown: dict[str, Any] = {
        "provider": info.provider,
        "source": info.source,
        "nodeName": info.node_name,
        "providerID": metadata.provider_id,
        "instanceType": metadata.instance_type,
        "zone": metadata.zone,
        "region": metadata.region,
        "addresses": [{"type": one.type, "address": one.address} for one in metadata.node_addresses],
        "nodeIPs": list(ips),
        "labels": node_labels(info),
        "kubeletFlags": list(kubelet_flags(info, ips)),
    }
    return json.dumps(shown, indent=2) + "\n"


def _environment(info: NodeInfo, ips: Sequence[str]) -> str:
    values = _values(info, ips)
    variables = {
        "KUBELET_EXTRA_ARGS": shlex.join(kubelet_flags(info, ips)),
        "NODE_NAME": values["hostname-override"],
        "NODE_PROVIDER_ID": values["provider-id"],
        "NODE_IP": values["node-ip"],
        "NODE_LABELS": values["node-labels"],
        "NODE_INSTANCE_TYPE": info.metadata.instance_type,
        "NODE_ZONE": info.metadata.zone,
        "NODE_REGION": info.metadata.region,
    }
    return "".join(f'{name}="{value.translate(_SPECIAL)}"\n' for name, value in variables.items())


FORMATS: Final[Mapping[str, Callable[[NodeInfo, Sequence[str]], str]]] = {
    "flags": _flags,
    "kubelet-config": _configuration,
    "json": _json,
    "env": _environment,
}
"""By the name that --output takes: one line of flags for a shell; a KubeletConfiguration; JSON; a
file for systemd's EnvironmentFile."""


def _values(info: NodeInfo, ips: Sequence[str]) -> dict[str, str]:
    """The kubelet's flags with their values; "" for those without."""
    return {
        "hostname-override": info.node_name,
        "provider-id": info.metadata.provider_id,
        "node-ip": ",".join(ips),
        "node-labels": ",".join(f"{key}={value}" for key, value in node_labels(info).items()),
    }


def _acceptable(ip: IPAddress) -> bool:
    return not (ip.is_loopback or ip.is_multicast or ip.is_link_local or ip.is_unspecified)
