"""What is wrong with a provider's answers: problems in words, an empty list for an answer that the host would take.

Pure. For `node-info`, and for the conformance suite, where a vendor sees it first. The manager checks the same in
`controllers.cloudcalls`, before it writes anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_network

from kubernetes.client.models.v1_load_balancer_ingress import V1LoadBalancerIngress
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_node_address import V1NodeAddress

from cloudprovider.helpers.addresses import address_problems
from cloudprovider.helpers.ips import IPNetwork, parse_ip, parse_network
from cloudprovider.helpers.labels import is_kubernetes_label, label_problems, label_value_problems
from cloudprovider.instances import InstanceMetadata
from cloudprovider.zones import Zone

__all__ = [
    "addresses_problems",
    "cidrs_problems",
    "labels_problems",
    "metadata_problems",
    "networks_of",
    "place_problems",
    "status_problems",
    "told",
]


def told(problems: Iterable[str]) -> str:
    """All problems, one a line."""
    return "\n  ".join(["", *problems])


def metadata_problems(answer: object, prefixes: Sequence[str], *, strict: bool = True) -> list[str]:
    """Of an `InstanceMetadata`: type, provider ID, addresses, and everything that becomes a label.

    `strict`: also what the manager lives with: no address at all, and labels of Kubernetes itself, which it leaves out.
    """
    if not isinstance(answer, InstanceMetadata):
        return [f"it is {_kind(answer)}, not InstanceMetadata"]
    problems = _provider_id_problems(answer.provider_id, prefixes)
    if answer.node_addresses or strict:
        problems += addresses_problems(answer.node_addresses)
    for name in ("instance_type", "zone", "region"):
        problems += [f"{name}: {problem}" for problem in label_value_problems(getattr(answer, name))]
    problems += [f"additional_labels: {problem}" for problem in label_problems(answer.additional_labels)]
    problems += [
        f"additional_labels: {key!r} is a label of Kubernetes itself, which the host refuses"
        for key in answer.additional_labels
        if strict and is_kubernetes_label(key)
    ]
    return problems


def addresses_problems(answer: object) -> list[str]:
    """Of node addresses: a sequence of V1NodeAddress, of known types, at least one."""
    if isinstance(answer, str | bytes | Mapping) or not isinstance(answer, Iterable):
        return [f"the addresses are {_kind(answer)}, not a sequence of V1NodeAddress"]
    addresses = list(answer)
    wrong = [f"address {i} is {_kind(one)}" for i, one in enumerate(addresses) if not isinstance(one, V1NodeAddress)]
    if wrong or not addresses:
        return wrong or ["there is no address at all"]
    return [problem for address in addresses for problem in address_problems(address)]


def place_problems(answer: object) -> list[str]:
    """Of a `Zone`: type, and both values as label values."""
    if not isinstance(answer, Zone):
        return [f"it is {_kind(answer)}, not Zone"]
    places = {"failure_domain": answer.failure_domain, "region": answer.region}
    return [f"{name}: {problem}" for name, value in places.items() for problem in label_value_problems(value)]


def labels_problems(answer: object) -> list[str]:
    """Of labels: a mapping of texts that the API server takes."""
    if not isinstance(answer, Mapping):
        return [f"it is {_kind(answer)}, not a mapping"]
    if not all(isinstance(key, str) and isinstance(value, str) for key, value in answer.items()):
        return [f"it has names or values that are no texts: {answer!r}"]
    return list(label_problems(answer))


def status_problems(answer: object) -> list[str]:
    """Of a load balancer's status: type, and an IP address or a host name at each point."""
    if not isinstance(answer, V1LoadBalancerStatus):
        return [f"it is {_kind(answer)}, not V1LoadBalancerStatus"]
    points: object = answer.ingress or []
    if not isinstance(points, list):
        return [f"ingress is {_kind(points)}, not a list"]
    problems = []
    for index, point in enumerate(points):
        if not isinstance(point, V1LoadBalancerIngress):
            problems.append(f"ingress[{index}] is {_kind(point)}, not V1LoadBalancerIngress")
        elif not point.ip and not point.hostname:
            problems.append(f"ingress[{index}] has neither ip nor hostname")
        elif point.ip and parse_ip(point.ip) is None:
            problems.append(f"ingress[{index}].ip {point.ip!r} is no IP address")
    return problems


def cidrs_problems(answer: object) -> list[str]:
    """Of a node's pod CIDRs: a sequence of ranges without host bits, one of each IP family at most."""
    if isinstance(answer, str | bytes | Mapping) or not isinstance(answer, Sequence):
        return [f"the pod CIDRs are {_kind(answer)}, not a sequence of texts"]
    problems = []
    for text in answer:
        try:
            ip_network(text)
        except (TypeError, ValueError):
            problems.append(f"{text!r} is not an IP range without host bits, such as 10.244.1.0/24")
    versions = [net.version for net in networks_of(answer)]
    return problems or (["several ranges have one IP family"] if len(set(versions)) < len(versions) else [])


def networks_of(answer: object) -> list[IPNetwork]:
    """The ranges among pod CIDRs; none where the answer is an error, or junk."""
    if isinstance(answer, str | bytes) or not isinstance(answer, Sequence):
        return []
    found = []
    for text in answer:
        with suppress(ValueError):
            found.append(parse_network(str(text)))
    return found


def _provider_id_problems(provider_id: str, prefixes: Sequence[str]) -> list[str]:
    if provider_id and (provider_id.split() != [provider_id] or not provider_id.isprintable()):
        return [f"provider_id {provider_id!r} has blanks or control characters"]
    if not prefixes:
        return []
    if not provider_id:
        return ["provider_id is empty"]
    prefix = next((one for one in prefixes if provider_id.startswith(one)), None)
    if prefix is None:
        return [f"provider_id {provider_id!r} does not begin with {' or '.join(map(repr, prefixes))}"]
    if not provider_id[len(prefix) :].strip("/"):
        return [f"provider_id {provider_id!r} names no instance"]
    return []


def _kind(value: object) -> str:
    return "None (is a return statement missing?)" if value is None else f"of type {type(value).__name__}"
