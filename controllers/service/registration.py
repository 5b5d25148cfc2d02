"""service-lb-controller in the manager: its flags, its permissions and its entry.

A provider without load balancers turns the controller off, as in Go (startServiceController in
k8s.io/cloud-provider's app/core.go).
"""

from __future__ import annotations

from typing import Final

from attrs import evolve, frozen

from controllers.options import (
    BOOL,
    CLASSES,
    DURATION,
    INT,
    between,
    cluster_name_option,
    drain_timeout_option,
    not_negative,
    option,
)
from controllers.registration.entry import (
    Context,
    Controller,
    ControllerEntry,
    Rule,
    built,
    event_rule,
    informers,
)

_SECTION: Final = "service-lb-controller"


def _class_problems(classes: tuple[str, ...]) -> str | None:
    if not classes:
        return 'must have a class; "" stands for Services without one'
    given = list(filter(None, classes))
    if not given:
        return None
    from cloudprovider.helpers import label_key_problems  # imports the client's models: not for --help

    # As the API server checks the field: a qualified name, which is what a label's key is.
    return "; ".join(problem for one in given for problem in label_key_problems(one)) or None


@frozen(kw_only=True)
class ServiceOptions:
    """How the controller works. Frozen; raises ValueError on values that make no sense."""

    cluster_name: str = cluster_name_option()
    classes: tuple[str, ...] = option(
        ("",),
        CLASSES,
        "load-balancer-classes",
        _SECTION,
        'Values of spec.loadBalancerClass that this manager serves; "" stands for Services without a class, as in '
        'acme.example/lb,"". Services of other classes are left alone, also if they were served before. Two managers '
        "in one cluster need different classes and different Leases (--leader-elect-resource-name).",
        check=_class_problems,
    )
    concurrent_service_syncs: int = option(
        64,
        INT,
        "concurrent-service-syncs",
        _SECTION,
        "Services handled in parallel; at most three quarters of them from one namespace (Go's default is 1). "
        "--cloud-api-concurrency limits the cloud calls of all controllers.",
        check=between(1, 1000),
        configz="ServiceController.ConcurrentServiceSyncs",
    )
    node_sync_window: float = option(
        1.0,
        DURATION,
        "load-balancer-node-window",
        _SECTION,
        "Load balancers get changes of nodes when no node has changed for this time, so that nodes that join together "
        "cost each load balancer one update.",
        check=not_negative,
    )
    node_sync_longest: float = option(
        5.0,
        DURATION,
        "load-balancer-node-window-limit",
        _SECTION,
        "Load balancers get changes of nodes after this time even if nodes keep changing. If an update of all load "
        "balancers takes longer than a third of it, the next one follows after three times as long, at most a minute.",
        check=not_negative,
    )
    drift_check_period: float = option(
        1800.0,
        DURATION,
        "load-balancer-drift-check-period",
        _SECTION,
        "How often each load balancer is read from the cloud. One that is gone or has another address is repaired. "
        "0: never, as in Go.",
        check=not_negative,
    )
    """After half of it to all of it, so that they spread; `ensure_period` alike."""
    ensure_period: float = option(
        43200.0,
        DURATION,
        "load-balancer-ensure-period",
        _SECTION,
        "How often each load balancer is ensured even if nothing seems wrong. This repairs what reading does not show. "
        "0: never, as in Go.",
        check=not_negative,
    )
    orphan_check_period: float = option(
        1800.0,
        DURATION,
        "load-balancer-orphan-check-period",
        _SECTION,
        "How often the manager searches for load balancers without a Service, if the provider can list them. They are "
        "reported, never deleted. 0: never.",
        check=not_negative,
    )
    ready_nodes_only: bool = option(
        False,
        BOOL,
        "load-balancer-ready-nodes-only",
        _SECTION,
        "Leave nodes that are not ready out of load balancers, unless no node is ready. Without this flag the health "
        "checks of the load balancers decide.",
    )
    conditions: bool = option(
        False,
        BOOL,
        "load-balancer-conditions",
        _SECTION,
        "Keep a condition LoadBalancerReady in the status of Services, with reason and message, so that "
        "kubectl wait --for=condition=LoadBalancerReady works. Without this flag such conditions are left as they are.",
    )
    drain_timeout: float = drain_timeout_option()


_LACKING = "offers no load balancers, so Services of type LoadBalancer get none from it"


def _stand_in(context: Context, enabled: bool) -> Controller:
    from controllers.service.changes import Classes
    from controllers.service.orphans import ServicesOff

    why = f"provider {context.cloud.provider_name} {_LACKING}" if enabled else "--controllers leaves it out"
    options = evolve(context.options.of(ServiceOptions), drain_timeout=context.drain)
    return ServicesOff(context.clients, options, Classes(options.classes), context.metrics, context.clock, why=why)


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
