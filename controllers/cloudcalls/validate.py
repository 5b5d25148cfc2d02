"""What providers answer, checked before anyone uses it (stage 5, cloud call). Pure.

Each function takes the raw answer of one method and returns it as a value that is the host's own (vendors may keep and
change what they returned), or raises :class:`InvalidAnswer` with every fault at once. The gateway runs them in the
vendor thread: an answer may be an object whose own code raises or hangs. An invalid answer costs its key, nothing else.

What is refused is what the API server would refuse later, for ever and without naming the culprit, and what could be
mistaken: None where a bool is due would read as "gone".
"""

from __future__ import annotations

import inspect
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from attrs import frozen
from kubernetes.client.models.v1_load_balancer_ingress import V1LoadBalancerIngress
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_node_address import V1NodeAddress

from cloudprovider import InstanceMetadata, InstanceNotFound, InstanceState, OwnedLoadBalancer, Route, Throttled, Zone
from cloudprovider.helpers import address_problems, label_key_problems, label_value_problems, parse_ip
from cloudprovider.helpers import same_provider_id as same_by_default
from cloudprovider.wellknown import NODE_ADDRESS_EXTERNAL_DNS, NODE_ADDRESS_HOSTNAME, NODE_ADDRESS_INTERNAL_DNS
from controllers.cloudcalls.errors import AnswerMissing, InvalidAnswer, translate
from controllers.cloudcalls.snapshots import private_copy

__all__ = [
    "BatchAnswer",
    "SameID",
    "addresses",
    "batch",
    "flag",
    "label_text",
    "labels",
    "load_balancer_name",
    "load_balancer_status",
    "metadata",
    "no_answer",
    "owned_load_balancers",
    "prefixes",
    "provider_id_problem",
    "revision",
    "routes",
    "state",
    "text",
    "texts",
    "zone",
]

A = TypeVar("A")
SameID = Callable[[str, str], bool]
_DNS_TYPES = frozenset({NODE_ADDRESS_HOSTNAME, NODE_ADDRESS_INTERNAL_DNS, NODE_ADDRESS_EXTERNAL_DNS})
# Wider than RFC 1123: clouds hand out names with capitals and underscores, and the API server takes them.
_DNS_NAME = re.compile(
    r"[A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?(\.[A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?)*\.?"
)
_DNS_LENGTH = 254  # 253 and a final dot
_UNPRINTABLE = re.compile(r"[\s\x00-\x1f\x7f]")
_ABSENT: Any = object()


def metadata(
    answer: object, *, own: str, prefixes: Sequence[str], same: SameID = same_by_default, method: str
) -> InstanceMetadata:
    """An InstanceMetadata fit to be written on a node.

    `own` is the provider ID that the node carries already, or "": it stands in for a missing one, and for another
    spelling of it (`same`).
    `prefixes` is how this provider's IDs begin; empty for a provider without provider IDs, whose nodes need none.
    """
    if not isinstance(answer, InstanceMetadata):
        raise _wrong_type(method, answer, "InstanceMetadata")
    problems: list[str] = []
    provider_id = answer.provider_id
    if not provider_id:
        provider_id = own
        if not provider_id and prefixes:
            problems.append("it has no provider_id, and neither has the node")
    elif own and (provider_id == own or same(own, provider_id)):
        provider_id = own
    else:
        problem = provider_id_problem(provider_id, prefixes)
        if problem:
            problems.append(problem)
    for name in ("instance_type", "zone", "region"):
        problems += _label_value(getattr(answer, name), name)
    found = _addresses(answer.node_addresses, problems)
    own_labels = _labels(answer.additional_labels, "additional_labels", problems)
    _raise_for(problems, method)
    return InstanceMetadata(provider_id, answer.instance_type, found, answer.zone, answer.region, own_labels)


def provider_id_problem(provider_id: str, prefixes: Sequence[str]) -> str:
    """What is wrong with an instance's provider ID, "" when it is one of this provider's."""
    if _UNPRINTABLE.search(provider_id):
        return f"provider_id {_show(provider_id)} has blanks or control characters"
    if not prefixes:
        return ""
    prefix = next((p for p in prefixes if provider_id.startswith(p)), None)
    if prefix is None:
        return f"provider_id {_show(provider_id)} does not begin with {' or '.join(map(repr, prefixes))}"
    if not provider_id[len(prefix) :].strip("/"):
        return f"provider_id {_show(provider_id)} names no instance"
    return ""


def state(answer: object, *, method: str) -> InstanceState:
    """An InstanceState."""
    if not isinstance(answer, InstanceState):
        raise _wrong_type(method, answer, "InstanceState")
    return answer


def flag(answer: object, *, method: str) -> bool:
    """True or False, and nothing that merely counts as such."""
    if not isinstance(answer, bool):
        raise _wrong_type(method, answer, "bool")
    return answer


def addresses(answer: object, *, method: str) -> tuple[V1NodeAddress, ...]:
    """Node addresses of known types; IP types hold IPs, name types hold host names."""
    problems: list[str] = []
    found = _addresses(answer, problems)
    _raise_for(problems, method)
    return found


def label_text(answer: object, *, method: str) -> str:
    """Text that will become a label value; may be empty."""
    _raise_for(_label_value(answer, "the answer"), method)
    assert isinstance(answer, str)
    return answer


def zone(answer: object, *, method: str) -> Zone:
    """A Zone whose parts are label values."""
    if not isinstance(answer, Zone):
        raise _wrong_type(method, answer, "Zone")
    _raise_for([*_label_value(answer.failure_domain, "failure_domain"), *_label_value(answer.region, "region")], method)
    return answer


def load_balancer_status(answer: object, *, method: str) -> V1LoadBalancerStatus:
    """A status whose ingress points have an IP or a host name each; it may have none yet."""
    if not isinstance(answer, V1LoadBalancerStatus):
        raise _wrong_type(method, answer, "V1LoadBalancerStatus")
    problems: list[str] = []
    points = _unchecked(answer.ingress) or []
    if not isinstance(points, list):
        problems.append(f"ingress is {_kind(points)}, not a list")
    else:
        for index, point in enumerate(points):
            if not isinstance(point, V1LoadBalancerIngress):
                problems.append(f"ingress[{index}] is {_kind(point)}, not V1LoadBalancerIngress")
                continue
            ip, hostname = _unchecked(point.ip), _unchecked(point.hostname)
            if not ip and not hostname:
                problems.append(f"ingress[{index}] has neither ip nor hostname")
            if ip and (not isinstance(ip, str) or parse_ip(ip) is None):
                problems.append(f"ingress[{index}].ip {_show(ip)} is no IP address")
            if hostname and not _is_dns_name(hostname):
                problems.append(f"ingress[{index}].hostname {_show(hostname)} is no host name")
    _raise_for(problems, method)
    return _own(answer)


def load_balancer_name(answer: object, *, method: str) -> str:
    """A load balancer's name: text, not empty."""
    return text(answer, method=method)


def owned_load_balancers(answer: object, *, method: str) -> tuple[OwnedLoadBalancer, ...]:
    """What a cluster owns. One that is none spoils the list, as it could be any."""
    items = _items(answer, "OwnedLoadBalancer", method)
    problems = []
    for index, item in enumerate(items):
        if not isinstance(item, OwnedLoadBalancer):
            problems.append(f"item {index} is {_kind(item)}, not OwnedLoadBalancer")
            continue
        if item.name == "" or (item.service == "" and item.service_uid == ""):
            problems.append(f"item {index} lacks its name, or both service and service_uid")
    _raise_for(problems, method)
    return tuple(_own(item) for item in items)


def revision(answer: object, *, method: str) -> str:
    """Text, which may be empty."""
    if not isinstance(answer, str):
        raise _wrong_type(method, answer, "text")
    return answer


def routes(answer: object, *, method: str) -> tuple[Route, ...]:
    """Routes, whatever they say: rules of others may look odd. One that is no Route spoils the list, because leaving
    it out would read as "absent"."""
    items = _items(answer, "Route", method)
    problems = []
    for index, item in enumerate(items):
        if not isinstance(item, Route):
            problems.append(f"item {index} is {_kind(item)}, not Route")
    _raise_for(problems, method)
    return tuple(_own(item) for item in items)


def labels(answer: object, *, method: str) -> dict[str, str]:
    """Labels that the API server would take."""
    problems: list[str] = []
    found = _labels(answer, "the answer", problems)
    _raise_for(problems, method)
    return found


def text(answer: object, *, method: str) -> str:
    """Text that is not empty."""
    if not isinstance(answer, str):
        raise _wrong_type(method, answer, "text")
    if not answer.strip():
        raise InvalidAnswer(method, ["the text is empty"])
    return answer


def texts(answer: object, *, method: str) -> tuple[str, ...]:
    """A sequence of texts, none of them empty."""
    items = _items(answer, "text", method)
    _raise_for(
        [
            f"item {i} is {_show(item)}, not a text"
            for i, item in enumerate(items)
            if not isinstance(item, str) or not item
        ],
        method,
    )
    return tuple(items)


def prefixes(answer: object, *, method: str) -> tuple[str, ...]:
    """Prefixes of provider IDs; none for a provider without provider IDs."""
    return texts(answer, method=method)


def no_answer(answer: object, *, method: str) -> None:
    """For methods that return nothing: whatever came is dropped, except work that was never done.

    A coroutine means that the provider is written for asyncio: nothing has happened in the cloud.
    """
    if inspect.isawaitable(answer) or inspect.isgenerator(answer):
        raise _wrong_type(method, answer, "nothing")


@frozen
class BatchAnswer(Generic[A]):
    """A batch's answer taken apart: every name that was asked about has a value or an error."""

    values: Mapping[str, A | Exception]
    foreign: int
    """Names in the answer that were not asked about."""
    throttled: Throttled | None
    """The first value that says that the cloud throttles."""

    def is_complete(self) -> bool:
        """Whether no name got an error, nothing, or junk; "not found" is an answer."""
        return not any(isinstance(v, Exception) and not isinstance(v, InstanceNotFound) for v in self.values.values())


def batch(answer: object, names: Sequence[str], check: Callable[[str, object], A], *, method: str) -> BatchAnswer[A]:
    """A batch answer by name. `check(name, value)` validates one value, and what it raises stands for that name alone.

    Raises InvalidAnswer when the whole is not a mapping: then nothing is known about any of them.
    """
    if not isinstance(answer, Mapping):
        raise _wrong_type(method, answer, "a mapping by node name")
    values: dict[str, A | Exception] = {}
    for name in names:
        try:
            value = answer.get(name, _ABSENT)  # not answer[name]: a defaultdict would make up a value
            if value is not _ABSENT:
                values[name] = translate(value, method) if isinstance(value, BaseException) else check(name, value)
        except InvalidAnswer as invalid:
            values[name] = invalid
        except Exception as broken:  # noqa: BLE001 - vendor boundary: a value's own code may raise anything
            values[name] = translate(broken, method)
    foreign = max(0, len(answer) - len(values))
    if len(values) < len(names):
        hint = f" ({foreign} names in it were not asked about: is it keyed by node name?)" if foreign else ""
        for name in names:
            if name not in values:
                values[name] = AnswerMissing(f"the provider's {method} said nothing about {name}{hint}")
    throttled = next((v for v in values.values() if isinstance(v, Throttled)), None)
    return BatchAnswer(values, foreign, throttled)


def _unchecked(value: Any) -> Any:
    """The same, without believing its annotation: not every class checks what it is made of."""
    return value


def _own(value: A) -> A:
    copy: A = private_copy(value)
    return copy


def _items(answer: object, what: str, method: str) -> list[Any]:
    if isinstance(answer, str | bytes | Mapping) or not isinstance(answer, Iterable):
        raise _wrong_type(method, answer, f"a sequence of {what}")
    return list(answer)


def _addresses(answer: object, problems: list[str]) -> tuple[V1NodeAddress, ...]:
    if isinstance(answer, str | bytes | Mapping) or not isinstance(answer, Iterable):
        problems.append(f"the addresses are {_kind(answer)}, not a sequence of V1NodeAddress")
        return ()
    found = []
    for index, address in enumerate(answer):
        if not isinstance(address, V1NodeAddress):
            problems.append(f"address {index} is {_kind(address)}, not V1NodeAddress")
            continue
        kind: object = address.type
        value: object = address.address
        if not isinstance(kind, str) or not isinstance(value, str):
            problems.append(f"address {index} has {_kind(kind)} as type and {_kind(value)} as address, not text")
            continue
        faults = address_problems(address)
        if not faults and kind in _DNS_TYPES and not _is_dns_name(value) and parse_ip(value) is None:
            faults = (f"{kind} {_show(value)} is no host name",)
        problems += faults
        found.append(_own(address))
    return tuple(found)


def _labels(answer: object, where: str, problems: list[str]) -> dict[str, str]:
    if not isinstance(answer, Mapping):
        problems.append(f"{where} is {_kind(answer)}, not a mapping")
        return {}
    found = {}
    for key, value in answer.items():
        if not isinstance(key, str) or not isinstance(value, str):
            problems.append(f"{where} has a label {_show(key)}: {_show(value)} that is not text")
            continue
        problems += [f"{where}: {fault}" for fault in label_key_problems(key)]
        problems += [f"{where}[{_show(key)}]: {fault}" for fault in label_value_problems(value)]
        found[key] = value
    return found


def _label_value(value: object, name: str) -> list[str]:
    if not isinstance(value, str):
        return [f"{name} is {_kind(value)}, not text"]
    if not value:
        return []
    return [f"{name}: {fault}" for fault in label_value_problems(value)]


def _is_dns_name(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _DNS_LENGTH and _DNS_NAME.fullmatch(value) is not None


def _wrong_type(method: str, answer: object, wanted: str) -> InvalidAnswer:
    hint = ""
    if inspect.iscoroutine(answer):
        answer.close()  # it will never be awaited; without this Python warns at some later time
        hint = " (a provider's methods are plain functions, not async)"
    elif answer is None:
        hint = " (is a return statement missing?)"
    return InvalidAnswer(method, [f"it is {_kind(answer)}, not {wanted}{hint}"])


def _raise_for(problems: Sequence[str], method: str) -> None:
    if problems:
        raise InvalidAnswer(method, problems)


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__name__


def _show(value: object) -> str:
    return reprlib.repr(value)
