"""Questions to a provider that change nothing in its cloud, by contract: they show whether the cloud answers.

Each is about a node, a Service or a cluster that nobody has, so that the right answer is known: no, none, nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from attrs import frozen

from cloudprovider.errors import ImplementedElsewhere, InstanceNotFound, NotImplementedByProvider
from cloudprovider.instances import InstanceState
from cloudprovider.loadbalancer import OwnedLoadBalancers
from cloudprovider.problem import Problem

__all__ = ["NOT_ASKED", "Question", "questions_for"]

NODE = "cloudprovider-check-no-such-node"
CLUSTER = "cloudprovider-check"
NOT_ASKED = (
    "all that changes the cloud (load balancers, routes, SSH keys), and questions about volumes, zones and this machine"
)


@frozen
class Question:
    """One call, and how its answer reads."""

    call: str
    """For people."""
    ask: Callable[[], Any]
    shown: Callable[[Any], str | Problem]
    """What the answer says; a problem for one that cannot be right. Exceptions of `answers` come here too."""
    answers: tuple[type[Exception], ...] = (InstanceNotFound, NotImplementedByProvider, ImplementedElsewhere)


def questions_for(capabilities: Mapping[str, Any]) -> Iterator[Question]:
    """The questions for what a provider offers, by its accessors' names."""
    from kubernetes.client.models.v1_node import V1Node
    from kubernetes.client.models.v1_node_spec import V1NodeSpec
    from kubernetes.client.models.v1_object_meta import V1ObjectMeta

    node = V1Node(metadata=V1ObjectMeta(name=NODE, uid=str(uuid.uuid4()), labels={}), spec=V1NodeSpec())
    if (v2 := capabilities.get("instances_v2")) is not None:
        yield Question(f"instance_exists of node {NODE}", lambda: v2.instance_exists(node), _exists)
    if (batch := capabilities.get("instances_batch")) is not None:
        yield Question(f"instances_state of node {NODE}", lambda: batch.instances_state([node]), _states)
    if (older := capabilities.get("instances")) is not None:
        yield Question(f"instance_id of node {NODE}", lambda: older.instance_id(NODE), _id)
    if (balancer := capabilities.get("load_balancer")) is not None:
        service = _service()
        yield Question(
            "get_load_balancer of a Service that nobody has",
            lambda: balancer.get_load_balancer(CLUSTER, service),
            _balancer,
        )
        if isinstance(balancer, OwnedLoadBalancers):
            yield Question(
                f"owned_load_balancers of cluster {CLUSTER}", lambda: balancer.owned_load_balancers(CLUSTER), _count
            )
    if (routes := capabilities.get("routes")) is not None:
        yield Question(f"list_routes of cluster {CLUSTER}", lambda: routes.list_routes(CLUSTER), _count)
    if (clusters := capabilities.get("clusters")) is not None:
        yield Question("list_clusters", clusters.list_clusters, _count)


def _service() -> Any:
    from kubernetes.client.models.v1_object_meta import V1ObjectMeta
    from kubernetes.client.models.v1_service import V1Service
    from kubernetes.client.models.v1_service_port import V1ServicePort
    from kubernetes.client.models.v1_service_spec import V1ServiceSpec

    meta = V1ObjectMeta(name=CLUSTER, namespace="default", uid=str(uuid.uuid4()), annotations={}, labels={})
    port = V1ServicePort(port=80, protocol="TCP", node_port=30080)
    return V1Service(metadata=meta, spec=V1ServiceSpec(type="LoadBalancer", ports=[port]))


def _exists(answer: object) -> str | Problem:
    if answer is False or isinstance(answer, InstanceNotFound):
        return "the cloud answered that there is none, which is right"
    if answer is True:
        return "True, although nobody has such a node (right only for a cloud that makes instances on demand)"
    return _odd("instance_exists", answer, "True or False")


def _states(answer: object) -> str | Problem:
    if not isinstance(answer, Mapping):
        return _odd("instances_state", answer, "a mapping by node name")
    state = answer.get(NODE)
    if state is InstanceState.GONE or isinstance(state, InstanceNotFound):
        return "the cloud answered that it is gone, which is right"
    if isinstance(state, InstanceState):
        return f"{state.value}, although nobody has such a node (right only for a cloud that makes instances on demand)"
    if state is None:
        return Problem(
            f"instances_state says nothing about {NODE}, a node that the cloud does not have: that means unknown",
            "answer InstanceState.GONE for a node that is in no page of the cloud's complete list",
        )
    if isinstance(state, Exception):
        return Problem(f"instances_state answers {type(state).__name__}: {state}", "answer GONE for what is not there")
    return _odd("instances_state", state, "an InstanceState for each name")


def _id(answer: object) -> str | Problem:
    if isinstance(answer, InstanceNotFound):
        return "the cloud answered that there is none, which is right"
    return "answered" if isinstance(answer, str | Exception) else _odd("instance_id", answer, "a str")


def _balancer(answer: object) -> str | Problem:
    if answer is None:
        return "None, which is right"
    if isinstance(answer, Exception):
        return f"{type(answer).__name__}: {answer}"
    return Problem(
        "get_load_balancer returns a status for a Service that nobody has",
        "return None where the cloud has no load balancer with the Service's name or mark",
    )


def _count(answer: object) -> str | Problem:
    if isinstance(answer, Exception):
        return f"{type(answer).__name__}: {answer}"
    try:
        return f"answered, {len(answer)} found"  # type: ignore[arg-type]  # what else it is, is the point
    except TypeError:
        return _odd("the list", answer, "a sequence")


def _odd(method: str, answer: object, wanted: str) -> Problem:
    kind = "None" if answer is None else f"a {type(answer).__name__}"
    return Problem(f"{method} answers {kind}, not {wanted}", "correct what the method returns")
