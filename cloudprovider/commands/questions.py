"""Questions to a provider that change nothing in its cloud, by contract: they show whether the
cloud answers.

Each is about a node, a Service or a cluster that does not exist, so that the right answer is known:
no, none, nothing. Those of `questions_about` are about a node whose machine runs: what the manager
would write on it. Whether an answer is right, `answers.py` decides.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import frozen

from cloudprovider.checks import answers
from cloudprovider.checks.olderinstances import OlderInstances
from cloudprovider.commands.forecast import new_node
from cloudprovider.errors import ImplementedElsewhere, InstanceNotFound, NotImplementedByProvider
from cloudprovider.helpers.addresses import describe_addresses
from cloudprovider.helpers.objects import node_name
from cloudprovider.helpers.providerid import provider_id_of, same_provider_id
from cloudprovider.instances import InstanceMetadata, InstanceState
from cloudprovider.internal.problem import Problem
from cloudprovider.loadbalancer import OwnedLoadBalancers
from cloudprovider.loading.diagnostics import error_text

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

NODE = "cloudprovider-check-no-such-node"
CLUSTER = "cloudprovider-check"
NOT_ASKED = (
    "all that changes the cloud (load balancers, routes, SSH keys), and questions about volumes, zones and this machine"
)
_ON_DEMAND = "although nobody has such a node (right only for a cloud that makes instances on demand)"
_RIGHT = "the cloud answered that there is none, which is right"
_CORRECT = "correct what the method returns"


@frozen
class NoMachine(Problem):
    """The cloud has no machine of the node: other questions about it have no better answer."""


@frozen
class Question:
    """One call, and how its answer reads."""

    call: str
    """For people."""
    ask: Callable[[], Any]
    check: Callable[[Any], Any]
    """Of `answers`: passes a right answer on."""
    shown: Callable[[Any], str | Problem]
    """What a right answer says; a problem for one that cannot be right here. Exceptions of
    `_ANSWERS` come here too."""
    answers: tuple[type[Exception], ...] = (InstanceNotFound, NotImplementedByProvider, ImplementedElsewhere)

    @property
    def method(self) -> str:
        """The name of the provider's method."""
        return self.call.partition(" ")[0]

    def judged(self, answer: object) -> tuple[str | Problem, object]:
        """What the answer says, or what is wrong with it; and its value: None where it has none
        that is right."""
        # Exceptions that the contract has for an answer: the host takes them for one, too.
        if isinstance(answer, self.answers):
            return self.shown(answer), None
        try:
            value = self.check(answer)
            return self.shown(value), value
        except answers.WrongAnswer as wrong:
            if len(wrong.problems) == 1:
                return Problem(f"{self.call} gave a wrong answer: {wrong}", _CORRECT), None
            return Problem(f"{self.call} gave a wrong answer", _CORRECT, wrong.problems), None


def questions_for(capabilities: Mapping[str, Any], prefixes: Sequence[str]) -> Iterator[Question]:
    """The questions for what a provider offers, by its accessors' names."""
    node = new_node(NODE)
    if (v2 := capabilities.get("instances_v2")) is not None:
        yield Question(f"instance_exists of node {NODE}", lambda: v2.instance_exists(node), answers.flag, _exists)
    if (batch := capabilities.get("instances_batch")) is not None:
        check = partial(answers.batch, names=[NODE], check=lambda _, value: answers.state(value))
        yield Question(f"instances_state of node {NODE}", lambda: batch.instances_state([node]), check, _states)
    if (older := capabilities.get("instances")) is not None:
        yield Question(f"instance_id of node {NODE}", lambda: older.instance_id(NODE), answers.text, _id)
    if (balancer := capabilities.get("load_balancer")) is not None:
        # The longest names there are: a cloud's limit is to show here, not in production.
        service, longest = _service(CLUSTER, "default"), _service("s" * 63, "n" * 63)
        yield Question(
            "get_load_balancer_name of a Service with names of 63 characters",
            lambda: balancer.get_load_balancer_name(CLUSTER, longest),
            answers.load_balancer_name,
            _other,
        )
        yield Question(
            "get_load_balancer of a Service that nobody has",
            lambda: balancer.get_load_balancer(CLUSTER, service),
            answers.load_balancer_or_none,
            _balancer,
        )
        if isinstance(balancer, OwnedLoadBalancers):
            owned, what = balancer.owned_load_balancers, f"owned_load_balancers of cluster {CLUSTER}"
            yield Question(what, lambda: owned(CLUSTER), answers.owned_load_balancers, _count)
    if (routes := capabilities.get("routes")) is not None:
        call = f"list_routes of cluster {CLUSTER}"
        yield Question(call, lambda: routes.list_routes(CLUSTER), partial(answers.routes, prefixes=prefixes), _count)
    if (clusters := capabilities.get("clusters")) is not None:
        yield Question("list_clusters", clusters.list_clusters, answers.texts, _count)


def questions_about(
    node: V1Node,
    capabilities: Mapping[str, Any],
    prefixes: Sequence[str],
    provider: str,
    same: answers.SameID = same_provider_id,
) -> Iterator[Question]:
    """What the manager asks about a Node as it joins, each answer checked as before it is written.

    `same`: whether two provider IDs name one instance, as the `provider` of that name has it.
    """
    name, own = node_name(node), provider_id_of(node)
    checked = partial(answers.metadata, prefixes=prefixes, own=own, same=same, strict=True)

    def metadata(answer: object) -> InstanceMetadata:
        found = checked(answer)
        # Another machine of this name: the host would refuse to write any of it.
        if own and found.provider_id != own:
            raise answers.WrongAnswer([f"it is of {found.provider_id}, and the node's provider ID is {own}"])
        return found

    def about(
        method: str, ask: Callable[[], Any], check: Callable[[Any], Any], gone: Sequence[object] = ()
    ) -> Question:
        return Question(f"{method} of node {name}", ask, check, partial(_known, name, gone))

    def alone(method: Callable[[list[Any]], Any], check: Callable[[Any], Any]) -> Question:
        """A batch of this node."""
        what = method.__name__

        def value(answer: Any) -> Any:
            found = answers.batch(answer, [name], lambda _, one: check(one))
            if name not in found:
                raise answers.WrongAnswer([f"it says nothing about {name}; it has {sorted(answer)[:3]}"])
            if isinstance(answer := found[name], BaseException) and not isinstance(answer, InstanceNotFound):
                raise answer if isinstance(answer, answers.WrongAnswer) else answers.WrongAnswer([_text(answer)])
            return answer

        return about(what, lambda: method([node]), value, (InstanceState.GONE,))

    if (v2 := capabilities.get("instances_v2")) is not None:
        yield about("instance_exists", lambda: v2.instance_exists(node), answers.flag, (False,))
        yield about("instance_shutdown", lambda: v2.instance_shutdown(node), answers.flag)
        yield about("instance_metadata", lambda: v2.instance_metadata(node), metadata)
    if (batch := capabilities.get("instances_batch")) is not None:
        yield alone(batch.instances_state, answers.state)
        yield alone(batch.instances_metadata, metadata)
    # The manager asks the older form only where there is no other.
    if (older := capabilities.get("instances")) is not None and v2 is None and batch is None:
        adapted = OlderInstances(provider, older, capabilities.get("zones"))
        yield about("instance_metadata", lambda: adapted.instance_metadata(node), metadata)
    if (cidrs := capabilities.get("pod_cidrs")) is not None:
        yield alone(cidrs.pod_cidrs, answers.pod_cidrs)


def _service(name: str, namespace: str) -> Any:
    from kubernetes.client.models.v1_object_meta import V1ObjectMeta
    from kubernetes.client.models.v1_service import V1Service
    from kubernetes.client.models.v1_service_port import V1ServicePort
    from kubernetes.client.models.v1_service_spec import V1ServiceSpec

    meta = V1ObjectMeta(name=name, namespace=namespace, uid=str(uuid.uuid4()), annotations={}, labels={})
    port = V1ServicePort(port=80, protocol="TCP", node_port=30080)
    return V1Service(metadata=meta, spec=V1ServiceSpec(type="LoadBalancer", ports=[port]))


def _known(name: str, gone: Sequence[object], answer: object) -> str | Problem:
    """What is reported of a node whose machine runs. `gone`: the answers that say that it is not
    there."""
    if answer in gone or isinstance(answer, InstanceNotFound):
        said = f": {_text(answer)}" if isinstance(answer, Exception) else ""
        return NoMachine(f"the cloud has no machine of node {name}{said}", "give the name of a node whose machine runs")
    if isinstance(answer, InstanceMetadata):
        parts = (answer.provider_id, answer.instance_type, answer.zone, answer.region)
        return ", ".join(part for part in (*parts, describe_addresses(answer.node_addresses)) if part)
    return answer.value if isinstance(answer, InstanceState) else _other(answer)


def _exists(answer: object) -> str:
    if answer is True:
        return f"True, {_ON_DEMAND}"
    return _RIGHT if answer is False or isinstance(answer, InstanceNotFound) else _other(answer)


def _states(answer: Any) -> str | Problem:
    state = answer.get(NODE) if isinstance(answer, Mapping) else answer
    if state is InstanceState.GONE or isinstance(state, InstanceNotFound):
        return "the cloud answered that it is gone, which is right"
    if isinstance(state, InstanceState):
        return f"{state.value}, {_ON_DEMAND}"
    if isinstance(state, answers.WrongAnswer):
        raise state
    # A missing name means unknown, so that no node would ever be found gone.
    if state is None:
        return Problem(
            f"instances_state says nothing about {NODE}, a node that the cloud does not have: that means unknown",
            "answer InstanceState.GONE for a node that is in no page of the cloud's complete list",
        )
    return Problem(f"instances_state answers {_text(state)}", "answer GONE for what is not there")


def _id(answer: object) -> str:
    return _RIGHT if isinstance(answer, InstanceNotFound) else _other(answer)


def _balancer(answer: object) -> str | Problem:
    if answer is None:
        return "None, which is right"
    if isinstance(answer, Exception):
        return _text(answer)
    return Problem(
        "get_load_balancer returns a status for a Service that nobody has",
        "return None where the cloud has no load balancer with the Service's name or mark",
    )


def _count(answer: Any) -> str:
    return _text(answer) if isinstance(answer, Exception) else f"answered, {len(answer)} found"


def _other(answer: object) -> str:
    """For answers that need no more words. A secret could be in a text, so it is not shown."""
    if isinstance(answer, BaseException):
        return _text(answer)
    return f"answered {answer}" if isinstance(answer, bool) else "answered"


def _text(error: BaseException) -> str:
    text, details = error_text(error)
    return "; ".join((text, *details))
