"""What a right answer of a provider is (stage 5): the one place that decides it, for the manager's
gateway, the commands and the conformance suite. Pure.

Each function takes the raw answer of a method and returns it with the type of the contract, or
raises `WrongAnswer` with every fault at once. Refused is what the API server would refuse later
without naming the culprit, or what may be mistaken."""

from __future__ import annotations

import inspect
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from attrs import evolve
from kubernetes.client.models.v1_load_balancer_ingress import V1LoadBalancerIngress
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_node_address import V1NodeAddress

from cloudprovider.call import current_call
from cloudprovider.checks.nodelabels import annotation_problems, refused, taint_problems
from cloudprovider.helpers.addresses import address_problems
from cloudprovider.helpers.labels import label_key_problems, label_value_problems, node_name_problems
from cloudprovider.helpers.providerid import MISSING_VALUE, same_provider_id
from cloudprovider.instances import InstanceMetadata, InstanceState
from cloudprovider.ips import IPNetwork, parse_ip, parse_network
from cloudprovider.loadbalancer import OwnedLoadBalancer
from cloudprovider.ownedresources import OwnedResource
from cloudprovider.routes import Route
from cloudprovider.wellknown import NODE_ADDRESS_EXTERNAL_DNS, NODE_ADDRESS_HOSTNAME, NODE_ADDRESS_INTERNAL_DNS
from cloudprovider.zones import Zone

T = TypeVar("T")
SameID = Callable[[str, str], bool]
_DNS_TYPES = frozenset({NODE_ADDRESS_HOSTNAME, NODE_ADDRESS_INTERNAL_DNS, NODE_ADDRESS_EXTERNAL_DNS})
# Of nodes' addresses. Wider than RFC 1123: clouds hand out names with capitals and underscores, and
# the API server takes them there.
_DNS_NAME = re.compile(
    r"[A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?(\.[A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?)*\.?"
)
_BALANCER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,254}")  # 255: the longest name that a large cloud takes
_ABSENT: Any = object()
_show = reprlib.repr
_MOST = 1_000_000  # items of one answer


class WrongAnswer(Exception):
    """An answer that cannot be used. `problems` holds every fault of it, as clauses for people;
    `usable` is the answer without its faulty fields, None where nothing is left to use."""

    def __init__(self, problems: Iterable[str], usable: InstanceMetadata | None = None) -> None:
        self.problems = tuple(problems)
        self.usable = usable
        super().__init__("; ".join(self.problems))


def metadata(
    answer: object, *, prefixes: Sequence[str], own: str = "", same: SameID = same_provider_id, strict: bool = False
) -> InstanceMetadata:
    """An InstanceMetadata fit to be written on a node.

    `own` is the provider ID that the node carries already, or "": it stands in for a missing one,
    and for another spelling of it (`same`). `prefixes` is how this provider's IDs begin; empty for
    a provider without provider IDs, whose nodes need none. `strict` also refuses what the manager
    lives with: no address at all, and labels of Kubernetes itself, which it leaves out.
    """
    if not isinstance(answer, InstanceMetadata):
        raise _wrong_type(answer, "InstanceMetadata")
    provider_id, problems = answer.provider_id, []
    if own and (not provider_id or provider_id == own or same(own, provider_id)):
        provider_id = own
    else:
        problems = _provider_id_problems(provider_id, prefixes)
    is_of_node = not problems  # else it may be about another instance
    found = answer if provider_id == answer.provider_id else evolve(answer, provider_id=provider_id)
    faults = {name: _label_value(getattr(answer, name), name) for name in ("instance_type", "zone", "region")}
    faults["node_addresses"] = _address_problems(answer.node_addresses)
    faults["additional_labels"] = _label_problems(answer.additional_labels, "additional_labels")
    faults["taints"] = taint_problems(answer.taints) if answer.taints else []
    faults["annotations"] = annotation_problems(answer.annotations) if answer.annotations else []
    if strict:
        faults["node_addresses"] += [] if answer.node_addresses else ["there is no address at all"]
        for name, refusals in refused(answer).items():
            faults[name] += refusals
    problems += [fault for each in faults.values() for fault in each]
    if problems:
        silent = InstanceMetadata()
        usable = evolve(found, **{name: getattr(silent, name) for name, each in faults.items() if each})
        raise WrongAnswer(problems, usable if is_of_node else None)
    return found


def _provider_id_problems(provider_id: str, prefixes: Sequence[str], field: str = "provider_id") -> list[str]:
    if not provider_id:
        return ["it has no provider_id, and neither has the node"] if prefixes else []
    if not prefixes:  # once written it could not be changed, and the node would count as another cloud's
        return [f"it has {field} {_show(provider_id)}, while provider_id_prefixes() says that this cloud has none"]
    if not provider_id.isprintable() or provider_id.split() != [provider_id]:
        return [f"{field} {_show(provider_id)} has blanks or control characters"]
    prefix = next((one for one in prefixes if provider_id.startswith(one)), None)
    if prefix is None:
        return [f"{field} {_show(provider_id)} does not begin with {' or '.join(map(repr, prefixes))}"]
    if not provider_id[len(prefix) :].strip("/"):
        return [f"{field} {_show(provider_id)} names no instance"]
    if missing := MISSING_VALUE.search(provider_id):
        return [f"{field} {_show(provider_id)} is made of a value that was not there: {missing[0]}"]
    return []


def state(answer: object) -> InstanceState:
    """An InstanceState."""
    return _of_type(answer, InstanceState, "InstanceState")


def flag(answer: object) -> bool:
    """True or False, and nothing that merely counts as such."""
    return _of_type(answer, bool, "bool")


def addresses(answer: object, *, strict: bool = False) -> tuple[V1NodeAddress, ...]:
    """Node addresses of known types; IP types hold IPs, name types hold host names. `strict`: at
    least one."""
    found = tuple(_items(answer, "V1NodeAddress"))
    _raise_for(_address_problems(found) or (["there is no address at all"] if strict and not found else []))
    return found


def label_text(answer: object) -> str:
    """Text that will become a label value; may be empty."""
    _raise_for(_label_value(answer, "the answer"))
    return _of_type(answer, str, "text")  # as it is: `str` of an Enum's member would be its name


def any_zone(answer: object) -> Zone:
    """A Zone, whatever its parts are."""
    return _of_type(answer, Zone, "Zone")


def zone(answer: object) -> Zone:
    """A Zone whose parts are label values."""
    found = any_zone(answer)
    _raise_for([*_label_value(found.failure_domain, "failure_domain"), *_label_value(found.region, "region")])
    return found


def batch(answer: object, names: Iterable[str], check: Callable[[str, object], T]) -> dict[str, T | BaseException]:
    """A batch's answer by name: a checked value, or what stands or went wrong there. Names without
    an answer are left out: unknown, never gone. `check(name, value)` is asked for each value.

    Raises WrongAnswer when the whole is not a mapping: then nothing is known about any of them.
    """
    if not isinstance(answer, Mapping):
        raise _wrong_type(answer, "a mapping by node name")
    values: dict[str, T | BaseException] = {}
    for name in names:
        try:
            value = answer.get(name, _ABSENT)  # not answer[name]: a defaultdict would make up a value
            if value is not _ABSENT:
                values[name] = value if isinstance(value, BaseException) else check(name, value)
        except Exception as wrong:  # noqa: BLE001 - vendor boundary: a value's own code may raise anything
            values[name] = wrong
    return values


def pod_cidrs(answer: object) -> tuple[IPNetwork, ...]:
    """Ranges without host bits, one of each IP family at most; none: not chosen yet."""
    found: list[IPNetwork] = []
    problems = []
    for one in texts(answer):
        if problem := destination_problem(one):
            problems.append(problem)
        else:
            found.append(parse_network(one))
    if len({net.version for net in found}) < len(found):
        problems.append(f"{', '.join(map(str, found))} are several ranges of one IP family")
    _raise_for(problems)
    return tuple(found)


def load_balancer_status(answer: object) -> V1LoadBalancerStatus:
    """A status whose ingress points have an IP or a host name each; it may have none yet."""
    found = _of_type(answer, V1LoadBalancerStatus, "V1LoadBalancerStatus")
    points: Any = found.ingress or []  # whatever its annotation says: not every class checks what it is made of
    if not isinstance(points, list):
        raise WrongAnswer([f"ingress is {kind_of(points)}, not a list"])
    problems = []
    for index, point in enumerate(points):
        if not isinstance(point, V1LoadBalancerIngress):
            problems.append(f"ingress[{index}] is {kind_of(point)}, not V1LoadBalancerIngress")
            continue
        ip: Any = point.ip
        hostname: Any = point.hostname
        if not ip and not hostname:
            problems.append(f"ingress[{index}] has neither ip nor hostname")
        if ip and (not isinstance(ip, str) or parse_ip(ip) is None):
            problems.append(f"ingress[{index}].ip {_show(ip)} is no IP address")
        # As the API server takes them: the rule for host names is that for names of nodes.
        if hostname and (not isinstance(hostname, str) or node_name_problems(hostname) or parse_ip(hostname)):
            rule = "a DNS name in lower case, without a final dot"
            problems.append(f"ingress[{index}].hostname {_show(hostname)} must be {rule}")
        mode: Any = point.ip_mode
        if mode is not None and (mode not in ("VIP", "Proxy") or not ip):
            problems.append(f"ingress[{index}].ip_mode {_show(mode)} must be 'VIP' or 'Proxy', and stand beside an ip")
    _raise_for(problems)
    return found


def load_balancer_or_none(answer: object) -> V1LoadBalancerStatus | None:
    """The same, or None: the cloud has none."""
    return None if answer is None else load_balancer_status(answer)


def load_balancer_name(answer: object) -> str:
    """A load balancer's name, as `LoadBalancer.get_load_balancer_name` says."""
    name = text(answer)
    if not _BALANCER_NAME.fullmatch(name):
        rule = "at most 255 letters, digits, '-', '_', '.' and ':', beginning with a letter, a digit or '_'"
        raise WrongAnswer([f"the load balancer's name {_show(name)} ({len(name)} characters) must have {rule}"])
    return name


def owned_load_balancers(answer: object) -> tuple[OwnedLoadBalancer, ...]:
    """What a cluster owns. One that is none spoils the list, as it could be any."""
    items, problems = _items(answer, "OwnedLoadBalancer"), []
    for index, item in enumerate(items):
        if not isinstance(item, OwnedLoadBalancer):
            problems.append(f"item {index} is {kind_of(item)}, not OwnedLoadBalancer")
        elif item.name == "" or (item.service == "" and item.service_uid == ""):
            problems.append(f"item {index} lacks its name, or both service and service_uid")
    _raise_for(problems)
    return tuple(items)


def owned_resources(answer: object) -> tuple[OwnedResource, ...]:
    """What else a cluster owns. One that is none, or has the kind and ID of another, spoils the
    list: nobody knows what would be deleted."""
    items, problems = _items(answer, "OwnedResource"), []
    seen: set[tuple[str, str]] = set()
    for index, item in enumerate(items):
        if not isinstance(item, OwnedResource):
            problems.append(f"item {index} is {kind_of(item)}, not OwnedResource")
        elif not item.kind or not item.id:
            problems.append(f"item {index} lacks its kind or its id")
        elif (item.kind, item.id) in seen:
            problems.append(f"item {index} is the {item.kind} {_show(item.id)} once more")
        else:
            seen.add((item.kind, item.id))
    _raise_for(problems)
    return tuple(items)


def routes(answer: object, *, prefixes: Sequence[str]) -> tuple[Route, ...]:
    """Routes to IP ranges. One that is none spoils the list, unless it is another's: left out, it
    would be remade. So does a target that no node can have; `prefixes` as for `metadata`."""
    items, problems = _items(answer, "Route"), []
    for index, one in enumerate(items):
        if not isinstance(one, Route):
            problems.append(f"item {index} is {kind_of(one)}, not Route")
        elif one.owned is not False:
            target = _show(one.target_node or one.target_provider_id)
            who = f"item {index}, the route {_show(one.name)} to node {target}"
            if problem := destination_problem(one.destination_cidr):
                problems.append(f"{who}: the destination_cidr {problem}")
            if one.target_provider_id:
                faults = _provider_id_problems(one.target_provider_id, prefixes, "target_provider_id")
                problems += [f"{who}: {fault}" for fault in faults]
    _raise_for(problems)
    return tuple(items)


def destination_problem(cidr: str) -> str:
    """What is wrong with an IP range, such as a route's destination; "" where nothing is."""
    try:
        right = parse_network(cidr)
    except ValueError:
        wrong = "is not an IP range, such as" if parse_ip(cidr) is None else "has no prefix length, as in"
        return f"{_show(cidr)} {wrong} 10.244.1.0/24"
    aligned = right.network_address == parse_ip(cidr.partition("/")[0])
    return "" if aligned else f"{_show(cidr)} has host bits: write {right}"


def labels(answer: object) -> dict[str, str]:
    """Labels that the API server would take."""
    _raise_for(_label_problems(answer, "the answer"))
    assert isinstance(answer, Mapping)
    return dict(answer)


def text(answer: object) -> str:
    """Text that is not empty."""
    found = _of_type(answer, str, "text")
    _raise_for([] if found.strip() else ["the text is empty"])
    return found


def texts(answer: object) -> tuple[str, ...]:
    """A sequence of texts, none of them empty."""
    items = _items(answer, "text")
    wrong = [i for i, one in enumerate(items) if not isinstance(one, str) or not one.strip()]
    _raise_for([f"item {i} is {_show(items[i])}, not a text" for i in wrong])
    return tuple(items)


def revision(answer: object) -> str:
    """Text, which may be empty."""
    return _of_type(answer, str, "text")


def nothing(answer: object) -> None:
    """For methods that return nothing: whatever came is dropped, except work that was never done.

    A coroutine means that the provider is written for asyncio: nothing has happened."""
    if inspect.isawaitable(answer) or inspect.isgenerator(answer):
        raise _wrong_type(answer, "nothing")


def _items(answer: object, what: str) -> list[Any]:
    if isinstance(answer, str | bytes | Mapping) or not isinstance(answer, Iterable):
        raise _wrong_type(answer, f"a sequence of {what}")
    if isinstance(answer, list | tuple):
        return list(answer)
    call, found = current_call(), []
    for item in answer:  # a generator may have no end: its thread would go on after the deadline
        call.check()
        found.append(item)
        if len(found) > _MOST:
            raise WrongAnswer([f"it has more than {_MOST} items"])
    return found


def _address_problems(answer: Sequence[object]) -> list[str]:
    problems: list[str] = []
    for index, address in enumerate(answer):
        if not isinstance(address, V1NodeAddress):
            problems.append(f"address {index} is {kind_of(address)}, not V1NodeAddress")
            continue
        kind: Any = address.type
        value: Any = address.address
        if not isinstance(kind, str) or not isinstance(value, str):
            problems.append(
                f"address {index} has {type(kind).__name__} as type and {type(value).__name__} as address, not text"
            )
            continue
        faults = address_problems(address)
        if not faults and kind in _DNS_TYPES:
            named = len(value) <= 254 and _DNS_NAME.fullmatch(value)  # 253 and a final dot
            faults = () if named or parse_ip(value) else (f"{kind} {_show(value)} is no host name",)
        problems += faults
    return problems


def _label_problems(answer: object, where: str) -> list[str]:
    if not isinstance(answer, Mapping):
        return [f"{where} is {kind_of(answer)}, not a mapping"]
    problems = []
    for key, value in answer.items():
        if not isinstance(key, str) or not isinstance(value, str):
            problems.append(f"{where} has a label {_show(key)}: {_show(value)} that is not text")
            continue
        problems += [f"{where}: {fault}" for fault in label_key_problems(key)]
        problems += [f"{where}[{_show(key)}]: {fault}" for fault in label_value_problems(value)]
    return problems


def _label_value(value: object, name: str) -> list[str]:
    if not isinstance(value, str):
        return [f"{name} is {kind_of(value)}, not text"]
    return [f"{name}: {fault}" for fault in label_value_problems(value)]


def _of_type(answer: object, kind: type[T], wanted: str) -> T:
    if not isinstance(answer, kind):
        raise _wrong_type(answer, wanted)
    return answer


def _wrong_type(answer: object, wanted: str) -> WrongAnswer:
    hint = ""
    if inspect.iscoroutine(answer):
        answer.close()  # it will never be awaited; without this Python warns at some later time
        hint = " (a provider's methods are plain functions, not async)"
    elif answer is None:
        hint = " (is a return statement missing?)"
    return WrongAnswer([f"it is {kind_of(answer)}, not {wanted}{hint}"])


def _raise_for(problems: Sequence[str]) -> None:
    if problems:
        raise WrongAnswer(problems)


def kind_of(value: object) -> str:
    """What an answer is, in words: its type alone, as its repr may show what must not be shown."""
    return "None" if value is None else f"of type {type(value).__name__}"
