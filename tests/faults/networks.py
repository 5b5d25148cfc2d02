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


class Refusing(Network):
    """Requests that match get these statuses in turn."""

    def __init__(
        self, *statuses: int, matches: Matches = lambda _: True, headers: Mapping[str, str] | None = None
    ) -> None:
        self._statuses, self._matches, self._headers = statuses, matches, dict(headers or {})
        self._lock = threading.Lock()
        self.refused = 0
        self.paths: Counter[str] = Counter()

    @override
    def on_request(self, asked: Asked) -> Asked | Answer:
        if not self._matches(asked):
            return asked
        with self._lock:
            code = self._statuses[self.refused % len(self._statuses)]
            self.refused += 1
            self.paths[f"{asked.method} {asked.resource}"] += 1
        return _refusal(code, self._headers)


class LosingAnswers(Network):
    """The server does what is asked, and every second answer to a matching request is lost, a
    second later."""

    def __init__(self, matches: Matches) -> None:
        self._matches = matches
        self._lock = threading.Lock()
        self._seen: Counter[str] = Counter()
        self.lost = 0

    @override
    def on_answer(self, asked: Asked, status: int, body: bytes) -> bytes:
        with self._lock:
            key = f"{asked.method} {asked.resource}"
            lose = self._matches(asked) and self._seen[key] % 2 == 0
            self._seen[key] += self._matches(asked)
            self.lost += lose
        if lose:
            threading.Event().wait(1.0)
            raise Broken
        return body


class Hanging(Network):
    """Matching requests get no answer before `release`; then they are done late, or not at all."""

    def __init__(self, matches: Matches, *, done_late: bool = False) -> None:
        self._matches, self._done_late = matches, done_late
        self._over = threading.Event()
        self.hung = threading.Event()
        """Set when the first one hangs."""

    @override
    def on_request(self, asked: Asked) -> Asked | Answer:
        if not self._over.is_set() and self._matches(asked):
            self.hung.set()
            self._over.wait()
            if not self._done_late:
                raise Broken
        return asked

    def release(self) -> None:
        self._over.set()


class Before(Network):
    """Once, before the first matching request is sent on, `act` is called."""

    def __init__(self, matches: Matches, act: Callable[[Asked], None]) -> None:
        self._matches, self._act = matches, act
        self._lock = threading.Lock()
        self._done = False
        self.came = threading.Event()

    @override
    def on_request(self, asked: Asked) -> Asked | Answer:
        with self._lock:
            if self._done or not self._matches(asked):
                return asked
            self._done = True
        self._act(asked)
        self.came.set()
        return asked


class Expiring(Network):
    """Each watch ends with 410 in place of its next event."""

    def __init__(self) -> None:
        self.ended = 0

    @override
    def on_event(self, asked: Asked, event: bytes) -> Iterable[bytes]:
        self.ended += 1
        yield expired(protobuf=asked.protobuf)
        raise Broken


class Cutting(Network):
    """Every third event of a watch is cut in the middle, and so is every second answer to a GET."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events = self._answers = 0
        self.cut = 0

    @override
    def on_event(self, asked: Asked, event: bytes) -> Iterable[bytes]:
        with self._lock:
            self._events += 1
            cut = self._events % 3 == 0
            self.cut += cut
        if cut:
            raise Broken(event[: len(event) // 2])
        return (event,)

    @override
    def on_answer(self, asked: Asked, status: int, body: bytes) -> bytes:
        with self._lock:
            self._answers += not asked.writing
            cut = not asked.writing and self._answers % 2 == 0
            self.cut += cut
        if cut:
            raise Broken  # the head has not left yet: the connection is reset before it
        return body


class Holding(Network):
    """The events of all watches arrive late: those that come are held back until `release`."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self.held = 0

    @override
    def on_event(self, asked: Asked, event: bytes) -> Iterable[bytes]:
        if not self._over.is_set():
            self.held += 1
            self._over.wait()
        return (event,)

    def release(self) -> None:
        self._over.set()


class EmptyLists(Network):
    """Watches that go on are refused with 410 until the client has listed; lists from the server's
    watch cache, and watches that begin with one, find nothing: the server is asked for a label that
    nothing has. Quorum reads, which name no version, are right."""

    def __init__(self, *resources: str) -> None:
        self._ends = tuple(f"/{one}" for one in resources)
        self._listed: set[tuple[str, str]] = set()
        self.emptied = 0

    @override
    def on_request(self, asked: Asked) -> Asked | Answer:
        if asked.writing or not asked.resource.endswith(self._ends):
            return asked
        lists = "sendInitialEvents=true" in asked.path if asked.watching else "resourceVersion=" in asked.path
        if not lists:
            first = asked.watching and (asked.token, asked.resource) not in self._listed
            return _refusal(410) if first else asked
        self.emptied += 1
        self._listed.add((asked.token, asked.resource))
        mark = "&" if "?" in asked.path else "?"
        return Asked(asked.method, f"{asked.path}{mark}labelSelector=nothing%3Dhas-this", asked.token)


class Replaying(Network):
    """After every event the two before it come again, and then it comes again: what a client sees
    that is connected anew at an earlier version."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[tuple[str, str], deque[bytes]] = {}
        self.repeated = 0

    @override
    def on_event(self, asked: Asked, event: bytes) -> Iterable[bytes]:
        with self._lock:
            # A stream of its own for each client and path: a new watch of the same path goes on.
            before = self._last.setdefault((asked.token, asked.resource), deque(maxlen=2))
            again = [*before]
            before.append(event)
            self.repeated += len(again)
        return (event, *again, event) if again else (event,)


def expired(*, protobuf: bool) -> bytes:
    """The event of a watch whose version is too old, in its frame."""
    message = "too old resource version: 1 (2)"
    if not protobuf:
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": "Expired",
            "code": 410,
        }
        return json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"
    inner = _field(1, b"") + _field(2, b"Failure") + _field(3, message.encode()) + _field(4, b"Expired")
    inner += _number(6, 410)
    unknown = _field(1, _field(1, b"v1") + _field(2, b"Status")) + _field(2, inner) + _field(3, b"") + _field(4, b"")
    event = _field(1, b"ERROR") + _field(2, _field(1, b"k8s\x00" + unknown))
    return len(event).to_bytes(4, "big") + event


def _refusal(code: int, headers: Mapping[str, str] | None = None) -> Answer:
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "injected by the fault proxy",
        "reason": _REASONS[code],
        "code": code,
    }
    return Answer(code, json.dumps(body).encode(), {"Content-Type": "application/json", **(headers or {})})


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _field(number: int, data: bytes) -> bytes:
    """A field of bytes of Protobuf."""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)
