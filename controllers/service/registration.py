"""service-lb-controller in the manager: when it runs, its permissions and its entry. Flags:
`options.py`.

A provider without load balancers turns the controller off, as in Go (startServiceController in
k8s.io/cloud-provider's app/core.go).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from controllers.registration.common import event_rule, warn_off
from controllers.registration.entry import Context, Controller, ControllerEntry, Rule
from controllers.service.options import ServiceOptions

if TYPE_CHECKING:
    from controllers.registration.plan import PlannedCalls, Planning
    from controllers.runtime.cache import Resource

log = logging.getLogger(__name__)


def _construct(context: Context) -> Controller | None:
    from controllers.service.controller import ServiceController

    if context.cloud.load_balancers is None:
        lacking = "offers no load balancers, so Services of type LoadBalancer get none from it"
        warn_off(log, ENTRY.name, context, lacking)
        return None
    return context.build(ServiceController, ServiceOptions)


def _planned_calls(planning: Planning) -> PlannedCalls:
    from controllers.service.planned import planned_calls

    return planned_calls(planning)


def _informers() -> Iterable[Resource[Any]]:
    from controllers.runtime.cache import NODES, SERVICES

    return (NODES, SERVICES)


ENTRY = ControllerEntry(
    name="service-lb-controller",
    aliases=("service",),
    client="service-controller",
    construct=_construct,
    planned_calls=_planned_calls,
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
        event_rule("no Event says what happens to load balancers", namespace=""),
    ),
)
