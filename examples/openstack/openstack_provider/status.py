"""What a Service's status says of its load balancer. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kubernetes.client.models.v1_load_balancer_ingress import V1LoadBalancerIngress
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_service import V1Service

from openstack_provider.annotations import lenient
from openstack_provider.config import LoadBalancerConfig
from openstack_provider.rest import JSON


def addresses(balancer: JSON, floating: str) -> list[str]:
    """Its addresses for clients: the floating IP, where it has one, in place of its own."""
    more = [one["ip_address"] for one in balancer.get("additional_vips") or ()]
    return [floating or balancer["vip_address"], *more]


def status(service: V1Service, config: LoadBalancerConfig, shown: Sequence[str]) -> V1LoadBalancerStatus:
    """The status with these addresses."""
    asked = lenient(service, config)
    if asked.hostname:
        return V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress(hostname=asked.hostname)])
    if asked.proxy and config.enable_ingress_hostname:
        names = [f"{one.replace(':', '-')}.{config.ingress_hostname_suffix}" for one in shown]
        return V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress(hostname=name) for name in names])
    # As VIP, kube-proxy leads pods past the load balancer, without the PROXY protocol's header.
    mode = "Proxy" if asked.proxy else "VIP"
    return V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress(ip=one, ip_mode=mode) for one in shown])
