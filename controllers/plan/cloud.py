"""The cloud's stand-in in a plan run: no call changes it; each that would becomes a row of the
plan, and is answered.

What a call would do, and what later reads show, says the controller itself (`PlannedCalls` in its
entry). What a provider does by itself, in threads of its own or when it is initialised, no host can
see."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

from cloudprovider import InstanceState
from controllers.plan.rows import Plan
from controllers.registration.plan import PlannedCalls, Row, Subject
from controllers.runtime.clock import Clock

R = TypeVar("R")


class CloudStandIn:
    """Implements `controllers.cloudcalls.DryRunBackend`. Thread-safe."""

    def __init__(self, plan: Plan, planned: Iterable[PlannedCalls], clock: Clock) -> None:
        self._plan = plan
        self._writes: dict[str, Callable[..., Any]] = {}
        self._reads: dict[str, Callable[[str, Any], Any]] = {}
        for calls in planned:
            self._writes.update(calls.writes)
            self._reads.update(calls.reads)
        self._clock = clock
        self._lock = threading.Lock()
        self._gone: dict[str, list[float]] = {}

    def answer(self, method: str, key: str, args: tuple[Any, ...]) -> Any:
        """Record the call, and answer it."""
        planned = self._writes.get(method)
        if planned is not None:
            return planned(key, *args)
        kind, _, name = key.partition("/")
        self._plan.record(Row(controller="", subject=Subject(kind, name or "all"), action=method.replace("_", " ")))
        return None

    def shown(self, method: str, key: str, answer: R) -> R:
        """What a read shows after what was answered."""
        planned = self._reads.get(method)
        return answer if planned is None else cast(R, planned(key, answer))

    def stated(self, name: str, state: InstanceState | Exception) -> None:
        """Keep the row of answers "gone" of each node, with their times."""
        with self._lock:
            if state is InstanceState.GONE:
                self._gone.setdefault(name, []).append(self._clock.time())
            else:
                self._gone.pop(name, None)

    def evidence(self, name: str) -> str:
        """What the cloud said of a node's instance."""
        with self._lock:
            times = [datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S.%f")[:-3] for at in self._gone.get(name, ())]
        if not times:
            return ""
        return f"the cloud said that its instance is gone, {len(times)} times: {', '.join(times)} UTC"
