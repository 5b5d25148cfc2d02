"""service-lb-controller in the manager: its permissions and its entry. Flags: `options.py`.

A provider without load balancers turns the controller off, as in Go (startServiceController in
k8s.io/cloud-provider's app/core.go).
"""

from __future__ import annotations

from attrs import evolve

from controllers.registration.entry import (
    Context,
    Controller,
    ControllerEntry,
    Rule,
    built,
    event_rule,
    informers,
)
from controllers.service.options import ServiceOptions

_LACKING = "offers no load balancers, so Services of type LoadBalancer get none from it"


def _stand_in(context: Context, enabled: bool) -> Controller:
    from controllers.service.off import ServicesOff

    why = f"provider {context.cloud.provider_name} {_LACKING}" if enabled else "--controllers leaves it out"
    options = evolve(context.options.of(ServiceOptions), drain_timeout=context.drain)
    return ServicesOff(context.clients, options, context.metrics, context.clock, why=why)


ENTRY = ControllerEntry(
    name="service-lb-controller",
    aliases=("service",),
    client="service-controller",
    construct=built("controllers.service.controller:ServiceController", ServiceOptions),
    needs=lambda cloud: cloud.load_balancers is not None,
    lacking=_LACKING,
    stand_in=_stand_in,
    module="controllers.service.controller",
    informers=informers("NODES", "SERVICES"),
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
