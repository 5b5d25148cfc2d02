"""What the benchmarks conclude from the audit log and the cloud's journal."""

from __future__ import annotations

import json
from pathlib import Path

from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_object_meta import V1ObjectMeta

from tests.bench.ccm import BenchCloud
from tests.bench.witness import AuditReader, Call, JournalReader, Tail, confirmed, learnt, per_key


def test_a_tail_begins_at_the_end_and_leaves_half_a_line_for_later(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"old\n")
    tail = Tail(path)
    assert tail.read() == []
    with path.open("ab") as file:
        file.write(b"one\ntw")
        file.flush()
        assert tail.read() == [b"one"]
        file.write(b"o\n")
    assert tail.read() == [b"two"]


def test_a_tail_waits_for_a_file_that_is_not_there_yet(tmp_path: Path) -> None:
    tail = Tail(tmp_path / "log")
    assert tail.read() == []
    (tmp_path / "log").write_bytes(b"first\n")
    assert tail.read() == [b"first"]


def test_the_audit_log_gives_successful_writes_with_their_subresource(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    reader = AuditReader(path)
    path.write_text("".join(json.dumps(_event(*one)) + "\n" for one in (
        ("patch", 200, "status", "a"), ("patch", 409, "status", "b"), ("get", 200, "", "c"), ("delete", 200, "", "d"),
    )))  # fmt: skip
    assert [(write.resource, write.name) for write in reader.read()] == [("nodes/status", "a"), ("nodes", "d")]
    assert [write.name for write in reader.of("nodes", "delete", "patch")] == ["d"]
    assert reader.writes[0].ended - reader.writes[0].began == 0.25


def test_our_cloud_writes_down_what_it_was_asked(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    reader = JournalReader(journal)
    cloud = BenchCloud(0.0, True, gone_prefix="gone-", journal=str(journal))
    cloud.instances_state([V1Node(metadata=V1ObjectMeta(name=name)) for name in ("gone-1", "here-1")])
    (call,) = reader.read()
    assert (call.method, call.keys, call.gone) == ("instances_state", ("gone-1", "here-1"), ("gone-1",))
    assert call.began <= call.ended


def test_a_state_is_learnt_by_a_batch_by_the_second_question_or_when_it_is_gone() -> None:
    calls = [
        Call("instances_state", 0, 1, ("a", "b"), gone=("b",)),
        Call("instance_exists", 0, 2, ("c",)),
        Call("instance_shutdown", 2, 3, ("c",)),
        Call("instance_exists", 0, 4, ("d",), gone=("d",)),
        Call("instance_exists", 0, 5, ("e",)),
        Call("instances_state", 5, 6, ("a",)),
    ]
    assert learnt(calls) == {"a": 1, "b": 1, "c": 3, "d": 4}


def test_only_answers_a_period_apart_confirm() -> None:
    calls = [
        Call("instances_state", 0, 1, ("a", "b"), gone=("a", "b")),
        Call("instances_state", 5.9, 6.9, ("a",), gone=("a",)),  # asked too early
        Call("instances_state", 6, 7, ("a",), gone=("a",)),
        Call("instances_state", 12, 13, ("a",), gone=("a",)),
    ]
    assert confirmed(calls, 2, 5) == {"a": 7}
    assert confirmed(calls, 1, 5) == {"a": 1, "b": 1}


def test_calls_are_counted_by_key() -> None:
    assert per_key([Call("x", 0, 1, ("a",)), Call("y", 0, 1, ("a", "b"))]) == {"a": 2, "b": 1}


def _event(verb: str, code: int, subresource: str, name: str) -> dict[str, object]:
    return {
        "verb": verb,
        "responseStatus": {"code": code},
        "objectRef": {"resource": "nodes", "subresource": subresource, "name": name},
        "requestReceivedTimestamp": "2026-01-02T03:04:05.000000Z",
        "stageTimestamp": "2026-01-02T03:04:05.250000Z",
    }
