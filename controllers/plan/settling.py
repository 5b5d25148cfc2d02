"""When the first pass of a dry run is over: nothing is left to do, as far as is known.

Controllers, caches, queues and the gateway say what is under way. A key that runs again only
because time passes counts as done, one that is due for another reason never, however late; one that
fails is tried a few times, and then given up as not known."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final

from controllers.cloudcalls import CloudCalls
from controllers.manager.accesscheck import AccessCheck
from controllers.manager.runner import Built
from controllers.plan.cluster import DryRunInterceptor
from controllers.plan.rows import Kind, Row, Subject
from controllers.runtime.clock import Clock
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import Unfinished, WorkQueueCollector

_TRIES: Final = 3
_LONGEST_RETRY: Final = 10.0  # seconds that the next try of a failing key is waited for
_MOMENT: Final = 3.0  # seconds until a controller that does not say when it works is taken to do so
_MOST_NAMED: Final = 5


class Settling:
    """What is left to do. Thread-safe."""

    def __init__(
        self,
        cluster: DryRunInterceptor,
        cloud: CloudCalls,
        access: AccessCheck,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._cloud = cloud
        self._access = access
        self._metrics = metrics
        self._clock = clock
        self._since = clock.monotonic()
        self._controllers: list[tuple[str, object]] = []

    def watch(self, built: Iterable[Built]) -> None:
        """These controllers are about to be started."""
        self._since = self._clock.monotonic()
        self._controllers = [(entry.name, controller) for entry, controller in built]

    def left(self) -> list[str]:
        """What is not done yet, for people; nothing when the first pass is over."""
        left = []
        if beginning := sum(not self._has_begun(controller) for _, controller in self._controllers):
            left.append(f"{beginning} controllers that begin")
        if not self._access.answered:
            left.append("questions about permissions")
        if self._cluster.busy():
            left.append("changes on their way from the caches")
        for queue in WorkQueueCollector.of(self._metrics).queues():
            keys = [str(one.key) for one in queue.unfinished() if not _is_over(one)]
            if keys:
                left.append(f"queue {queue.name}: {_few(keys)}")
        if calls := self._cloud.in_flight():
            left.append(f"{calls} calls to the cloud")
        waiting = [f"{subject} {why}" for _, subject, why, waits in self._undecided() if waits]
        if waiting:
            left.append(_few(waiting))
        return left

    def _has_begun(self, controller: object) -> bool:
        """Whether it is in full work. One that does not say so gets a moment."""
        begun: bool | None = getattr(controller, "begun", None)
        return self._clock.monotonic() - self._since >= _MOMENT if begun is None else begun

    def at_work(self) -> str:
        """The controller whose thread this is; "" where that is not known. By its name."""
        thread = threading.current_thread().name
        for queue in WorkQueueCollector.of(self._metrics).queues():
            if thread.rpartition("-")[0] == queue.name:
                return queue.controller
        return next((name for name, _ in self._controllers if thread.startswith(f"{name}-")), "")

    def undecided(self) -> list[Row]:
        """What controllers hold back."""
        return [
            Row(name, _subject(about), "delete", note=why, kind=Kind.HELD_BACK)
            for name, about, why, waits in self._undecided()
            if not waits
        ]

    def left_alone(self) -> list[Row]:
        """What an administrator keeps controllers from: nothing to be done, whatever the cloud
        says."""
        return [
            Row(name, _subject(about), "left alone", note=why, kind=Kind.WARNING)
            for name, controller in self._controllers
            for about, why in getattr(controller, "left_alone", tuple)()
        ]

    def unknown(self) -> list[Row]:
        """The keys whose work failed, or has not ended."""
        parked = self._cloud.parked()
        rows = []
        for queue in WorkQueueCollector.of(self._metrics).queues():
            for one in queue.unfinished():
                if not _failed(one) and one.failures:
                    continue
                why = one.problem or "not finished in time"
                if one.parked:
                    calls = [call for key, call in parked.items() if key.endswith(f"/{one.key}")]
                    why = ", ".join(f"{call.method}: no answer for {call.seconds:.0f} s" for call in calls) or why
                elif not _failed(one) and one.delay > 0:
                    why = f"not finished in time: it waits for another {one.delay:.1f} s"
                subject = _subject(f"{queue.noun}/{one.key}")
                rows.append(Row(queue.controller, subject, queue.name, note=why, kind=Kind.UNKNOWN))
        return rows

    def missing(self) -> list[Row]:
        """The permissions without which not all of the plan could be carried out."""
        return [
            Row(
                "",
                Subject("Permission", f"{rule.resource}: {', '.join(rule.verbs)}"),
                "missing",
                note=f"without it {rule.consequence}. Fix: {rule.fix()}",
                kind=Kind.WARNING,
            )
            for rule in self._access.missing
        ]

    def _undecided(self) -> list[tuple[str, str, str, bool]]:
        return [
            (name, *matter)
            for name, controller in self._controllers
            for matter in getattr(controller, "undecided", tuple)()
        ]


def _failed(one: Unfinished) -> bool:
    """Whether something about it is not known. "No such disk" is known: an Event reports it."""
    return bool(one.parked or one.problem)


def _is_over(one: Unfinished) -> bool:
    """Whether this key is no longer waited for."""
    # One that fails may succeed at its next try, and one that is parked never in this run.
    if _failed(one):
        return one.parked or one.failures >= _TRIES or one.delay > _LONGEST_RETRY
    return bool(one.failures and one.delay)


def _subject(about: str) -> Subject:
    kind, _, key = about.partition("/")
    namespace, _, name = key.rpartition("/")
    return Subject(_KINDS.get(kind, kind.capitalize()), name, namespace)


_KINDS: Final = {"persistentvolume": "PersistentVolume"}


def _few(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(sorted(names)[:_MOST_NAMED]) + more
