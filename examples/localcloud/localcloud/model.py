"""What the cloud has: machines, routes and load balancers, as values. Pure.

Addresses are text ("10.90.0.10"), as in the API; whoever makes a value has checked it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from attrs import field, frozen

__all__ = ["Affinity", "HealthCheck", "LoadBalancer", "Machine", "MachineState", "Mode", "Port", "Protocol", "Route"]

MachineState = Literal["running", "stopped"]
Protocol = Literal["TCP", "UDP"]
Mode = Literal["nat", "proxy", "direct"]
"""nat: packets go to a target's address and target port. proxy: HAProxy connects. direct: packets
go to a target as they are, to the balancer's own address and port, which the target must know."""
Affinity = Literal["none", "clientIP"]


@frozen(kw_only=True)
class Machine:
    """A machine, whether it runs or not."""

    id: str
    """``m`` and a number; never used again."""
    name: str
    """Its host name too."""
    type: str
    region: str
    zone: str
    address: str
    """Its InternalIP. It may change at a reboot."""
    state: MachineState = "running"
    """What its owner wants: a machine that ended by itself is still "running" here."""
    external_address: str | None = None
    labels: Mapping[str, str] = field(factory=dict[str, str])
    taints: tuple[str, ...] = ()
    """KEY=VALUE:EFFECT or KEY:EFFECT. The cloud keeps them, and does nothing with them."""
    annotations: Mapping[str, str] = field(factory=dict[str, str])
    """Text for whoever asks about the machine; the cloud does nothing with it."""
    user_data: str = ""
    """A script that the machine runs at each boot."""
    created_at: str = ""
    """RFC 3339."""


@frozen(kw_only=True)
class Route:
    """Packets for `destination` go to a machine; to nowhere while it is stopped."""

    name: str
    destination: str
    """A network: 10.91.3.0/24."""
    machine: str
    """Its ID."""
    owner: str = ""
    """Who made it; nobody else can change it."""


@frozen(kw_only=True)
class Port:
    """One port of a load balancer."""

    protocol: Protocol
    port: int
    target_port: int


@frozen(kw_only=True)
class HealthCheck:
    """GET http://MACHINE:port/path; 200 is healthy, all else is not."""

    port: int
    path: str = "/healthz"


@frozen(kw_only=True)
class LoadBalancer:
    """A load balancer, as its owner asked for it."""

    name: str
    owner: str
    address: str
    labels: Mapping[str, str] = field(factory=dict[str, str])
    mode: Mode = "nat"
    ports: tuple[Port, ...] = ()
    targets: tuple[str, ...] = ()
    """IDs of machines. Open TCP connections of one that is removed go on."""
    weights: Mapping[str, int] = field(factory=dict[str, int])
    """By machine's ID; 1 where absent."""
    draining: tuple[str, ...] = ()
    """Targets that get no new connections, though healthy."""
    source_ranges: tuple[str, ...] = ()
    """Networks that may connect; empty: all."""
    affinity: Affinity = "none"
    affinity_seconds: int = 10800
    """How long after its last new connection a client comes to the same target."""
    health: HealthCheck | None = None
    """None: a machine that runs is healthy."""
