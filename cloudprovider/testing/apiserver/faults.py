"""Faults on demand: what the server does wrong, to which requests, and how often.

Tests add rules to `EmbeddedAPIServer.faults`; the HTTP handler asks for the rules that fit each
request and carries them out, and open watches are broken through the same object. Nothing happens
without a rule.
"""

from __future__ import annotations

import enum
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import attrs

_REASONS: Final = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class Action(enum.Enum):
    """What goes wrong."""

    LATENCY = "latency"
    """The request waits before it is handled."""
    STATUS = "status"
    """Answered with an error status; nothing is applied."""
    RESET = "reset"
    """The connection is reset (RST); a request is not applied, a watch breaks off."""
    LOSE_RESPONSE = "lose_response"
    """The request is applied, then the connection is reset before a byte of the answer."""
    TRUNCATE = "truncate"
    """The answer breaks off half-way; a watch breaks off in the middle of a line."""
    EXPIRE = "expire"
    """Lists answer 410, watches send an ERROR event of code 410 and end."""
    HALF_OPEN = "half_open"
    """A watch goes silent and stays open, as behind a dead NAT entry."""
    CLOSE = "close"
    """A watch ends in an orderly way."""
    EMPTY_LIST = "empty_list"
    """A list answers with no items, at the present version: wrong, but well-formed."""
    STALE_LIST = "stale_list"
    """A get or list answers from an older version, like a replica that lags behind."""


@attrs.define(eq=False)
class Fault:
    """One rule. Patterns are searched (`re.search`) in the method and in the path with its query;
    None fits everything.

    `count` is how many requests it still strikes, None for no end; `hits` how many it has struck.
    For watches, `after_events` is how many events pass before it strikes; `watches` confines the
    rule to watches (True), to other requests (False), or to neither (None). `seconds` is the
    latency, `version` the version that a stale answer shows.
    """

    action: Action
    method: str | None = None
    path: str | None = None
    count: int | None = None
    watches: bool | None = None
    after_events: int = 0
    seconds: float = 0.0
    code: int = 500
    reason: str = "InternalError"
    message: str = "an injected fault"
    retry_after: int | None = None
    version: int = 0
    hits: int = 0

    def fits(self, method: str, path: str, watching: bool) -> bool:
        """Does the rule strike this request?"""
        if self.count is not None and self.count <= 0:
            return False
        if self.watches is not None and self.watches is not watching:
            return False
        if self.method is not None and not re.search(self.method, method):
            return False
        return self.path is None or re.search(self.path, path) is not None


class Faults:
    """The rules of one server. Safe from many threads. Each adding method returns the rule, to be
    given to `remove`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: list[Fault] = []
        self._watches: dict[object, tuple[str, Callable[[Fault], None]]] = {}

    def add(self, fault: Fault) -> Fault:
        """Add a rule; rules strike in the order in which they were added."""
        with self._lock:
            self._rules = [*self._rules, fault]
        return fault

    def remove(self, fault: Fault) -> None:
        """Take a rule away; a second time is a no-op."""
        with self._lock:
            self._rules = [rule for rule in self._rules if rule is not fault]

    def clear(self) -> None:
        """Take all rules away. Watches that went silent stay silent."""
        with self._lock:
            self._rules = []

    def latency(
        self, seconds: float, *, method: str | None = None, path: str | None = None, count: int | None = None
    ) -> Fault:
        """Delay requests by `seconds`."""
        return self.add(Fault(Action.LATENCY, method, path, count, seconds=seconds))

    def status(
        self,
        code: int,
        *,
        method: str | None = None,
        path: str | None = None,
        count: int | None = None,
        retry_after: int | None = None,
        reason: str | None = None,
        message: str = "an injected fault",
        watches: bool | None = None,
    ) -> Fault:
        """Answer with an error; `retry_after` in whole seconds becomes the Retry-After header."""
        named = reason if reason is not None else _REASONS.get(code, "")
        return self.add(
            Fault(
                Action.STATUS,
                method,
                path,
                count,
                watches,
                code=code,
                reason=named,
                message=message,
                retry_after=retry_after,
            )
        )

    def too_many_requests(
        self, retry_after: int = 1, *, method: str | None = None, path: str | None = None, count: int | None = None
    ) -> Fault:
        """429 with Retry-After, as API Priority and Fairness answers."""
        message = "The server has received too many requests and has asked us to try again later"
        return self.status(429, method=method, path=path, count=count, retry_after=retry_after, message=message)

    def reset(
        self, *, method: str | None = None, path: str | None = None, count: int | None = None,
        watches: bool | None = None, after_events: int = 0,
    ) -> Fault:  # fmt: skip
        """Reset the connection: a request before it is applied, a watch after `after_events`
        events."""
        return self.add(Fault(Action.RESET, method, path, count, watches, after_events))

    def lose_response(self, *, method: str | None = None, path: str | None = None, count: int | None = None) -> Fault:
        """Apply the request, then reset the connection instead of answering."""
        return self.add(Fault(Action.LOSE_RESPONSE, method, path, count, watches=False))

    def truncate(
        self, *, method: str | None = None, path: str | None = None, count: int | None = None,
        watches: bool | None = None, after_events: int = 0,
    ) -> Fault:  # fmt: skip
        """Break off an answer half-way, a watch in the middle of the event after `after_events`
        others."""
        return self.add(Fault(Action.TRUNCATE, method, path, count, watches, after_events))

    def expire(
        self, *, path: str | None = None, count: int | None = None, watches: bool | None = None, after_events: int = 0
    ) -> Fault:
        """410: for lists at once, for watches as an ERROR event after `after_events` events."""
        return self.add(Fault(Action.EXPIRE, "GET", path, count, watches, after_events))

    def half_open(self, *, path: str | None = None, count: int | None = None, after_events: int = 0) -> Fault:
        """Let a watch go silent after `after_events` events, without closing it."""
        return self.add(Fault(Action.HALF_OPEN, "GET", path, count, True, after_events))

    def close(self, *, path: str | None = None, count: int | None = None, after_events: int = 0) -> Fault:
        """End a watch in an orderly way after `after_events` events."""
        return self.add(Fault(Action.CLOSE, "GET", path, count, True, after_events))

    def empty_list(self, *, path: str | None = None, count: int | None = None) -> Fault:
        """Answer a list with no items."""
        return self.add(Fault(Action.EMPTY_LIST, "GET", path, count, False))

    def stale(self, version: int, *, path: str | None = None, count: int | None = None) -> Fault:
        """Answer gets and lists as of an older `version`, also where a quorum read was asked
        for."""
        return self.add(Fault(Action.STALE_LIST, "GET", path, count, False, version=version))

    def strike(self, method: str, path: str, watching: bool) -> list[Fault]:
        """The rules that strike this request, each counted: latencies, and the first of any other
        kind."""
        if not self._rules:
            return []
        struck: list[Fault] = []
        done = False
        with self._lock:
            for rule in self._rules:
                if (done and rule.action is not Action.LATENCY) or not rule.fits(method, path, watching):
                    continue
                done = done or rule.action is not Action.LATENCY
                rule.hits += 1
                if rule.count is not None:
                    rule.count -= 1
                struck.append(rule)
        return struck

    @contextmanager
    def watching(self, path: str, signal: Callable[[Fault], None]) -> Iterator[None]:
        """Around an open watch on this path (called by the handler): `signal` hands it a fault."""
        watch = object()
        with self._lock:
            self._watches[watch] = path, signal
        try:
            yield
        finally:
            with self._lock:
                del self._watches[watch]

    def open_watches(self, path: str | None = None) -> int:
        """How many watches are open on paths that fit."""
        return len(self._fitting(path))

    def break_watches(self, action: Action = Action.RESET, *, path: str | None = None) -> int:
        """Strike the watches that are open now with RESET, TRUNCATE, EXPIRE, HALF_OPEN or CLOSE;
        returns how many there were.
        """
        signals = self._fitting(path)
        for signal in signals:
            signal(Fault(action))
        return len(signals)

    def _fitting(self, path: str | None) -> list[Callable[[Fault], None]]:
        with self._lock:
            watches = list(self._watches.values())
        return [signal for watched, signal in watches if path is None or re.search(path, watched)]
