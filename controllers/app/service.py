"""service-lb-controller in the manager: when it runs, its rights and its entry. Its flags:
`controllers/service/options.py`.

Stage: before the first one, no I/O. A provider without load balancers turns the controller off, as in Go
(startServiceController in k8s.io/cloud-provider's app/core.go).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from controllers.app.entry import Context, Controller, ControllerEntry, Rule
from controllers.service.options import ServiceOptions

if TYPE_CHECKING:
    from controllers.runtime.cache import Resource

log = logging.getLogger(__name__)


def _construct(context: Context) -> Controller | None:
    from controllers.service import ServiceController

    if context.cloud.load_balancers is None:
        log.warning(
            "service-lb-controller is off: provider %s offers no load balancers, so Services of type LoadBalancer get "
            "none from it",
            context.cloud.provider_name,
        )
        return None
    return context.build(ServiceController, ServiceOptions)


def _informers() -> Iterable[Resource[Any]]:
    from controllers.runtime.cache import NODES, SERVICES

    return (NODES, SERVICES)


ENTRY = ControllerEntry(
    name="service-lb-controller",
    aliases=("service",),
    client="service-controller",
    construct=_construct,
    module="controllers.service.controller",
    informers=_informers,
    options=(ServiceOptions,),
    rules=(
        Rule(
            resource="services",
            verbs=("list", "watch", "patch"),
            consequence="no load balancer is built or deleted",
        ),
        Rule(
            resource="services/status",
            verbs=("patch",),
            consequence="Services never show their load balancer's address",
        ),
        Rule(resource="nodes", verbs=("list", "watch"), consequence="load balancers have no nodes to send traffic to"),
        Rule(
            resource="events",
            verbs=("create", "patch"),
            consequence="no Event says what happens to load balancers",
        ),
    ),
)
