"""How the way to the API server can be bad: what faults put into the proxy.

All of them work on bytes, or on answers that each client reads as JSON whatever it asked for (the
API server itself sends errors so); `expired` exists in both encodings of a watch.
"""

from __future__ import annotations

import json
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from typing_extensions import override

from tests.support.protobuf import frame_of
from tests.support.proxy import Answer, Asked, Broken, Network

Matches = Callable[[Asked], bool]
_REASONS: Final = {
    401: "Unauthorized",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


def is_lease(asked: Asked) -> bool:
    """Whether it is about a Lease."""
    return "/leases" in asked.resource


def about(*parts: str) -> Matches:
    """Writes whose path ends with one of these resources, or goes on below it; none of Leases."""

    def matches(asked: Asked) -> bool:
        return asked.writing and any(f"/{part}" in asked.resource for part in parts)

    return matches


class Bad(Network):
    """A network with a fault."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.met = 0
        """How many requests, answers or events have met the fault."""

    def _meets(self) -> int:
        """Count one more; returns how many there were before."""
        with self._lock:
            self.met += 1
            return self.met - 1


class Refusing(Bad):
    """Requests that match get these statuses in turn."""

    def __init__(
        self, *statuses: int, matches: Matches = lambda _: True, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__()
        self._statuses, self._matches, self._headers = statuses, matches, dict(headers or {})
        self.paths: Counter[str] = Counter()

    @override
    def on_request(self, asked: Asked) -> Asked | Answer:
        if not self._matches(asked):
            return asked
        code = self._statuses[self._meets() % len(self._statuses)]
        with self._lock:
            self.paths[f"{asked.method} {asked.resource}"] += 1
        return _refusal(code, self._headers)


class LosingAnswers(Bad):
    """The server does what is asked, and every second answer to a matching request is lost, a
    second later."""

    def __init__(self, matches: Matches) -> None:
        super().__init__()
        self._matches = matches
        self._seen: Counter[str] = Counter()

    @override
    def on_answer(self, asked: Asked, status: int, body: bytes) -> bytes:
        with self._lock:
            key = f"{asked.method} {asked.resource}"
            lose = self._matches(asked) and self._seen[key] % 2 == 0
            self._seen[key] += self._matches(asked)
            self.met += lose
        if lose:
            threading.Event().wait(1.0)
            raise Broken
        return body


class Hanging(Bad):
    """Matching requests get no answer before `release`; then they are done late, or not at all."""

    def __init__(self, matches: Matches, *, done_late: bool = False) -> None:
        super().__init__()
        self._matches, self._done_late = matches, done_late
        self._over = threading.Event()

    @override
    def on_request(self, asked: Asked) -> Asked | Answer:
        if not self._over.is_set() and self._matches(asked):
            self._meets()
            self._over.wait()
            if not self._done_late:
                raise Broken
        return asked

    def release(self) -> None:
        self._over.set()


class Before(Bad):
    """Once, before the first matching request is sent on, `act` is called."""

    def __init__(self, matches: Matches, act: Callable[[Asked], None]) -> None:
        super().__init__()
        self._matches, self._act = matches, act
        self._done = False
        self.came = threading.Event()

    @override
    def on_request(self, asked: Asked) -> Asked | Answer:
        with self._lock:
            if self._done or not self._matches(asked):
                return asked
            self._done = True
            self.met = 1
        self._act(asked)
        self.came.set()
        return asked


class Expiring(Bad):
    """Each watch ends with 410 in place of its next event."""

    @override
    def on_event(self, asked: Asked, event: bytes) -> Iterable[bytes]:
        self._meets()
        yield expired(protobuf=asked.protobuf)
        raise Broken


class Cutting(Bad):
    """Every third event of a watch is cut in the middle, and so is every second answer to a GET."""

    def __init__(self) -> None:
        super().__init__()
        self._events = self._answers = 0

    @override
    def on_event(self, asked: Asked, event: bytes) -> Iterable[bytes]:
        with self._lock:
            self._events += 1
            cut = self._events % 3 == 0
            self.met += cut
        if cut:
            raise Broken(event[: len(event) // 2])
        return (event,)

    @override
    def on_answer(self, asked: Asked, status: int, body: bytes) -> bytes:
        with self._lock:
            self._answers += not asked.writing
            cut = not asked.writing and self._answers % 2 == 0
            self.met += cut
        if cut:
            raise Broken  # the head has not left yet: the connection is reset before it
        return body


class Holding(Bad):
    """The events of all watches arrive late: those that come are held back until `release`."""

    def __init__(self) -> None:
        super().__init__()
        self._over = threading.Event()

    @override
    def on_event(self, asked: Asked, event: bytes) -> Iterable[bytes]:
        if not self._over.is_set():
            self._meets()
            self._over.wait()
        return (event,)

    def release(self) -> None:
        self._over.set()


class EmptyLists(Bad):
    """Watches that go on are refused with 410 until the client has listed; lists from the server's
    watch cache, and watches that begin with one, find nothing: the server is asked for a label that
    nothing has. Quorum reads, which name no version, are right."""

    def __init__(self, *resources: str) -> None:
        super().__init__()
        self._ends = tuple(f"/{one}" for one in resources)
        self._listed: set[tuple[str, str]] = set()

    @override
    def on_request(self, asked: Asked) -> Asked | Answer:
        if asked.writing or not asked.resource.endswith(self._ends):
            return asked
        lists = "sendInitialEvents=true" in asked.path if asked.watching else "resourceVersion=" in asked.path
        if not lists:
            first = asked.watching and (asked.token, asked.resource) not in self._listed
            return _refusal(410) if first else asked
        self._meets()
        self._listed.add((asked.token, asked.resource))
        mark = "&" if "?" in asked.path else "?"
        return Asked(asked.method, f"{asked.path}{mark}labelSelector=nothing%3Dhas-this", asked.token)


class Replaying(Bad):
    """After every event the two before it come again, and then it comes again: what a client sees
    that is connected anew at an earlier version."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, str], deque[bytes]] = {}

    @override
    def on_event(self, asked: Asked, event: bytes) -> Iterable[bytes]:
        with self._lock:
            # A stream of its own for each client and path: a new watch of the same path goes on.
            before = self._last.setdefault((asked.token, asked.resource), deque(maxlen=2))
            again = [*before]
            before.append(event)
            self.met += len(again)
        return (event, *again, event) if again else (event,)


def expired(*, protobuf: bool) -> bytes:
    """The event of a watch whose version is too old, in its frame."""
    status = _status(410, "too old resource version: 1 (2)")
    line = json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"
    if not protobuf:
        return line
    event = frame_of(line, "Status")
    return len(event).to_bytes(4, "big") + event


def _refusal(code: int, headers: Mapping[str, str] | None = None) -> Answer:
    body = json.dumps(_status(code, "injected by the fault proxy")).encode()
    return Answer(code, body, {"Content-Type": "application/json", **(headers or {})})


def _status(code: int, message: str) -> dict[str, object]:
    about = {"status": "Failure", "message": message, "reason": _REASONS[code], "code": code}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, **about}
