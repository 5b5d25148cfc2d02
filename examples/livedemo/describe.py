"""One node and its Events, as `kubectl describe node` shows them. Pure: objects in, lines of text out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from cloudprovider.wellknown import (
    LABEL_INSTANCE_TYPE,
    LABEL_INSTANCE_TYPE_BETA,
    LABEL_REGION_BETA,
    LABEL_TOPOLOGY_REGION,
    LABEL_TOPOLOGY_ZONE,
    LABEL_ZONE_BETA,
)

_CLOUDS_LABELS = {
    LABEL_INSTANCE_TYPE,
    LABEL_INSTANCE_TYPE_BETA,
    LABEL_REGION_BETA,
    LABEL_TOPOLOGY_REGION,
    LABEL_TOPOLOGY_ZONE,
    LABEL_ZONE_BETA,
}

JSON = dict[str, Any]


def describe(node: JSON, events: Sequence[JSON], now: datetime) -> list[str]:
    """The lines. Labels that the cloud gave are marked with a star."""
    meta, spec, status = node["metadata"], node.get("spec", {}), node.get("status", {})
    lines = [f"Name:         {meta['name']}"]
    labels = sorted((meta.get("labels") or {}).items())
    lines += _block("Labels:", [f"{key}={value}{' *' if key in _CLOUDS_LABELS else ''}" for key, value in labels])
    taints = [f"{taint['key']}:{taint['effect']} (not the cloud's: kept)" for taint in spec.get("taints") or ()]
    lines += _block("Taints:", taints or ["<none>"])
    lines.append(f"ProviderID:   {spec.get('providerID', '<none>')} *")
    lines.append("Addresses:")
    for address in status.get("addresses") or ():
        star = "" if address["type"] == "Hostname" else " *"
        lines.append(f"  {address['type'] + ':':12}{address['address']}{star}")
    lines.append("Events:")
    lines.append(f"  {'Type':8} {'Reason':24} {'Age':5} {'From':24} Message")
    for event in sorted(events, key=lambda one: str(one.get("firstTimestamp"))):
        lines.append("  " + " ".join(_event(event, now)))
    return lines


def _block(title: str, values: Sequence[str]) -> Iterator[str]:
    for number, value in enumerate(values):
        yield f"{title if number == 0 else '':14}{value}"


def _event(event: JSON, now: datetime) -> tuple[str, ...]:
    stamp = event.get("lastTimestamp") or event.get("firstTimestamp")
    age = "?"
    if isinstance(stamp, str):
        age = f"{max(0, round((now - datetime.fromisoformat(stamp).astimezone(UTC)).total_seconds()))}s"
    if event.get("count", 1) > 1:
        age += f" (x{event['count']})"
    source = (event.get("source") or {}).get("component") or event.get("reportingComponent") or ""
    return f"{event['type']:8}", f"{event['reason']:24}", f"{age:5}", f"{source:24}", str(event["message"])
