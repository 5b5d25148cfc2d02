"""How a node's instance is asked about (stage 5, cloud call): InstancesV2, or Instances with Zones.

Each question is a program: a generator that yields the calls to be made, one after the other, and
returns the answer. The fetch drives many at once through the gateway; nothing in here blocks or
knows of threads.

Follows getInstanceMetadata, getNodeAddressesByProviderIDOrName, getProviderID,
ensureNodeExistsByProviderID and shutdownInCloudProvider in k8s.io/cloud-provider controllers/node
and nodelifecycle. Different from there: a question by name does not follow one by provider ID that
was throttled, and "not found" by name does not outweigh a failure by provider ID."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from attrs import define, evolve
from kubernetes.client.models.v1_node import V1Node

from cloudprovider import (
    CallInterrupted,
    CloudProviderError,
    InstanceMetadata,
    InstanceNotFound,
    Instances,
    InstancesBatch,
    InstanceState,
    InstancesV2,
    NotImplementedByProvider,
    PodCIDRs,
    RetryError,
    Throttled,
    Zone,
    Zones,
)
from cloudprovider.checks import answers
from cloudprovider.helpers import provider_id_of
from cloudprovider.helpers.ips import IPNetwork
from controllers.cloudcalls.answer import BatchAnswer, by_name, judged
from controllers.cloudcalls.call import CloudCall
from controllers.cloudcalls.errors import CallFailed, CallsClosed, CloudCallError, InvalidAnswer
from controllers.cloudcalls.limits import PRIORITY_SWEEP
from controllers.cloudcalls.nodes.memory import Facts
from controllers.runtime.cache import key_of

A = TypeVar("A")
Program = Generator[CloudCall[Any], Any, A]

_Known = (CloudProviderError, CloudCallError)
# After these the same instance is not asked about in another way: the cloud wants less, or no
# answer is wanted.
_Final = (Throttled, RetryError, CallInterrupted, CallsClosed)


@define(eq=False)
class Question:
    """One node to ask about."""

    node: V1Node
    priority: int

    @property
    def name(self) -> str:
        return key_of(self.node)

    @property
    def key(self) -> str:
        """What is parked while a call about this node is overdue."""
        return f"node/{key_of(self.node)}"

    @property
    def provider_id(self) -> str:
        return provider_id_of(self.node)

    def ask(self, method: str, fn: Any, args: tuple[Any, ...], check: Any) -> CloudCall[Any]:
        return CloudCall(method, fn, args, self.key, judged(check, method), priority=self.priority)


def metadata_v2(
    v2: InstancesV2, question: Question, prefixes: Sequence[str], same: answers.SameID
) -> Program[InstanceMetadata]:
    """What InstancesV2 says. A provider ID that the node has already stands in for a missing one,
    and for another spelling of it."""
    check = partial(answers.metadata, own=question.provider_id, prefixes=prefixes, same=same)
    answer: InstanceMetadata = yield question.ask("instance_metadata", v2.instance_metadata, (question.node,), check)
    return answer


def state_v2(v2: InstancesV2, question: Question) -> Program[InstanceState]:
    """Existence, then power state. "Gone" only from `instance_exists`."""
    node = question.node
    try:
        if not (yield question.ask("instance_exists", v2.instance_exists, (node,), answers.flag)):
            return InstanceState.GONE
    except InstanceNotFound:
        return InstanceState.GONE
    return (yield from _power(question.ask("instance_shutdown", v2.instance_shutdown, (node,), answers.flag)))


def metadata_legacy(
    instances: Instances,
    zones: Zones | None,
    question: Question,
    provider: str,
    prefixes: Sequence[str],
    facts: Facts,
) -> Program[InstanceMetadata]:
    """Addresses, type and zone from the older interfaces: by provider ID, then by name.

    Type and zone of a node that was asked about before come from `facts` most of the time.
    """
    provider_id = question.provider_id
    if not provider_id:
        try:
            provider_id = yield from _provider_id(instances, question, provider)
        except NotImplementedByProvider:
            prefixes = ()  # a provider without provider IDs: the node will have none
    by_id, by_name = instances.node_addresses_by_provider_id, instances.node_addresses
    addresses = yield from _by_id_or_name(
        question.ask("node_addresses_by_provider_id", by_id, (provider_id,), answers.addresses)
        if provider_id
        else None,
        question.ask("node_addresses", by_name, (question.name,), answers.addresses),
    )
    known = facts.recall(question.node, provider_id) if question.priority == PRIORITY_SWEEP else None
    if known is None:
        known = yield from _type_and_zone(instances, zones, question, provider_id)
        facts.keep(question.node, provider_id, known)
    instance_type, zone = known
    found = InstanceMetadata(provider_id, instance_type, addresses, zone.failure_domain, zone.region)
    return judged(partial(answers.metadata, own=question.provider_id, prefixes=prefixes), "Instances")(found)


def _type_and_zone(
    instances: Instances, zones: Zones | None, question: Question, provider_id: str
) -> Program[tuple[str, Zone]]:
    # No more than types are checked here: `answers.metadata` judges each field of the whole.
    name, ask = question.name, question.ask
    type_by_id, type_by_name = instances.instance_type_by_provider_id, instances.instance_type
    instance_type = yield from _by_id_or_name(
        ask("instance_type_by_provider_id", type_by_id, (provider_id,), answers.revision) if provider_id else None,
        ask("instance_type", type_by_name, (name,), answers.revision),
    )
    zone = Zone()
    if zones is not None:
        zone_by_id, zone_by_name = zones.get_zone_by_provider_id, zones.get_zone_by_node_name
        with suppress(NotImplementedByProvider):  # no zone is known: that is an answer
            zone = yield from _by_id_or_name(
                ask("get_zone_by_provider_id", zone_by_id, (provider_id,), answers.any_zone) if provider_id else None,
                ask("get_zone_by_node_name", zone_by_name, (name,), answers.any_zone),
            )
    return instance_type, zone


def state_legacy(instances: Instances, question: Question, provider: str) -> Program[InstanceState]:
    """Existence and power state from the older interface, which answers by provider ID alone."""
    try:
        provider_id = question.provider_id or (yield from _provider_id(instances, question, provider))
        exists = instances.instance_exists_by_provider_id
        if not (yield question.ask("instance_exists_by_provider_id", exists, (provider_id,), answers.flag)):
            return InstanceState.GONE
    except InstanceNotFound:
        return InstanceState.GONE
    shutdown = instances.instance_shutdown_by_provider_id
    return (yield from _power(question.ask("instance_shutdown_by_provider_id", shutdown, (provider_id,), answers.flag)))


def metadata_batch(
    batch: InstancesBatch,
    questions: Sequence[Question],
    prefixes: Sequence[str],
    same: answers.SameID,
) -> CloudCall[BatchAnswer[InstanceMetadata]]:
    """One call about several nodes."""
    own = {question.name: question.provider_id for question in questions}

    def check(name: str, value: object) -> InstanceMetadata:
        return answers.metadata(value, own=own[name], prefixes=prefixes, same=same)

    return together("instances_metadata", batch.instances_metadata, questions, check)


def pod_cidrs_batch(
    capability: PodCIDRs, questions: Sequence[Question]
) -> CloudCall[BatchAnswer[tuple[IPNetwork, ...]]]:
    """One call about several nodes: the pod CIDRs that the cloud chose."""
    return together("pod_cidrs", capability.pod_cidrs, questions, lambda _name, value: answers.pod_cidrs(value))


def pod_cidrs_alone(question: Question) -> Program[tuple[IPNetwork, ...]]:
    """There is no other way to ask for them."""
    raise NotImplementedByProvider(
        f"the provider's pod_cidrs is not implemented: it has no pod CIDR for {question.name}"
    )


def state_batch(batch: InstancesBatch, questions: Sequence[Question]) -> CloudCall[BatchAnswer[InstanceState]]:
    """One call about several nodes. The value `InstanceNotFound` is the state GONE."""
    call = together("instances_state", batch.instances_state, questions, lambda _name, value: answers.state(value))
    each = call.check

    def check(answer: object) -> BatchAnswer[InstanceState]:
        found: BatchAnswer[InstanceState] = each(answer)
        gone = {name: InstanceState.GONE for name, v in found.values.items() if isinstance(v, InstanceNotFound)}
        return evolve(found, values={**found.values, **gone})

    call.check = check
    return call


def together(method: str, fn: Any, questions: Sequence[Question], check: Any) -> CloudCall[Any]:
    """One call of a batch method; `check(name, value)` judges each value of the answer."""
    names = [question.name for question in questions]
    alone = len(questions) == 1
    shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    call: CloudCall[Any] = CloudCall(
        method,
        fn,
        ([question.node for question in questions],),
        questions[0].key if alone else "",
        lambda answer: by_name(answer, names, check, method=method),
        priority=questions[0].priority,
    )
    call.about = f"{len(names)} nodes ({shown})"
    return call


def _provider_id(instances: Instances, question: Question, provider: str) -> Program[str]:
    instance_id = yield question.ask("instance_id", instances.instance_id, (question.name,), answers.text)
    return f"{provider}://{instance_id}"


def _power(call: CloudCall[bool]) -> Program[InstanceState]:
    """The power state of an instance that exists."""
    try:
        return InstanceState.SHUTDOWN if (yield call) else InstanceState.RUNNING
    except NotImplementedByProvider:
        return InstanceState.RUNNING
    except InstanceNotFound as error:
        # It said a moment ago that the instance exists. The next poll decides.
        raise InvalidAnswer(call.method, ["it says that the instance does not exist, which it does"]) from error


def _by_id_or_name(by_id: CloudCall[A] | None, by_name: CloudCall[A]) -> Program[A]:
    """The answer by provider ID, or else by name."""
    first: Exception | None = None
    if by_id is not None:
        try:
            answer: A = yield by_id
            return answer
        except _Final:
            raise
        except _Known as error:
            first = error
    try:
        answer = yield by_name
        return answer
    except _Final:
        raise
    except _Known as error:
        if first is None or isinstance(first, NotImplementedByProvider):
            raise
        if isinstance(error, NotImplementedByProvider):
            raise first from None
        if isinstance(error, InstanceNotFound) and isinstance(first, InstanceNotFound):
            raise
        raise CallFailed(f"neither by provider ID ({first}) nor by name ({error})") from error
