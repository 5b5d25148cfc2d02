"""What the benchmarks count as a write of a contender, and the CPU time that it took."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.bench import spent
from tests.bench.spent import Spent
from tests.bench.witness import Seen
from tests.support.failover.audit import AuditLog
from tests.support.usage import Usage


def line(verb: str, resource: str, second: int, code: int = 200) -> str:
    kind, _, subresource = resource.partition("/")
    event: dict[str, Any] = {
        "stage": "ResponseComplete",
        "user": {"uid": "1"},
        "verb": verb,
        "objectRef": {"resource": kind, "subresource": subresource, "name": "node-0"},
        "responseStatus": {"code": code},
        "requestReceivedTimestamp": f"2026-01-02T03:04:{second:02}.000000Z",
        "stageTimestamp": f"2026-01-02T03:04:{second:02}.500000Z",
    }
    return json.dumps(event) + "\n"


def test_writes_that_were_carried_out_are_seen_once(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    found = Seen(AuditLog(log))
    with log.open("w") as file:
        file.write(line("list", "nodes", 1) + line("patch", "nodes/status", 3) + line("patch", "nodes", 2, 409))
    assert found.look() is found
    with log.open("a") as file:
        file.write(line("update", "nodes", 4) + line("create", "events", 5, 201) + line("create", "nodes", 6, 201))
    found.look()
    found.look()
    assert [(one.verb, one.resource) for one in found.nodes] == [("patch", "nodes/status"), ("update", "nodes")]
    assert [one.verb for one in found.events] == ["create"]
    assert found.last_node - found.first == 1.5
    assert found.last_event - found.first == 2.5


def test_cpu_is_counted_from_the_start_of_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = {1: 0.1, 2: 50.0, 3: 4.0}
    monkeypatch.setattr(spent, "usage", lambda pid: Usage(1, 1, 1.0, cpu=cpu[pid]))
    server: Any = SimpleNamespace(pid=2)
    one = Spent(1, server)
    cpu |= {1: 2.1, 2: 53.0}
    assert [one.by_process(), one.by_server()] == pytest.approx([2.0, 3.0])
    server.pid = 3
    assert one.by_server() == 4.0, "it was started anew, so all that it took is new"
