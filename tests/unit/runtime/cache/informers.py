"""An API server in a script, for the tests of lists, watches and informers: no network, and time
passes by itself."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import cast

from controllers.runtime.api import Response, RestClient
from controllers.runtime.cache.resources import Raw
from controllers.runtime.protobuf import ACCEPT, CONTENT_TYPE, JSON, MAGIC
from tests.support.protobuf import frame_of, page_of

WAIT = 20.0
"""Real seconds that a test may wait for another thread."""


def raw_node(name: str, version: int, uid: str = "", **labels: str) -> Raw:
    """A Node as the API sends it."""
    metadata = {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(version), "labels": dict(labels)}
    return {"kind": "Node", "apiVersion": "v1", "metadata": metadata, "spec": {"podCIDR": "10.0.0.0/24"}, "status": {}}


def malformed(raw: Raw) -> Raw:
    """The same object, with a field of the wrong type."""
    return {**raw, "spec": {"podCIDR": 7, "taints": "no list"}}


def event(kind: str, raw: Raw) -> bytes:
    return json.dumps({"type": kind, "object": raw}).encode()


def bookmark(version: int) -> bytes:
    return event("BOOKMARK", {"kind": "Node", "metadata": {"resourceVersion": str(version)}})


def error_event(code: int, reason: str = "") -> bytes:
    return event("ERROR", {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "no"})


def page(version: int, *items: Raw, token: str = "", kind: str = "NodeList") -> bytes:
    """A list page; items come without kind and apiVersion, as a real server sends them."""
    bare = [{k: v for k, v in item.items() if k not in ("kind", "apiVersion")} for item in items]
    metadata = {"resourceVersion": str(version), **({"continue": token} if token else {})}
    return json.dumps({"kind": kind, "apiVersion": "v1", "metadata": metadata, "items": bare}).encode()


class SkippingClock:
    """A Clock on which every wait is over at once, its time having passed; `waits` keeps how long
    each was."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.waits: list[float] = []
        self.on_wait: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now + 1_700_000_000.0

    def boottime(self) -> float:
        return self.now

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        assert timeout is not None, "a wait without end on a clock that no other thread moves"
        if timeout > 0:
            self.waits.append(timeout)
            self.now += timeout
            self.on_wait()
        return False


class End(Exception):
    """The script is over; no error that the code under test would handle."""


def answer(data: bytes) -> Response:
    """An answer with this body, of the type that it begins as."""
    return Response(200, {"content-type": CONTENT_TYPE if data.startswith(MAGIC) else JSON}, data)


def rest_of(fake: object) -> RestClient:
    """A fake, in the place of a client."""
    return cast(RestClient, fake)


Part = bytes | Exception | Callable[[], None]
"""A line, an error to raise, or something to do between two lines."""


class ScriptedLines:
    """The lines of one watch: an error as the first part means that the server refused to open
    it."""

    def __init__(self, parts: list[Part], refused: Exception | None = None) -> None:
        self.protobuf = False
        self._parts = parts
        self._refused = refused
        self.closed = False

    def as_frames(self, kind: str) -> None:
        """Send the same as Protobuf."""
        self.protobuf = True
        self._parts = [frame_of(part, kind) if isinstance(part, bytes) else part for part in self._parts]

    def open(self) -> None:
        if self._refused is not None:
            raise self._refused

    def __iter__(self) -> Iterator[bytes]:
        for part in self._parts:
            if isinstance(part, Exception):
                raise part
            if isinstance(part, bytes):
                yield part
            else:
                part()

    def close(self) -> None:
        self.closed = True


class ScriptedRest:
    """Answers one request after another from a script, and keeps what was asked.

    Each step answers one request: bytes are a list's body, an Exception is raised in its place (for
    a list), a ScriptedLines is a watch. A request of the other kind than the script has next fails
    the test.
    """

    def __init__(self, *steps: bytes | Exception | ScriptedLines, protobuf: bool = False) -> None:
        """`protobuf`: the script's JSON goes out as Protobuf, where that is asked for."""
        self.steps = list(steps)
        self.queries: list[dict[str, str]] = []
        self.read_timeouts: list[float] = []
        self.paths: list[str] = []
        self.accepted: list[str] = []
        self.protobuf = protobuf
        self.probes = 0
        self.version = 1_000_000
        """What a list of one object says; such questions are no steps of the script."""
        self.refusals: list[Exception] = []
        """What is said first in its place."""

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        accept: str = JSON,
        timeout: float | None = None,
    ) -> Response:
        assert method == "GET"
        assert timeout is not None
        if query == {"limit": "1"}:
            self.probes += 1
            if self.refusals:
                raise self.refusals.pop(0)
            return self._listed(page(self.version), accept)
        step = self._next(path, query or {}, accept)
        if isinstance(step, Exception):
            raise step
        assert isinstance(step, bytes), f"a list was asked for ({query}), the script has {step}"
        return self._listed(step, accept)

    def stream(self, path: str, *, query: Mapping[str, str], read_timeout: float, accept: str = JSON) -> ScriptedLines:
        self.read_timeouts.append(read_timeout)
        step = self._next(path, query, accept)
        assert isinstance(step, ScriptedLines), f"a watch was asked for ({query}), the script has {step!r}"
        if accept == ACCEPT:
            step.as_frames("Node")
        return step

    def _listed(self, data: bytes, accept: str) -> Response:
        return answer(page_of(data) if accept == ACCEPT else data)

    def _next(self, path: str, query: Mapping[str, str], accept: str) -> bytes | Exception | ScriptedLines:
        if not self.steps:
            raise End
        self.accepted.append(accept)
        self.paths.append(path)
        self.queries.append(dict(query))
        return self.steps.pop(0)


def watch(*parts: Part) -> ScriptedLines:
    """A watch that opens."""
    return ScriptedLines(list(parts))


def refused(error: Exception) -> ScriptedLines:
    """A watch that the server refuses."""
    return ScriptedLines([], error)
