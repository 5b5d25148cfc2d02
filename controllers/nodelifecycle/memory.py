"""Stage 4, its memory: what is remembered between two answers. Candidates for deletion, samples of
Ready nodes, and what this process itself saw of each node.

In memory alone: a manager that starts asks again, with the full number of answers. What is kept
goes when the node does; nothing else is remembered of what the cloud once said."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from attrs import define, evolve, field, frozen

from cloudprovider import InstanceState
from cloudprovider.helpers import is_ready
from cloudprovider.helpers.objects import needs_initialization
from controllers.nodelifecycle.changes import Attention, attention, can_be_sampled, hands_off, identity_of, zone_of
from controllers.nodelifecycle.deletion import SAMPLE, Candidate, Identity, Sample, StateAnswer, counted
from controllers.runtime.cache import key_of, uid_of

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.nodelifecycle.registration import NodeLifecycleOptions
    from controllers.runtime.cache import Lister
    from controllers.runtime.clock import Clock
    from controllers.runtime.write import EventRecorder


class Candidates:
    """The candidates by node name. Thread-safe. `held` is kept with each change: where a zone died
    it is asked for at every answer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: dict[str, Candidate] = {}
        self._held = 0

    @property
    def held(self) -> int:
        """How many are held back."""
        return self._held

    def get(self, name: str) -> Candidate | None:
        """The candidate of this name, or None."""
        return self._all.get(name)

    def add(self, name: str, answer: StateAnswer, period: float) -> Candidate:
        """Add one more answer about the node; returns the candidate."""
        with self._lock:
            one = counted(self._all.get(name), answer, period)
            self._put(name, one)
            return one

    def note(self, name: str, one: Candidate, **fields: Any) -> Candidate:
        """Note these fields of the candidate, unless another thread has changed it; returns it
        with them."""
        noted = evolve(one, **fields)
        with self._lock:
            if self._all.get(name) is one:
                self._put(name, noted)
        return noted

    def forget(self, name: str) -> None:
        """The node is ready, deleted, or another one."""
        with self._lock:
            self._put(name, None)

    def keep(self, names: Collection[str]) -> None:
        """Forget all but these."""
        with self._lock:
            for name in self._all.keys() - names:
                self._put(name, None)

    def release_held(self) -> int:
        """Release the nodes that are held back at this moment; returns how many. Another answer of
        the cloud undoes it."""
        with self._lock:
            held = [name for name, one in self._all.items() if one.held]
            for name in held:
                self._put(name, evolve(self._all[name], held=False, released=True))
            return len(held)

    def all(self) -> list[tuple[str, Candidate]]:
        """All of this moment."""
        with self._lock:
            return list(self._all.items())

    def lasting_unknowns(self, now: float, after: float) -> list[tuple[str, Candidate]]:
        """Those that the cloud has said nothing of for `after` seconds or more."""
        return [
            (name, one)
            for name, one in self.all()
            if one.unknown_since is not None and now - one.unknown_since >= after
        ]

    def _put(self, name: str, one: Candidate | None) -> None:
        old = self._all.pop(name, None)
        self._held += (one is not None and one.held) - (old is not None and old.held)
        if one is not None:
            self._all[name] = one


@define(eq=False)
class _Said:
    """The cloud's last word about a node of a list."""

    asked_at: float
    gone: bool = True


@define(eq=False)
class _Zone:
    ready: list[str] = field(factory=list)  # names; of the last look at all nodes
    last: Sample | None = None
    drawn_at: float | None = None  # a sample is being asked about since then


class Samples:
    """The Ready nodes that the cloud is asked about, and what it says of them. Thread-safe.

    Candidates of a zone share a sample, as long as it is fresh: one is drawn in a monitor period at
    most, by whoever needs it first."""

    def __init__(self, period: float, rng: random.Random | None = None) -> None:
        self._period = period
        self._rng = rng or random.Random()
        self._lock = threading.Lock()
        self._zones: dict[str, _Zone] = {}
        self._said: dict[Identity, _Said] = {}

    def look(self, ready: Mapping[str, list[str]], lists: Iterable[Sample]) -> None:
        """These are the Ready nodes of each zone, and the samples of all candidates."""
        wanted = {identity for sample in lists for identity in sample.gone}
        with self._lock:
            for zone in ready.keys() | self._zones.keys():
                found = self._zones.setdefault(zone, _Zone())
                found.ready = ready.get(zone, [])
                if not found.ready and found.drawn_at is None:  # else `close` follows
                    del self._zones[zone]
            self._said = {identity: said for identity, said in self._said.items() if identity in wanted}

    def latest(self, zone: str, not_before: float) -> Sample | None:
        """The zone's sample, if it was asked about at `not_before` or later; an empty one where
        there is no Ready node."""
        with self._lock:
            found = self._zones.get(zone)
            if found is None:
                return Sample(not_before)  # nobody can be asked: then the limit decides
            return found.last if found.last and found.last.asked_at >= not_before else None

    def draw(self, zone: str, usable: Callable[[str], V1Node | None], now: float) -> list[V1Node] | None:
        """Whom to ask about now for a new sample of the zone; None while another thread asks. Else
        `close` must follow."""
        with self._lock:
            found = self._zones.get(zone)
            if found is None or found.drawn_at is not None:
                return None
            found.drawn_at = now
            # Those that other candidates of the zone wait for come with it: once one of them has
            # met a lie, a lucky draw helps no later one.
            listed = [identity[0] for identity, said in self._said.items() if said.gone]
            names = list(found.ready)
        # At random: the first thirty by name may be one pool, about which alone the cloud is right.
        self._rng.shuffle(names)
        drawn = (itertools.islice(filter(None, map(usable, those)), SAMPLE) for those in (names, listed))
        return list({key_of(node): node for node in itertools.chain(*drawn)}.values())

    def close(self, zone: str, drawn: Sequence[V1Node], said: Mapping[str, object] | None) -> None:
        """What was said of those that were drawn, by name; None: the question failed."""
        with self._lock:
            found = self._zones[zone]
            asked_at, found.drawn_at = found.drawn_at, None
            if said is None or asked_at is None:
                return
            states = [(identity_of(node), said.get(key_of(node))) for node in drawn]
            gone = tuple(identity for identity, state in states if state is InstanceState.GONE)
            existing = sum(state in (InstanceState.RUNNING, InstanceState.SHUTDOWN) for _, state in states)
            found.last = Sample(asked_at, len(drawn), existing, gone)
            self._said.update((identity, _Said(asked_at)) for identity in gone)

    def ask_again(self, sample: Sample, now: float) -> list[Identity]:
        """Those of this list whom to ask about now: each once in a period, by one thread."""
        with self._lock:
            due = []
            # A thousand candidates may share this list, and each comes back once in a period.
            for identity in sample.gone:
                said = self._said.setdefault(identity, _Said(sample.asked_at))
                if now - said.asked_at >= self._period:
                    said.asked_at = now
                    due.append(identity)
            return due

    def note(self, identity: Identity, *, gone: bool) -> None:
        """The cloud's word about a node of a list. Without a word it stands as it was."""
        with self._lock:
            if identity in self._said:
                self._said[identity].gone = gone

    def called_gone(self, sample: Sample) -> list[Identity]:
        """Those of this list that the cloud still calls gone."""
        with self._lock:
            return [one for one in sample.gone if (said := self._said.get(one)) is None or said.gone]


SETTLED: Final = 600.0
"""Seconds after which an instance that the cloud still calls existing is taken for the same one,
reinstalled, where its kubelet reports another machine. A cloud may know a terminated instance for a
while."""


@frozen
class Shared:
    """Cache, memory and options of one controller, and what it knows of a node. Thread-safe."""

    lister: Lister[V1Node]
    candidates: Candidates
    samples: Samples
    recorder: EventRecorder
    clock: Clock
    options: NodeLifecycleOptions
    prefixes: Sequence[str]
    """How the provider's IDs begin."""
    moves: dict[str, tuple[str, float]] = field(factory=dict)
    """By name: the UID of a node whose kubelet has changed the machine, and since when."""
    stages: dict[str, tuple[tuple[str, bool], float]] = field(factory=dict)
    """By name: the UID of a node, whether it is initialised, and since when that is known here."""

    def now(self) -> float:
        """Seconds of the monotonic clock, as in the candidates."""
        return self.clock.monotonic()

    def age(self, node: V1Node) -> float:
        """Seconds since this process first saw this very node, or last saw it initialised."""
        # By its creation time a manager whose clock is ahead would take a node that joins for old.
        stage = uid_of(node), needs_initialization(node)
        known = self.stages.get(key_of(node))
        if known is None or known[0] != stage:
            known = self.stages[key_of(node)] = stage, self.now()
        return self.now() - known[1]

    def is_young(self, node: V1Node) -> bool:
        """Whether a cloud may not list its machine yet, which has just been built."""
        return self.age(node) < self.options.young_grace

    def moved(self, node: V1Node) -> bool:
        """Whether its kubelet has changed the machine, by its own word, since this process has
        known the node."""
        found = self.moves.get(key_of(node))
        return found is not None and found[0] == uid_of(node)

    def exists(self, node: V1Node) -> None:
        """The cloud calls the instance of this node existing."""
        found = self.moves.get(key_of(node))
        if found is not None and self.now() - found[1] >= SETTLED:
            self.moves.pop(key_of(node), None)

    def forget(self, name: str) -> None:
        """The node was deleted."""
        self.candidates.forget(name)
        self.stages.pop(name, None)
        self.moves.pop(name, None)

    def attention(self, node: V1Node) -> Attention:
        """What this node needs now."""
        options = self.options
        return attention(
            node,
            self.prefixes,
            self.age(node),
            options.uninitialized_grace_period,
            moved=self.moved(node),
            out_of_service=options.out_of_service_taint,
        )

    def sampled(self, zone: str, name: str) -> V1Node | None:
        """The node of this name, if it can be in a sample of the zone; else None."""
        node = self.lister.get(name)
        if node is None or zone_of(node) != zone or self.is_young(node) or self.moved(node):
            return None
        return node if can_be_sampled(node, self.prefixes) else None

    def ready_node(self, identity: Identity) -> V1Node | None:
        """The node that is this, if it is Ready on the same machine as before: on another one it
        says nothing about the instance of its ID."""
        node = self.lister.get(identity[0])
        if node is None or hands_off(node):  # an administrator knows better than the cloud
            return None
        return node if identity_of(node) == identity and is_ready(node) and not self.moved(node) else None

    def still(self, sample: Sample) -> list[str]:
        """The names of this sample's list that are still Ready and still called gone."""
        called = self.samples.called_gone(sample)
        return [identity[0] for identity in called if self.ready_node(identity) is not None]
