"""What the benchmarks count as a write of a contender, when it is done, and the CPU time that it
took."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.lab.bench import spent
from tests.lab.bench.scenarios import initialise
from tests.lab.bench.spent import Spent
from tests.lab.bench.witness import Seen
from tests.support.failover.audit import AuditLog, seconds_of
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


@pytest.mark.parametrize(("kind", "gives_up"), [("go", True), ("ours", False)])
def test_only_the_go_manager_is_done_without_all_events(
    kind: str, gives_up: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, cpu = tmp_path / "audit.log", iter((1.0, 2.0, 3.0))
    run: Any = SimpleNamespace(contender=SimpleNamespace(kind=kind), seen=Seen(AuditLog(log)))
    run.spent = SimpleNamespace(by_process=lambda: next(cpu), by_server=lambda: 10.0)
    written = seconds_of("2026-01-02T03:04:03.500000Z")

    def look(done: Callable[[], bool], what: str) -> None:
        assert not done(), "nothing is written yet"
        log.write_text(2 * line("patch", "nodes/status", 1))
        assert not done(), "the other write is missing"
        with log.open("a") as file:
            file.write(line("patch", "nodes", 3))
        monkeypatch.setattr(time, "time", lambda: written + 4.9)
        assert not done(), "its Event may still come"
        monkeypatch.setattr(time, "time", lambda: written + 5.1)
        assert done() is gives_up
        with log.open("a") as file:
            file.write(line("create", "events", 9, 201))
        assert done()

    run.wait = look
    assert initialise._work(run, 1) == {"cpu": 3.0, "server_cpu": 10.0, "each": 13000.0}, "as of the last write"


def test_cpu_is_counted_from_the_start_of_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = {1: 0.1, 2: 50.0, 3: 4.0}
    monkeypatch.setattr(spent, "usage", lambda pid: Usage(1, 1, 1.0, cpu=cpu[pid]))
    server: Any = SimpleNamespace(pid=2)
    one = Spent(1, server)
    cpu |= {1: 2.1, 2: 53.0}
    assert [one.by_process(), one.by_server()] == pytest.approx([2.0, 3.0])
    server.pid = 3
    assert one.by_server() == 4.0, "it was started anew, so all that it took is new"
