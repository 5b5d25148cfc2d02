"""What is known of the nodes that are not ready: the cloud's answers in their order (between stages 5 and 4).

`reconcile.py` files each answer here and reads what has been confirmed; `triggers.py` reads which nodes rest until a
certain time. In memory alone: a manager that starts anew asks anew, and needs the full number of answers again.

A row of answers is unbroken: another answer, an unknown, another UID or provider ID, or a node that turns ready begins
it anew. Answers count that were asked for at least a period after the last one that counted had come.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from attrs import evolve, frozen

from cloudprovider import InstanceState
from cloudprovider.helpers import provider_id_of
from controllers.runtime.cache import uid_of

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

_ROUNDING: Final = 1e-6


@frozen(eq=False)
class StateAnswer:
    """What the cloud said of a node, and of which instance it was asked."""

    node: V1Node
    """The node as it was when the question was put."""
    asked_at: float
    answered_at: float
    state: InstanceState | Exception


@frozen
class Case:
    """One node that is not ready. Times are of the monotonic clock."""

    uid: str
    provider_id: str
    state: InstanceState | None = None
    """The last answer; None: unknown."""
    since: float = 0.0
    """When the first answer of this row came."""
    counted_at: float = 0.0
    """When the last answer that counts came."""
    answers: int = 0
    """How many of the row count."""
    unknown_since: float | None = None
    """When the first of a row of unknowns was asked for."""
    problem: str = ""
    """The last unknown's message."""
    told_at: float | None = None
    """When its owner was last told that it is unknown."""
    held: bool = False
    """Confirmed gone, and held back: the cloud is not believed, or the count is used up."""
    held_told: bool = False
    """Its owner was told so."""
    out_of_service: bool = False
    """The out-of-service taint was written since the first answer of this row: who removes it has the last word."""
    released: bool = False
    """Held back once, and let go by an operator."""
    rests_until: float = 0.0
    """Before that, no sweep needs to ask: a timer of its own brings it up."""

    def is_of(self, node: V1Node) -> bool:
        """Whether this is about that very node and instance."""
        return (self.uid, self.provider_id) == (uid_of(node), provider_id_of(node))


def judged(case: Case | None, answer: StateAnswer, period: float) -> Case:
    """The case after one more answer. Pure."""
    if case is None or not case.is_of(answer.node):
        case = Case(uid_of(answer.node), provider_id_of(answer.node))
    if isinstance(answer.state, Exception):
        since = answer.asked_at if case.unknown_since is None else case.unknown_since
        return Case(
            case.uid, case.provider_id, unknown_since=since, problem=str(answer.state)[:500], told_at=case.told_at
        )
    if case.state is not answer.state:
        at = answer.answered_at
        return Case(case.uid, case.provider_id, answer.state, since=at, counted_at=at, answers=1)
    if answer.asked_at - case.counted_at < period - _ROUNDING:
        return case
    return evolve(case, counted_at=answer.answered_at, answers=case.answers + 1)


class Cases:
    """The cases by node name. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cases: dict[str, Case] = {}

    def get(self, name: str) -> Case | None:
        """The node's case, None without one."""
        return self._cases.get(name)

    def file(self, name: str, answer: StateAnswer, period: float) -> Case:
        """File one more answer about the node; returns its case."""
        with self._lock:
            case = self._cases[name] = judged(self._cases.get(name), answer, period)
            return case

    def replace(self, name: str, old: Case, new: Case) -> None:
        """File the node's case, unless there is another one than `old` by now."""
        with self._lock:
            if self._cases.get(name) is old:
                self._cases[name] = new

    def forget(self, name: str) -> None:
        """Close the node's case: it is ready, deleted, or another one."""
        with self._lock:
            self._cases.pop(name, None)

    def keep(self, names: Collection[str]) -> None:
        """Forget all but these."""
        with self._lock:
            for name in [name for name in self._cases if name not in names]:
                del self._cases[name]

    def lasting_unknowns(self, now: float, after: float) -> list[tuple[str, Case]]:
        """The cases unknown for `after` seconds or more."""
        with self._lock:
            listed = list(self._cases.items())
        return [(n, c) for n, c in listed if c.unknown_since is not None and now - c.unknown_since >= after]

    def gone(self) -> list[tuple[str, Case]]:
        """The cases of nodes that are said to be gone."""
        with self._lock:
            return [(name, case) for name, case in self._cases.items() if case.state is InstanceState.GONE]

    def held(self) -> int:
        """How many nodes are held back."""
        with self._lock:
            return sum(case.held for case in self._cases.values())

    def release_held(self) -> int:
        """Let those go that are held back at this moment; returns how many. Another answer of the cloud undoes it."""
        with self._lock:
            held = [(name, case) for name, case in self._cases.items() if case.held]
            for name, case in held:
                self._cases[name] = evolve(case, held=False, released=True)
            return len(held)
