"""The cloud's answers about nodes that are not ready, in their order.

In memory alone: a manager that starts anew asks anew, with the full number of answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from attrs import evolve, frozen

from cloudprovider import InstanceState
from cloudprovider.helpers import provider_id_of
from cloudprovider.internal.backoff import NO_ATTEMPTS, Attempts
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
class NodeVotes:
    """The cloud's answers about one node that is not ready. Times are of the monotonic clock.

    A row of answers is unbroken: another answer, an unknown, another UID or provider ID, or a node
    that turns ready begins it anew.
    """

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
    reported_at: float | None = None
    """When the last Event said that it is unknown."""
    gone_since: float | None = None
    """When it was first said to be gone. A failure to answer does not undo it, unlike `since`."""
    held: bool = False
    """Confirmed gone, and held back: the cloud is not believed, or the count is used up."""
    why: str = ""
    """Why it is not deleted yet, for people."""
    held_reported: bool = False
    """An Event said so."""
    out_of_service: bool = False
    """The out-of-service taint was written since the first answer of this row. It is written once:
    removing it is final."""
    released: bool = False
    """Held back once, and let go by an operator."""
    anew: Attempts = NO_ATTEMPTS
    """How often in a row it could not be created anew."""
    rests_until: float = 0.0
    """Before that, no sweep queues it: it has a timer of its own."""

    def is_of(self, node: V1Node) -> bool:
        """Whether this is about that very node and instance."""
        return (self.uid, self.provider_id) == (uid_of(node), provider_id_of(node))


def counted(votes: NodeVotes | None, answer: StateAnswer, period: float) -> NodeVotes:
    """The votes after one more answer. Pure."""
    if votes is None or not votes.is_of(answer.node):
        votes = NodeVotes(uid_of(answer.node), provider_id_of(answer.node))
    if isinstance(answer.state, Exception):
        since = answer.asked_at if votes.unknown_since is None else votes.unknown_since
        return NodeVotes(
            votes.uid,
            votes.provider_id,
            unknown_since=since,
            problem=str(answer.state)[:500],
            reported_at=votes.reported_at,
            gone_since=votes.gone_since,
            held_reported=votes.held_reported,
        )
    if votes.state is not answer.state:
        at = answer.answered_at
        fresh = NodeVotes(votes.uid, votes.provider_id, answer.state, since=at, counted_at=at, answers=1)
        if answer.state is not InstanceState.GONE:
            return fresh
        gone_since = at if votes.gone_since is None else votes.gone_since
        return evolve(fresh, gone_since=gone_since, held_reported=votes.held_reported)
    if answer.asked_at - votes.counted_at < period - _ROUNDING:  # too soon to be another answer
        return votes
    return evolve(votes, counted_at=answer.answered_at, answers=votes.answers + 1)


class DeletionVotes:
    """The votes by node name. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._votes: dict[str, NodeVotes] = {}

    def get(self, name: str) -> NodeVotes | None:
        """The votes about this node; None without any."""
        return self._votes.get(name)

    def add(self, name: str, answer: StateAnswer, period: float) -> NodeVotes:
        """Add one more answer about the node; returns its votes."""
        with self._lock:
            votes = self._votes[name] = counted(self._votes.get(name), answer, period)
            return votes

    def replace(self, name: str, old: NodeVotes, new: NodeVotes) -> None:
        """Replace the node's votes, unless they are not `old` any more."""
        with self._lock:
            if self._votes.get(name) is old:
                self._votes[name] = new

    def forget(self, name: str) -> None:
        """The node is ready, deleted, or another one."""
        with self._lock:
            self._votes.pop(name, None)

    def keep(self, names: Collection[str]) -> None:
        """Forget all but these."""
        with self._lock:
            for name in self._votes.keys() - names:
                del self._votes[name]

    def lasting_unknowns(self, now: float, after: float) -> list[tuple[str, NodeVotes]]:
        """The nodes unknown for `after` seconds or more."""
        return self._where(lambda one: one.unknown_since is not None and now - one.unknown_since >= after)

    def gone(self) -> list[tuple[str, NodeVotes]]:
        """The nodes that are said to be gone."""
        return self._where(lambda one: one.state is InstanceState.GONE)

    def unreported(self, now: float, after: float) -> list[tuple[str, NodeVotes]]:
        """The nodes that were said to be gone `after` seconds ago or more, without an Event that
        says why they are still there."""
        return self._where(
            lambda one: one.gone_since is not None and now - one.gone_since >= after and not one.held_reported
        )

    def held(self) -> int:
        """How many nodes are held back."""
        return len(self._where(lambda one: one.held))

    def release_held(self) -> int:
        """Release the nodes that are held back at this moment; returns how many. Another answer of
        the cloud undoes it."""
        with self._lock:
            held = [name for name, one in self._votes.items() if one.held]
            for name in held:
                self._votes[name] = evolve(self._votes[name], held=False, released=True)
            return len(held)

    def _where(self, wanted: Callable[[NodeVotes], bool]) -> list[tuple[str, NodeVotes]]:
        with self._lock:
            return [(name, one) for name, one in self._votes.items() if wanted(one)]
