"""How a load balancer asks an instance whether it takes traffic. Pure.

Follows: the Go provider, except that a port of UDP alone is checked by kube-proxy's own port:
nothing answers TCP on the node port there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import frozen

if TYPE_CHECKING:
    from mypy_boto3_elbv2.literals import ProtocolEnumType

TRAFFIC_PORT: Final = "traffic-port"
KUBE_PROXY_PORT: Final = 10256
KUBE_PROXY_PATH: Final = "/healthz"


@frozen
class HealthCheck:
    """A target group's health check. Times are in seconds."""

    protocol: ProtocolEnumType = "TCP"
    port: str = TRAFFIC_PORT
    path: str = ""
    interval: int = 30
    timeout: int = 10
    healthy: int = 3
    unhealthy: int = 3


def health_check(local: tuple[str, int] | None, target: str) -> HealthCheck:
    """Of a target group of this protocol. `local`: path and port that a Service with local traffic
    has on each node."""
    if local is not None:  # externalTrafficPolicy Local: each node tells whether it has endpoints
        return HealthCheck("HTTP", str(local[1]), local[0], interval=10, healthy=2, unhealthy=2)
    if target == "UDP":
        return HealthCheck("HTTP", str(KUBE_PROXY_PORT), KUBE_PROXY_PATH)
    return HealthCheck()
