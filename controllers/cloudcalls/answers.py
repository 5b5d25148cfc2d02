"""What providers answer (stage 5, cloud call): judged by `cloudprovider.checks.answers`, in the
vendor thread, as an answer may be an object whose own code raises or hangs; bound to the node that
it is about; and kept for some seconds where that will do. Pure."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Generic, TypeVar

from attrs import frozen
from kubernetes.client.models.v1_node import V1Node

from cloudprovider import InstanceNotFound, Throttled
from cloudprovider.checks import answers
from cloudprovider.helpers import provider_id_of
from cloudprovider.internal.readonly import ordinary
from controllers.cloudcalls.errors import AnswerMissing, InvalidAnswer, translate
from controllers.runtime.cache import key_of, uid_of, version_of
from controllers.runtime.queue import AskAgain

A = TypeVar("A")

_LIMIT: Final = 20_000


def judge(check: Callable[[Any], A], method: str, answer: object) -> A:
    """A copy of the method's answer by `check` of `cloudprovider.checks.answers`. Raises
    InvalidAnswer."""
    try:
        copy: A = ordinary(check(answer))
    except answers.WrongAnswer as wrong:
        raise InvalidAnswer(method, wrong.problems, ordinary(wrong.usable)) from None
    return copy


@frozen
class BatchAnswer(Generic[A]):
    """A batch's answer taken apart: every name that was asked about has a value or an error."""

    values: Mapping[str, A | Exception]
    throttled: Throttled | None
    """The first value that says that the cloud throttles."""
    complete: bool
    """Whether no name got an error, nothing, or junk; "not found" is an answer."""


def by_name(
    nodes: Mapping[str, V1Node],
    check: Callable[[V1Node, object], A],
    method: str,
    answer: object,
    *,
    not_found: A | None = None,
) -> BatchAnswer[A]:
    """A batch answer about these nodes. `check(node, value)` judges one value, raising for that
    node alone. `not_found`: the value of a node of which the provider says so; None where that is
    an error.

    Raises InvalidAnswer when the whole is not a mapping: then nothing is known."""
    each = partial(answers.batch, names=nodes, check=lambda name, value: check(nodes[name], value))
    found = judge(each, method, answer)
    foreign = max(0, len(answer) - len(found)) if isinstance(answer, Mapping) else 0
    hint = f" ({foreign} names in it were not asked about: is it keyed by node name?)" if foreign else ""
    values: dict[str, A | Exception] = {}
    throttled, complete = None, True
    for name in nodes:
        value: A | Exception
        if name not in found:
            value = AnswerMissing(f"the provider's {method} said nothing about {name}{hint}")
        elif isinstance(said := found[name], answers.WrongAnswer):
            value = InvalidAnswer(method, said.problems, ordinary(said.usable))
        else:
            value = translate(said, method) if isinstance(said, BaseException) else said
        if isinstance(value, InstanceNotFound):
            values[name] = value if not_found is None else not_found
            continue
        values[name] = value
        if isinstance(value, Throttled):
            throttled = throttled or value
        complete = complete and not isinstance(value, Exception)
    return BatchAnswer(values, throttled, complete)


@frozen(eq=False)
class Answer(Generic[A]):
    """One answer, or one error, of the cloud. There is no way to its value past `of`: a Node can be
    deleted and made again while a call is under way, and what it gets from the cloud can never be
    changed. So a reconciler opens it with the node to be written."""

    node: V1Node
    """The version of the Node that the cloud was asked about."""
    unbound: A | Exception
    """The answer without that check: for metrics, and for callers that compare by themselves."""

    def of(self, node: V1Node) -> A:
        """What the cloud said of this node. Raises what the cloud said instead of an answer, and
        AskAgain when the question was about another Node of that name, or about an instance that
        the node does not name any more."""
        (uid, provider_id), now = _stands_for(self.node), _stands_for(node)
        if (uid, provider_id) != now:
            raise AskAgain(
                f"the cloud was asked about node {key_of(node)} with UID {uid} and provider ID "
                f"{provider_id or '(none)'}; it has UID {now[0]} and provider ID {now[1] or '(none)'} now"
            )
        if isinstance(self.unbound, Exception):
            raise self.unbound
        return self.unbound


class AnswerCache(Generic[A]):
    """Answers about nodes that are some seconds old. Fresh questions, on which a deletion may rest,
    read nothing here, and the state of an instance is never kept. Thread-safe. `ttl` in seconds,
    from the question on: 0 keeps none."""

    def __init__(self, ttl: float) -> None:
        self._ttl = ttl
        self._lock = threading.Lock()
        self._kept: OrderedDict[object, tuple[float, A]] = OrderedDict()  # by the time of the question

    def __len__(self) -> int:
        return len(self._kept)

    def recall(self, node: V1Node, now: float) -> A | None:
        """The answer kept, if it is young enough."""
        with self._lock:
            asked_at, answer = self._kept.get(_question(node), (-math.inf, None))
        return answer if now - asked_at < self._ttl else None

    def keep(self, node: V1Node, answer: A, asked_at: float, now: float) -> None:
        """Keep the answer to a question of time `asked_at`, unless a newer one is here."""
        what = _question(node)
        with self._lock:
            if what not in self._kept or self._kept[what][0] <= asked_at:
                self._kept[what] = (asked_at, answer)
                self._kept.move_to_end(what)
            while self._kept:
                oldest, _ = next(iter(self._kept.values()))
                if now - oldest < self._ttl and len(self._kept) <= _LIMIT:
                    return
                self._kept.popitem(last=False)


def _stands_for(node: V1Node) -> tuple[str, str]:
    """UID and provider ID: which Node it is, and of which instance."""
    return uid_of(node), provider_id_of(node)


def _question(node: V1Node) -> tuple[str, ...]:
    """What must be equal for two questions to be the same: the instance. Without a provider ID a
    vendor may look at anything of the node, so then it is the revision."""
    uid, provider_id = _stands_for(node)
    return (key_of(node), uid, provider_id, "" if provider_id else version_of(node))
