"""Events for people (stage 6): reported by any controller, written to the cluster beside its work.

`EventRecorder.event` takes microseconds and never fails for the cluster's sake. A few writer
threads (`Lane`) count, combine (`correlation.py`) and write; what is about one object is written by
one thread, in order. The queues are bounded, each write is tried a bounded number of times, and
what is dropped is counted by reason and logged. Follows client-go's tools/record (core/v1)."""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Final
from urllib.parse import quote

from cloudprovider.internal.backoff import Backoff
from cloudprovider.internal.cleaning import one_line
from cloudprovider.threads import NoThreadLeft, start
from controllers.runtime.api import (
    MERGE_PATCH,
    METADATA_ONLY,
    AlreadyExists,
    ApiError,
    ClientClosed,
    Conflict,
    Forbidden,
    NotFound,
    RestClient,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from controllers.runtime.clock import SYSTEM_CLOCK, Clock, wait_for
from controllers.runtime.metrics import Metrics
from controllers.runtime.write.correlation import (
    MAX_MESSAGE,
    Correlator,
    Counts,
    Event,
    EventMemory,
    Reference,
    reference,
)

__all__ = ["EventRecorder", "Reference", "reference"]

log = logging.getLogger(__name__)

WRITERS: Final = 4
CAPACITY: Final = 16384
"""Events waiting, over all writers."""
MAX_TRIES: Final = 12
"""Tries of one Event that the server answers with an error, or not at all; as in client-go."""
FORBIDDEN_TRIES: Final = 6
"""A freshly started API server answers 403 for a moment, until it has read its roles: no reason to
lose an Event. So that is tried again, by itself and holding up no other, until a write has
succeeded; after that a 403 (a quota, a missing right) costs the Event at once, as with
client-go."""
IDLE_SECONDS: Final = 30.0
"""A writer's thread ends after so long without an Event, and starts with the next one."""
REQUEST_TIMEOUT: Final = 10.0
_PAUSES: Final = Backoff(base=0.5, cap=10.0)
_STOPPING_PAUSE: Final = 0.1

_TRANSIENT: Final = (Unauthorized, TooManyRequests, ServerError, Unreachable, Conflict)
_LATER: Final = "retries"
_FORBIDDEN: Final = "forbidden"


class EventRecorder:
    """Reports Events under one component's name; thread-safe. Threads start with the first.

    `stop` writes what is left; until then nothing has to be called. Metrics:
    event_recorder_writes_total{component, operation}, event_recorder_merged_total{component},
    event_recorder_dropped_total{component,reason}. Recorders with the same metrics share one memory
    (`correlation.py`)."""

    def __init__(
        self,
        rest: RestClient,
        component: str,
        *,
        clock: Clock = SYSTEM_CLOCK,
        metrics: Metrics | None = None,
        writers: int = WRITERS,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`chance` gives numbers in [0, 1)."""
        metrics = metrics or Metrics()
        counts = Counts(metrics, component, clock)
        memory = EventMemory.of(metrics)
        self._clock = clock
        self._counts = counts
        self._lanes = tuple(
            Lane(
                rest,
                component,
                counts,
                capacity=CAPACITY // writers,
                correlator=Correlator(memory),
                chance=chance,
                name=f"{component}-events-{number}",
            )
            for number in range(writers)
        )

    def event(self, obj: Any, type: str, reason: str, message: str) -> None:
        """Report that something happened to an object: a model, raw JSON or a Reference.

        `type` is "Normal" or "Warning", `reason` one CamelCase word for machines, `message` a
        sentence for people, which is cleaned (`cleaning.py`: tenants read Events) and cut at 1,024
        characters. Returns at once; when the queue is full, the Event is dropped and counted.
        Raises ValueError for another type, an empty reason, or an object without kind or name.
        """
        if type not in ("Normal", "Warning") or not reason or len(reason) > 128:
            raise ValueError(f"an Event's type is Normal or Warning and its reason a word: {type!r}, {reason!r}")
        message = one_line(message, MAX_MESSAGE)
        ref = reference(obj)
        now = self._clock.time()
        event = Event(ref, type, reason, message, now, now, at=self._clock.monotonic())
        log.debug("Event %s %s: %s %s/%s: %s", type, reason, ref.kind, ref.namespace, ref.name, message)
        lane = self._lanes[hash((ref.kind, ref.namespace, ref.name)) % len(self._lanes)]
        refusal = lane.put(event)
        if refusal:
            self._counts.drop(refusal, f"{reason} about {ref.kind} {ref.namespace}/{ref.name}")

    def flush(self, timeout: float) -> bool:
        """Wait until everything reported so far is written or dropped; False when `timeout` seconds
        were too short."""
        deadline = self._clock.monotonic() + timeout
        return all(lane.wait_idle(deadline - self._clock.monotonic()) for lane in self._lanes)

    def stop(self, timeout: float) -> bool:
        """Take no further Events, write what is left within `timeout` seconds, drop the rest, end
        the threads.

        True when nothing was left. May be called twice. A thread inside a request that does not
        return is left behind."""
        for lane in self._lanes:
            lane.close()
        flushed = self.flush(timeout)
        left = sum(lane.end() for lane in self._lanes)
        if left:
            self._counts.drop("stopped", "the last ones", left)
        return flushed and not left


class Lane:
    """One writer: a queue, and a thread while there is work. An object belongs to one lane, so its
    Events keep their order. An Event that waits for its right holds up no other; one that meets a
    server in trouble holds up all."""

    def __init__(
        self,
        rest: RestClient,
        component: str,
        counts: Counts,
        *,
        capacity: int,
        correlator: Correlator,
        chance: Callable[[], float],
        name: str,
    ) -> None:
        self._rest = rest
        self._component = component
        self._clock = counts.clock
        self._counts = counts
        self._capacity = capacity
        self._correlator = correlator
        self._chance = chance
        self._name = name
        self._condition = threading.Condition(threading.Lock())
        self._inbox: deque[Event] = deque()
        self._waiting: dict[tuple[Hashable, ...], Event] = {}
        self._again: deque[Event] = deque()
        self._thread: threading.Thread | None = None
        self._busy = False
        self._closed = False
        self._ended = False
        self._failures = 0
        self._resume_at = float("-inf")
        self._turn = False
        self._proved = False  # a write succeeded since the server last gave no proper answer

    def put(self, event: Event) -> str:
        """Queue something; "" or the reason why it was dropped."""
        key = event.key
        with self._condition:
            if self._closed:
                return "stopped"
            same = self._waiting.get(key)
            if same is not None:  # not yet written: one write will tell of both
                same.count += 1
                same.last_at, same.at = event.last_at, event.at
                self._counts.merged.inc()
                return ""
            # The newest is dropped: those that wait are nearer to what began the trouble.
            if len(self._inbox) + len(self._again) >= self._capacity:
                return "queue_full"
            self._waiting[key] = event
            self._inbox.append(event)
            if self._thread is None:
                try:
                    self._thread = start(self._run, self._name)
                except NoThreadLeft as error:  # the next Event tries again
                    log.error("%s: Events wait, as their thread could not be started: %s", self._component, error)
            # While it writes it needs no waking: it looks at the queue again by itself.
            elif not self._busy:
                self._condition.notify_all()
            return ""

    def wait_idle(self, timeout: float) -> bool:
        with self._condition:
            return wait_for(
                self._clock,
                self._condition,
                lambda: self._ended or not (self._inbox or self._again or self._busy),
                max(0.0, timeout),
            )

    def close(self) -> None:
        with self._condition:
            self._closed = True
            # A pause of ten seconds would be the whole time that there is for the last Events.
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
        # One inside a request may take as long as the API server does.
        if thread is not None and not busy:
            thread.join()
        return left

    def _run(self) -> None:
        while (work := self._take()) is not None:
            entry = None
            try:
                entry = work if work.name else self._correlator.observe(work)
                if entry is None:
                    self._counts.drop("rate_limited", f"{work.reason} about {work.ref.kind} {work.ref.name}")
                elif entry.dirty:  # if not, a repetition was written while it waited for its next try
                    self._write(entry)
            except Exception as error:  # noqa: BLE001 - the guard's refusal, or a fault of ours: it costs one Event
                self._counts.drop("refused", f"{type(error).__name__}: {error}")
                if entry is not None:
                    entry.dirty = False
                    self._correlator.forget(entry)
            finally:
                with self._condition:
                    self._busy = False
                    self._condition.notify_all()  # whoever waits until all is written

    def _take(self) -> Event | None:
        """Wait for work; None when it is time to end. New Events and repeated writes take turns."""
        with self._condition:
            idle_at = self._clock.monotonic() + IDLE_SECONDS
            while True:
                if self._ended:
                    return None
                now = self._clock.monotonic()
                due = next((entry for entry in self._again if self._closed or entry.not_before <= now), None)
                if self._resume_at <= now and (self._inbox or due is not None):
                    break
                if not self._inbox and not self._again:
                    # Most controllers report seldom: their writers' threads need not be there all
                    # day.
                    if now >= idle_at:
                        self._thread = None
                        return None
                    self._clock.wait(self._condition, idle_at - now)
                else:
                    next_at = now if self._inbox else min(entry.not_before for entry in self._again)
                    self._clock.wait(self._condition, max(self._resume_at, next_at) - now)
                    idle_at = self._clock.monotonic() + IDLE_SECONDS
            self._busy = True
            self._turn = not self._turn
            # By turns: neither may new ones starve those that failed, nor the other way round.
            if due is not None and (self._turn or not self._inbox):
                self._again.remove(due)
                return due
            event = self._inbox.popleft()
            self._waiting.pop(event.key, None)
            return event

    def _write(self, entry: Event) -> None:
        try:
            self._send(entry)
        except ApiError as error:
            reason = _drop_reason(error)
            tries = {_LATER: MAX_TRIES, _FORBIDDEN: 0 if self._proved else FORBIDDEN_TRIES}.get(reason, 0)
            if tries:
                entry.tries += 1
                # It alone waits: what is forbidden in one namespace is allowed in another.
                if reason == _FORBIDDEN:
                    entry.not_before = self._clock.monotonic() + _PAUSES.delay(entry.tries - 1, self._chance())
                else:
                    self._proved = False
                    self._slow_down(error)
                # Behind the others: it holds up none, unless the server is in trouble.
                if entry.tries < tries and self._put_back(entry):
                    log.debug("%s: will be tried again: %s", self._component, error)
                    return
            entry.dirty = False
            self._correlator.forget(entry)
            self._counts.drop(reason, f"{entry.reason} about {entry.ref.kind} {entry.ref.name}: {error}")
            return
        entry.dirty = False
        entry.tries = 0
        entry.not_before = 0.0
        self._failures = 0
        self._proved = True

    def _send(self, entry: Event) -> None:
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
            body = entry.body(self._component)
            self._rest.request("POST", path, body=body, accept=METADATA_ONLY, timeout=REQUEST_TIMEOUT)
            self._counts.created.inc()
            entry.exists = True
        except AlreadyExists:
            # No try of ours can have made it: somebody else has an Event of that very name.
            if not entry.tries:
                raise
            # Names are not reused, so an earlier try was applied and its answer lost; the count may
            # have grown since.
            entry.exists = True
            self._send(entry)

    def _slow_down(self, error: ApiError) -> None:
        pause = _PAUSES.delay(self._failures, self._chance())
        # At most a minute: a proxy that says "an hour" must not silence a controller for one.
        if error.retry_after is not None:
            pause = max(pause, min(error.retry_after, 60.0))
        self._failures += 1
        with self._condition:
            if self._closed:
                pause = min(pause, _STOPPING_PAUSE)
            self._resume_at = self._clock.monotonic() + pause
        if error.recovery is not None and error.retry_after is None:
            error.recovery.then(self._resume)  # at once where the server came back while we got here

    def _resume(self) -> None:
        """The server answers again."""
        with self._condition:
            self._failures = 0
            self._resume_at = self._clock.monotonic()
            self._condition.notify_all()

    def _put_back(self, entry: Event) -> bool:
        with self._condition:
            if self._ended:
                return False
            # A repetition may have failed while the first one waits for its next try.
            if all(other is not entry for other in self._again):
                self._again.append(entry)
            return True


def _drop_reason(error: ApiError) -> str:
    # Its client ends before its recorder does, where the process stops in a hurry.
    if isinstance(error, ClientClosed):
        return "stopped"
    if isinstance(error, _TRANSIENT):
        return _LATER
    if isinstance(error, NotFound) or error.has_cause("NamespaceTerminating"):
        return "namespace"
    return _FORBIDDEN if isinstance(error, Forbidden) else "rejected"
