"""How the cloud is asked for the pod CIDRs that it chose (stage 5, cloud call): many nodes in a call, answers checked.

Nodes come in from the facade, whose fetch halves what fails; validated ranges go back through it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from cloudprovider import NotImplementedByProvider, PodCIDRs
from cloudprovider.helpers.ips import IPNetwork, parse_ip, parse_network
from controllers.cloudcalls import validate
from controllers.cloudcalls.answercache import AnswerCache
from controllers.cloudcalls.errors import InvalidAnswer
from controllers.cloudcalls.fetch import Way
from controllers.cloudcalls.gateway import Ask
from controllers.cloudcalls.instances import Program, Question, together
from controllers.cloudcalls.validate import BatchAnswer

__all__ = ["way"]

_METHOD = "pod_cidrs"


def way(capability: PodCIDRs, max_batch: int) -> Way[tuple[IPNetwork, ...]]:
    """How this capability is asked. No answer is remembered."""
    return Way(_no_other_way, partial(_batch, capability), max_batch, AnswerCache(0.0))


def _batch(capability: PodCIDRs, questions: Sequence[Question]) -> Ask[BatchAnswer[tuple[IPNetwork, ...]]]:
    return together(_METHOD, capability.pod_cidrs, questions, lambda _name, value: _ranges(value))


def _no_other_way(question: Question) -> Program[tuple[IPNetwork, ...]]:
    raise NotImplementedByProvider(
        f"the provider's {_METHOD} is not implemented: it has no pod CIDR for {question.name}"
    )


def _ranges(answer: object) -> tuple[IPNetwork, ...]:
    """Ranges without host bits, one of each IP family at most; none where the cloud has not chosen yet."""
    found: list[IPNetwork] = []
    problems = []
    for text in validate.texts(answer, method=_METHOD):
        try:
            net: IPNetwork | None = parse_network(text)
        except ValueError:
            net = None
        if net is None or net.network_address != parse_ip(text.partition("/")[0]):
            problems.append(f"{text[:60]!r} is not an IP range without host bits, such as 10.244.1.0/24")
        else:
            found.append(net)
    if len({net.version for net in found}) < len(found):
        problems.append(f"{', '.join(map(str, found))} are several ranges of one IP family")
    if problems:
        raise InvalidAnswer(_METHOD, problems)
    return tuple(found)
