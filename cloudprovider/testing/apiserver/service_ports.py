"""Validation of a service's ports. Pure; called by `service_rules`.

Follows validateServicePort in pkg/apis/core/validation/validation.go of k8s.io/kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from cloudprovider.testing.apiserver.errors import JSON, Cause, duplicate, invalid_value, not_supported, required
from cloudprovider.testing.apiserver.names import dns_label, qualified_name

_PORT_RANGE: Final = "must be between 1 and 65535, inclusive"


def port_rules(port: JSON, path: str, needs_name: bool, names: set[str]) -> list[Cause]:
    """What is wrong with one port; `names` collects the names seen so far."""
    causes: list[Cause] = []
    name, number, protocol, target = (
        port.get("name", ""),
        port["port"],
        port.get("protocol", ""),
        port.get("targetPort"),
    )
    if needs_name and not name:
        causes.append(required(f"{path}.name"))
    elif name:
        causes += [invalid_value(f"{path}.name", name, why) for why in dns_label(name)]
        if name in names:
            causes.append(duplicate(f"{path}.name", name))
        names.add(name)
    if not 1 <= number <= 65535:
        causes.append(invalid_value(f"{path}.port", number, _PORT_RANGE))
    if protocol not in ("SCTP", "TCP", "UDP"):
        causes.append(not_supported(f"{path}.protocol", protocol, ["SCTP", "TCP", "UDP"]))
    if isinstance(target, str):
        causes += [invalid_value(f"{path}.targetPort", target, why) for why in _port_name(target)]
    elif not 1 <= (target or 0) <= 65535:
        causes.append(invalid_value(f"{path}.targetPort", target, _PORT_RANGE))
    protocol_name = port.get("appProtocol")
    if protocol_name is not None:
        causes += [invalid_value(f"{path}.appProtocol", protocol_name, why) for why in qualified_name(protocol_name)]
    return causes


def _port_name(name: str) -> list[str]:
    found = []
    if len(name) > 15:
        found.append("must be no more than 15 bytes")
    if not re.fullmatch(r"[-a-z0-9]+", name):
        found.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search(r"[a-z]", name):
        found.append("must contain at least one letter (a-z)")
    if "--" in name:
        found.append("must not contain consecutive hyphens")
    if name.startswith("-") or name.endswith("-"):
        found.append("must not begin or end with a hyphen")
    return found


def duplicate_ports(ports: Sequence[JSON]) -> list[Cause]:
    """Ports and node ports must be unique for each protocol."""
    causes: list[Cause] = []
    node_ports: set[tuple[Any, Any]] = set()
    for at, port in enumerate(ports):
        if port.get("nodePort"):
            pair = (port.get("protocol"), port["nodePort"])
            if pair in node_ports:
                causes.append(duplicate(f"spec.ports[{at}].nodePort", port["nodePort"]))
            node_ports.add(pair)
    numbers: set[tuple[Any, Any]] = set()
    for at, port in enumerate(ports):
        pair = (port.get("protocol"), port["port"])
        if pair in numbers:
            shown = (
                f'{{"Name":"","Protocol":"{pair[0]}","AppProtocol":null,"Port":{pair[1]},"TargetPort":0,"NodePort":0}}'
            )
            causes.append(Cause("FieldValueDuplicate", f"Duplicate value: {shown}", f"spec.ports[{at}]"))
        numbers.add(pair)
    return causes
