"""A real API server filled with nodes for one measurement, and what its audit log says afterwards.

All contenders are timed by the same witness: the audit log of the server, which has microseconds for every request.
"""

from __future__ import annotations

import concurrent.futures
import datetime
import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from attrs import frozen

from tests.envtest.server import RealAPIServer
from tests.support.api import API
from tests.support.nodes import big_node

FILL_THREADS = 8


class BenchCluster:
    """A fresh API server with `count` nodes of 12.9 KB that carry the uninitialized taint. A context manager."""

    def __init__(self, count: int) -> None:
        self.server = RealAPIServer(audit_level="Metadata")
        self.count = count

    def __enter__(self) -> BenchCluster:
        self.server.start()
        self.api = API(self.server.url, self.server.token, self.server.ca_file)
        while self.api.find("/api/v1/namespaces/default") is None:
            time.sleep(0.05)  # a fresh server makes its namespaces by itself; nothing is measured yet
        self._fill([big_node(f"node-{number:05d}") for number in range(self.count)])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.server.stop()

    def kubeconfig(self, folder: Path) -> Path:
        return self.server.write_kubeconfig(folder / "kubeconfig")

    def node(self, name: str) -> dict[str, Any]:
        return self.api.get(f"/api/v1/nodes/{name}")

    def _fill(self, nodes: list[dict[str, Any]]) -> None:
        local = threading.local()
        context = ssl.create_default_context(cafile=str(self.server.ca_file))
        address = self.server.url.removeprefix("https://")
        headers = {"Authorization": f"Bearer {self.server.token}", "Content-Type": "application/json"}

        def create(node: dict[str, Any]) -> None:
            if not hasattr(local, "connection"):
                local.connection = http.client.HTTPSConnection(address, context=context, timeout=60)
            local.connection.request("POST", "/api/v1/nodes", json.dumps(node), headers)
            answer = local.connection.getresponse()
            body = answer.read()
            if answer.status != 201:
                raise RuntimeError(f"creating a node: {answer.status} {body[:200]!r}")

        with concurrent.futures.ThreadPoolExecutor(FILL_THREADS) as pool:
            list(pool.map(create, nodes))


@frozen
class Write:
    """One successful write: when it arrived and when it was answered (Unix seconds), and what it was."""

    began: float
    ended: float
    agent: str
    verb: str
    resource: str
    name: str


@frozen
class Seen:
    """What the audit log holds of one contender's writes."""

    nodes: tuple[Write, ...]
    events: tuple[Write, ...]

    @property
    def first(self) -> float:
        return min(write.began for write in self.nodes)

    @property
    def last_node(self) -> float:
        return max(write.ended for write in self.nodes)

    @property
    def last_event(self) -> float:
        return max(write.ended for write in self.events)


class AuditReader:
    """Follows the audit log from where it stands now, reading only what is new."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._offset = log.stat().st_size if log.exists() else 0
        self._rest = b""
        self.writes: list[Write] = []

    def read(self) -> list[Write]:
        """All writes so far."""
        with self._log.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        self.writes += _writes(lines)
        return self.writes

    def wait(self, enough: Callable[[list[Write]], bool], timeout: float, alive: Callable[[], bool]) -> bool:
        """Read until `enough`; False when `timeout` seconds passed or the contender died before that."""
        end = time.monotonic() + timeout
        while not enough(self.read()):
            if time.monotonic() > end or not alive():
                return False
            time.sleep(0.1)  # the witness must not load the machine that is measured
        return True


def seen(writes: Iterable[Write]) -> Seen:
    """The writes on nodes and the new Events."""
    found = list(writes)
    return Seen(
        tuple(write for write in found if write.resource.startswith("nodes") and write.verb in ("patch", "update")),
        tuple(write for write in found if write.resource == "events" and write.verb == "create"),
    )


def _writes(lines: Iterable[bytes]) -> Iterable[Write]:
    for line in lines:
        if not line:
            continue
        event = json.loads(line)
        reference = event.get("objectRef") or {}
        if event["verb"] not in ("create", "patch", "update", "delete") or event["responseStatus"]["code"] >= 300:
            continue
        resource = "/".join(filter(None, (reference.get("resource", ""), reference.get("subresource", ""))))
        yield Write(
            _seconds(event["requestReceivedTimestamp"]),
            _seconds(event["stageTimestamp"]),
            event.get("userAgent", ""),
            event["verb"],
            resource,
            reference.get("name", ""),
        )


def _seconds(stamp: str) -> float:
    return datetime.datetime.fromisoformat(stamp).timestamp()
