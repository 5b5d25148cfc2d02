"""What a Service asks of its load balancer: predicates and readings, all pure (used in stages 3, 4 and 5).

Data comes from a `V1Service` in a cache or in a vendor's hands; the answers steer the service controller and providers.
Nothing is changed, and everything may be called from many threads.

Follows: k8s.io/cloud-provider service/helpers/helper.go and controllers/service/controller.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubernetes.client.models.v1_service import V1Service

MAX_DEFAULT_NAME = 32


def default_load_balancer_name(service: V1Service) -> str:
    """The name that load balancers have by default: "a" and the UID without dashes, 32 characters at most.

    Follows: DefaultLoadBalancerName in k8s.io/cloud-provider cloud.go. Raises ValueError when the Service has no UID:
    every such Service would get the same name.
    """
    uid = service.metadata.uid if service.metadata is not None else None
    if not uid:
        raise ValueError("a load balancer's default name needs the Service's metadata.uid, which is empty")
    return f"a{uid}".replace("-", "")[:MAX_DEFAULT_NAME]
