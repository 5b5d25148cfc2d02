"""A Lease at an API server in memory, as the real one treats it, with faults; and candidates for it
under one clock."""

from __future__ import annotations

import copy
import json
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

from controllers.runtime.api import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, Response, RestClient
from controllers.runtime.election import Callbacks, Elector, LeaseSettings
from controllers.runtime.metrics import Metrics
from tests.support.clock import FakeClock

PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


class LeaseServer:
    """`lease` is what stands; `fault`, set by a test, is called with each request's method and may
    raise.

    `lose_answers` counts down writes that are applied, and whose answer never comes.
    """

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.requests: list[tuple[str, float | None]] = []
        self.fault: Callable[[str], None] = lambda method: None
        self.lose_answers = 0
        self.may_watch = True
        self._version = 100
        self._streams: list[Stream] = []
        self._lock = threading.RLock()

    @property
    def spec(self) -> dict[str, Any]:
        assert self.lease is not None
        spec: dict[str, Any] = self.lease["spec"]
        return spec

    def put(self, spec: dict[str, Any], **metadata: Any) -> None:
        """Another's write, or an administrator's."""
        with self._lock:
            old = self.lease["metadata"] if self.lease else {"name": "ccm", "namespace": "kube-system", "uid": "u1"}
            self._store({"kind": "Lease", "metadata": {**old, **metadata}, "spec": spec})

    def remove(self) -> None:
        with self._lock:
            gone, self.lease = self.lease, None
            self._tell("DELETED", gone)

    def request(self, method: str, path: str, *, body: object | None = None, timeout: float | None = None) -> Response:
        with self._lock:
            self.requests.append((method, timeout))
            self.fault(method)
            answer = getattr(self, f"_{method.lower()}")(path, copy.deepcopy(body))
            if method != "GET" and self.lose_answers:
                self.lose_answers -= 1
                raise ApiError("timed out waiting for the answer")
            return Response(200, {}, json.dumps(answer).encode())

    def stream(self, path: str, *, query: dict[str, str] | None = None, read_timeout: float) -> Stream:
        assert path == PATH
        assert query == {"watch": "true", "fieldSelector": "metadata.name=ccm"}
        if not self.may_watch:
            return Stream(Forbidden("leases is forbidden", status=403))
        with self._lock:
            stream = Stream()
            self._streams.append(stream)
            if self.lease is not None:
                stream.put({"type": "ADDED", "object": self.lease})
            return stream

    def break_watches(self) -> None:
        with self._lock:
            for stream in self._streams:
                stream.close()
            self._streams.clear()

    def watchers(self) -> int:
        with self._lock:
            self._streams = [stream for stream in self._streams if not stream.closed]
            return len(self._streams)

    def _get(self, path: str, _body: Any) -> dict[str, Any]:
        assert path == f"{PATH}/ccm"
        if self.lease is None:
            raise NotFound("no such lease", status=404)
        return self.lease

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert path == PATH
        if self.lease is not None:
            raise AlreadyExists("it exists", status=409)
        assert "resourceVersion" not in body["metadata"]
        body["metadata"] |= {"uid": "u1"}
        return self._store(body)

    def _put(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert path == f"{PATH}/ccm"
        if self.lease is None or body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise Conflict("the object has been modified", status=409)
        return self._store(body)

    def _store(self, lease: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        lease["metadata"]["resourceVersion"] = str(self._version)
        kind = "MODIFIED" if self.lease else "ADDED"
        self.lease = lease
        self._tell(kind, lease)
        return lease

    def _tell(self, kind: str, lease: Any) -> None:
        for stream in self._streams:
            stream.put({"type": kind, "object": lease})


class Stream:
    def __init__(self, error: ApiError | None = None) -> None:
        self._error = error
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.closed = False

    def put(self, event: object) -> None:
        self._lines.put(json.dumps(event).encode())

    def open(self) -> None:
        if self._error is not None:
            raise self._error

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._lines.get, None)

    def close(self) -> None:
        self.closed = True
        self._lines.put(None)


class Candidate:
    """An elector whose steps the test takes, so that nothing happens by itself."""

    def __init__(
        self, server: LeaseServer, clock: FakeClock, identity: str, serves: dict[str, str] | None = None
    ) -> None:
        self.strangers: list[str] = []
        self.told: list[str] = []
        self.lost: list[str] = []
        self.lost_hook: Callable[[], object] = lambda: None
        self.began = 0
        self.metrics = Metrics()
        self.elector = Elector(
            cast(RestClient, server),
            LeaseSettings(name="ccm", identity=identity, serves=serves or {}),
            Callbacks(
                on_leading=self._leads,
                on_lost=self._loses,
                event=self.told.append,
                on_stranger=self.strangers.append,
            ),
            metrics=self.metrics,
            clock=clock,
            chance=lambda: 0.5,
        )

    def step(self) -> float | None:
        return self.elector.step()

    def leads(self) -> bool:
        return self.elector.leading

    def metric(self, name: str) -> float:
        return self.metrics.registry.get_sample_value(name, {"name": "ccm"}) or 0.0

    def _leads(self) -> None:
        self.began += 1

    def _loses(self, reason: str) -> None:
        self.lost.append(reason)
        self.lost_hook()
