"""Events for people (stage 6): reported by any controller, written to the cluster beside its work.

Reconcilers (stage 4) call `EventRecorder.event`, which takes microseconds and never fails for the cluster's sake. A few
writer threads take what was reported, let `eventcorrelation.py` count and combine it, and create or patch the Event
objects, which `kubectl describe` shows with their object. What is about one object is written by one thread, in order.

Nothing waits for ever: the queue is bounded, each write is tried a bounded number of times, and what is dropped is
counted by reason and logged.

Follows client-go's tools/record and
https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/ (the core/v1 form, as Go's controllers).
"""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Final
from urllib.parse import quote

from controllers.runtime.apierrors import (
    AlreadyExists,
    ApiError,
    ClientClosed,
    Conflict,
    Forbidden,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from controllers.runtime.cleaning import one_line
from controllers.runtime.clock import SYSTEM_CLOCK, Clock, wait_for
from controllers.runtime.eventcorrelation import MAX_MESSAGE, Correlator, Entry, Happening, Reference, reference
from controllers.runtime.metrics import Metrics
from controllers.runtime.reachability import Recovery
from controllers.runtime.restclient import MERGE_PATCH, METADATA_ONLY, RestClient

__all__ = ["EventRecorder", "Reference", "reference"]

log = logging.getLogger(__name__)

WRITERS: Final = 4
CAPACITY: Final = 16384
MAX_TRIES: Final = 12
FORBIDDEN_TRIES: Final = 6
"""A freshly started API server answers 403 for a moment, until it has read its roles: no reason to lose an Event."""
"""Tries of one Event that the server answers with an error, or not at all; as client-go's broadcaster."""
REQUEST_TIMEOUT: Final = 10.0
_FIRST_PAUSE, _LAST_PAUSE, _STOPPING_PAUSE = 0.5, 10.0, 0.1
_LOG_SECONDS: Final = 60.0

_TRANSIENT: Final = (Unauthorized, TooManyRequests, ServerError, Unreachable, Conflict)
_LATER: Final = "retries"
_FORBIDDEN: Final = "forbidden"


class EventRecorder:
    """Reports Events under one component's name; thread-safe. Its threads start with the first Event.

    `stop` writes what is left; until then nothing has to be called. Metrics: event_recorder_writes_total{component,
    operation}, event_recorder_merged_total{component}, event_recorder_dropped_total{component,reason}.
    """

    def __init__(
        self,
        rest: RestClient,
        component: str,
        *,
        clock: Clock = SYSTEM_CLOCK,
        metrics: Metrics | None = None,
        host: str = "",
        writers: int = WRITERS,
        capacity: int = CAPACITY,
        correlator: Callable[[], Correlator] = Correlator,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """`capacity`: Events waiting, over all writers. `jitter` gives numbers in [0, 1)."""
        metrics = metrics or Metrics()
        counts = _Counts(metrics, component, clock)
        self._clock = clock
        self._counts = counts
        self._lanes = tuple(
            _Lane(
                rest,
                component,
                host,
                clock=clock,
                counts=counts,
                capacity=max(1, capacity // writers),
                correlator=correlator(),
                jitter=jitter,
                name=f"{component}-events-{number}",
            )
            for number in range(writers)
        )

    def event(self, obj: Any, type: str, reason: str, message: str) -> None:
        """Report that something happened to an object: a model, raw JSON or a Reference.

        `type` is "Normal" or "Warning", `reason` one CamelCase word for machines, `message` a sentence for people,
        which is cleaned (`cleaning.py`: tenants read Events) and cut at 1,024 characters. Returns at once; when the
        queue is full, the Event is dropped and counted. Raises ValueError for another type, an empty reason, or an
        object without kind or name.
        """
        if type not in ("Normal", "Warning") or not reason or len(reason) > 128:
            raise ValueError(f"an Event's type is Normal or Warning and its reason a word: {type!r}, {reason!r}")
        message = one_line(message, MAX_MESSAGE)
        ref = reference(obj)
        now = self._clock.time()
        happening = Happening(ref, type, reason, message, now, now)
        log.debug("Event %s %s: %s %s/%s: %s", type, reason, ref.kind, ref.namespace, ref.name, message)
        lane = self._lanes[hash((ref.kind, ref.namespace, ref.name)) % len(self._lanes)]
        refusal = lane.put(happening)
        if refusal:
            self._counts.drop(refusal, f"{reason} about {ref.kind} {ref.namespace}/{ref.name}")

    def flush(self, timeout: float) -> bool:
        """Wait until everything reported so far is written or dropped; False when `timeout` seconds were too short."""
        deadline = self._clock.monotonic() + timeout
        return all(lane.wait_idle(deadline - self._clock.monotonic()) for lane in self._lanes)

    def stop(self, timeout: float) -> bool:
        """Take no more Events, write what is left within `timeout` seconds, drop the rest, and end the threads.

        True when nothing was left. May be called twice. A thread inside a request that does not return is left behind.
        """
        for lane in self._lanes:
            lane.close()
        flushed = self.flush(timeout)
        left = sum(lane.end() for lane in self._lanes)
        if left:
            self._counts.drop("stopped", "the last ones", left)
        return flushed and not left


class _Lane:
    """One writer thread with its queue and memory. Every object belongs to one lane, so its Events keep their order."""

    def __init__(
        self,
        rest: RestClient,
        component: str,
        host: str,
        *,
        clock: Clock,
        counts: _Counts,
        capacity: int,
        correlator: Correlator,
        jitter: Callable[[], float],
        name: str,
    ) -> None:
        self._rest = rest
        self._component = component
        self._host = host
        self._clock = clock
        self._counts = counts
        self._capacity = capacity
        self._correlator = correlator
        self._jitter = jitter
        self._name = name
        self._condition = threading.Condition(threading.Lock())
        self._inbox: deque[Happening] = deque()
        self._waiting: dict[tuple[Hashable, ...], Happening] = {}
        self._again: deque[Entry] = deque()
        self._thread: threading.Thread | None = None
        self._busy = False
        self._closed = False
        self._ended = False
        self._failures = 0
        self._resume_at = float("-inf")
        self._turn = False
        self._recovery: Recovery | None = None

    def put(self, happening: Happening) -> str:
        """Queue something; "" or the reason why it was dropped."""
        key = happening.key
        with self._condition:
            if self._closed:
                return "stopped"
            same = self._waiting.get(key)
            if same is not None:  # not yet written: one write will tell of both
                same.count += 1
                same.last_at = max(same.last_at, happening.last_at)
                self._counts.merged.inc()
                return ""
            if len(self._inbox) + len(self._again) >= self._capacity:
                return "queue_full"
            self._waiting[key] = happening
            self._inbox.append(happening)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            elif not self._busy:
                self._condition.notify_all()
            return ""

    def wait_idle(self, timeout: float) -> bool:
        with self._condition:
            return wait_for(self._clock, self._condition, lambda: self._ended or self._idle(), max(0.0, timeout))

    def close(self) -> None:
        with self._condition:
            self._closed = True
            self._resume_at = min(self._resume_at, self._clock.monotonic() + _STOPPING_PAUSE)
            self._condition.notify_all()

    def end(self) -> int:
        """End the thread; returns how many Events are left unwritten."""
        with self._condition:
            left = len(self._inbox) + len(self._again) + (1 if self._busy else 0)
            self._ended = True
            self._inbox.clear()
            self._waiting.clear()
            self._again.clear()
            self._condition.notify_all()
            thread, busy = self._thread, self._busy
        if thread is not None and not busy:
            thread.join()
        return left

    def _idle(self) -> bool:
        return not (self._inbox or self._again or self._busy)

    def _run(self) -> None:
        while (work := self._take()) is not None:
            entry = None
            try:
                entry = work if isinstance(work, Entry) else self._observe(work)
                if entry is not None and entry.dirty:
                    self._write(entry)
            except Exception as error:  # noqa: BLE001 - the guard's refusal, or a fault of ours: it costs one Event
                self._counts.drop("refused", f"{type(error).__name__}: {error}")
                if entry is not None:
                    entry.dirty = False
                    self._correlator.forget(entry)
            finally:
                with self._condition:
                    self._busy = False
                    if self._idle():
                        self._condition.notify_all()

    def _take(self) -> Happening | Entry | None:
        """Wait for work; None when it is time to end. New Events and repeated writes take turns."""
        with self._condition:
            while True:
                if self._ended:
                    return None
                pause = self._resume_at - self._clock.monotonic()
                if pause > 0:
                    self._clock.wait(self._condition, pause)
                elif self._inbox or self._again:
                    break
                else:
                    self._clock.wait(self._condition, None)
            self._busy = True
            self._turn = not self._turn
            if self._again and (self._turn or not self._inbox):
                return self._again.popleft()
            happening = self._inbox.popleft()
            self._waiting.pop(happening.key, None)
            return happening

    def _observe(self, happening: Happening) -> Entry | None:
        entry = self._correlator.observe(happening)
        if entry is None:
            self._counts.drop("rate_limited", f"{happening.reason} about {happening.ref.kind} {happening.ref.name}")
        return entry

    def _write(self, entry: Entry) -> None:
        try:
            self._send(entry)
        except ApiError as error:
            reason = _drop_reason(error)
            tries = {_LATER: MAX_TRIES, _FORBIDDEN: FORBIDDEN_TRIES}.get(reason, 0)
            if tries:
                entry.tries += 1
                self._slow_down(error)
                if entry.tries < tries and self._put_back(entry):
                    log.debug("%s: will be tried again: %s", self._component, error)
                    return
            entry.dirty = False
            self._correlator.forget(entry)
            self._counts.drop(reason, f"{entry.reason} about {entry.ref.kind} {entry.ref.name}: {error}")
            return
        entry.dirty = False
        entry.tries = 0
        self._failures = 0

    def _send(self, entry: Entry) -> None:
        path = f"/api/v1/namespaces/{quote(entry.namespace, safe='')}/events"
        if entry.exists:
            try:
                self._rest.request(
                    "PATCH",
                    f"{path}/{quote(entry.name, safe='')}",
                    body=entry.change(),
                    content_type=MERGE_PATCH,
                    accept=METADATA_ONLY,
                    timeout=REQUEST_TIMEOUT,
                )
                self._counts.patched.inc()
                return
            except NotFound:
                entry.exists = False  # expired, an hour after its last change by default
        try:
            body = entry.body(self._component, self._host)
            self._rest.request("POST", path, body=body, accept=METADATA_ONLY, timeout=REQUEST_TIMEOUT)
            self._counts.created.inc()
            entry.exists = True
        except AlreadyExists:
            if not entry.tries:
                raise
            # Names are not reused, so an earlier try was applied and its answer lost; the count may have grown since.
            entry.exists = True
            self._send(entry)

    def _slow_down(self, error: ApiError) -> None:
        pause = min(_LAST_PAUSE, _FIRST_PAUSE * 2 ** min(self._failures, 10)) * (0.5 + self._jitter() / 2)
        if error.retry_after is not None:
            pause = max(pause, min(error.retry_after, 60.0))
        self._failures += 1
        with self._condition:
            if self._closed:
                pause = min(pause, _STOPPING_PAUSE)
            self._resume_at = self._clock.monotonic() + pause
        if error.recovery not in (None, self._recovery) and error.retry_after is None:
            self._recovery = error.recovery
            error.recovery.then(self._resume)

    def _resume(self) -> None:
        """The server answers again."""
        with self._condition:
            self._failures = 0
            self._resume_at = self._clock.monotonic()
            self._condition.notify_all()

    def _put_back(self, entry: Entry) -> bool:
        with self._condition:
            if self._ended:
                return False
            if all(other is not entry for other in self._again):
                self._again.append(entry)
            return True


def _drop_reason(error: ApiError) -> str:
    if isinstance(error, ClientClosed):
        return "stopped"
    if isinstance(error, _TRANSIENT):
        return _LATER
    if isinstance(error, NotFound) or error.has_cause("NamespaceTerminating"):
        return "namespace"
    return _FORBIDDEN if isinstance(error, Forbidden) else "rejected"


class _Counts:
    """The recorder's metrics, and a log of drops that does not drown the rest: one line a minute for each reason."""

    def __init__(self, metrics: Metrics, component: str, clock: Clock) -> None:
        writes = metrics.counter(
            "event_recorder_writes_total", "Events written, by operation.", ("component", "operation")
        )
        self.created = writes.labels(component=component, operation="create")
        self.patched = writes.labels(component=component, operation="patch")
        self.merged = metrics.counter(
            "event_recorder_merged_total",
            "Events that were told by the write of an equal one still waiting.",
            ("component",),
        ).labels(component=component)
        self._dropped = metrics.counter(
            "event_recorder_dropped_total", "Events that were not written, by reason.", ("component", "reason")
        )
        self._component = component
        self._clock = clock
        self._lock = threading.Lock()
        self._silent: dict[str, tuple[float, int]] = {}

    def drop(self, reason: str, what: str, number: int = 1) -> None:
        self._dropped.labels(component=self._component, reason=reason).inc(number)
        now = self._clock.monotonic()
        with self._lock:
            until, more = self._silent.get(reason, (float("-inf"), 0))
            if now < until:
                self._silent[reason] = (until, more + number)
                return
            self._silent[reason] = (now + _LOG_SECONDS, 0)
        level = logging.INFO if reason in ("rate_limited", "namespace") else logging.WARNING
        hint = "; needs the rule: apiGroups [''], resources [events], verbs [create, patch]"
        log.log(
            level,
            "%s: %d Event(s) dropped (%s): %s%s",
            self._component,
            more + number,
            reason,
            what,
            hint if reason == "forbidden" else "",
        )
