"""Services that want a load balancer, and what is seen of them."""

from __future__ import annotations

from typing import Any, Final

SERVICES: Final = "/api/v1/namespaces/default/services"
FINALIZER: Final = "service.kubernetes.io/load-balancer-cleanup"
NOTE: Final = "kubernetes-cloud-provider/applied-load-balancer"


def lb_service(name: str, port: int = 80, **spec: Any) -> dict[str, Any]:
    """A Service of type LoadBalancer."""
    wanted = {"type": "LoadBalancer", "ports": [{"port": port, "protocol": "TCP"}], "selector": {"app": name}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": wanted | spec}


def ingress(service: dict[str, Any]) -> list[dict[str, Any]]:
    """The points of ingress in a Service's status."""
    return list(service["status"].get("loadBalancer", {}).get("ingress", []))


def addresses(service: dict[str, Any]) -> list[str]:
    """The IP addresses among them."""
    return [point["ip"] for point in ingress(service)]
