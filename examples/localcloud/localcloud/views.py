"""What the API shows of a machine, a route and a load balancer. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from localcloud.cloud import MachineStatus
from localcloud.health import TargetHealth
from localcloud.model import LoadBalancer, Route

__all__ = ["balancer", "machine", "route"]

Document = dict[str, Any]


def machine(status: MachineStatus) -> Document:
    """A machine; its userData is not shown, because it may hold secrets."""
    one = status.machine
    addresses = [("InternalIP", one.address), ("Hostname", one.name)]
    if one.external_address:
        addresses.append(("ExternalIP", one.external_address))
    return {
        "id": one.id,
        "name": one.name,
        "state": "running" if status.running else "stopped",
        "type": one.type,
        "region": one.region,
        "zone": one.zone,
        "addresses": [{"type": kind, "address": address} for kind, address in addresses],
        "labels": dict(one.labels),
        "taints": list(one.taints),
        "annotations": dict(one.annotations),
        "createdAt": one.created_at,
    }


def route(one: Route, gateway: str | None) -> Document:
    """A route; its gateway is null where it is a blackhole."""
    return {
        "name": one.name,
        "owner": one.owner,
        "destination": one.destination,
        "machine": one.machine,
        "gateway": gateway,
    }


def balancer(one: LoadBalancer, health: Sequence[TargetHealth]) -> Document:
    """A load balancer, with what is known of its targets."""
    return {
        "name": one.name,
        "owner": one.owner,
        "labels": dict(one.labels),
        "address": one.address,
        "mode": one.mode,
        "ports": [{"protocol": p.protocol, "port": p.port, "targetPort": p.target_port} for p in one.ports],
        "targets": list(one.targets),
        "weights": dict(one.weights),
        "draining": list(one.draining),
        "sourceRanges": list(one.source_ranges),
        "affinity": one.affinity,
        "affinitySeconds": one.affinity_seconds,
        "health": {"port": one.health.port, "path": one.health.path} if one.health else None,
        "status": {"targets": [_target(one) for one in health]},
    }


def _target(health: TargetHealth) -> Document:
    since = datetime.fromtimestamp(health.since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if health.since else None
    return {"machine": health.machine, "healthy": health.healthy, "since": since}
