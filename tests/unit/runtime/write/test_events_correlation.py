"""What is worth a write: client-go's rules for repeated, similar and too many Events."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client.models.v1_lease import V1Lease
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_object_reference import V1ObjectReference
from kubernetes.client.models.v1_service import V1Service

from controllers.runtime.write import Reference
from controllers.runtime.write.correlation import (
    BURST,
    COMBINED_PREFIX,
    MAX_MESSAGE,
    SIMILAR_LIMIT,
    SIMILAR_SECONDS,
    Correlator,
    Event,
    EventMemory,
    reference,
)
from tests.support.there import there

NODE = Reference("Node", "n1", uid="u1")
START = 1_700_000_000.0


def happening(
    message: str = "m",
    *,
    at: float = START,
    ref: Reference = NODE,
    reason: str = "R",
    count: int = 1,
    kind: str = "Normal",
) -> Event:
    return Event(ref, kind, reason, message, at, at, count, at=at)


def observed(correlator: Correlator, what: Event) -> Event:
    entry = there(correlator.observe(what))
    entry.exists = True
    return entry


class TestRepetition:
    def test_the_same_again_is_counted_on_the_same_event_whatever_the_objects_version(self) -> None:
        correlator = Correlator()
        first = observed(correlator, happening())
        newer = Reference("Node", "n1", uid="u1", resource_version="99")
        again = observed(correlator, happening(at=START + 60, count=3, ref=newer))
        assert again is first
        assert again.count == 4
        assert again.change() == {"count": 4, "lastTimestamp": "2023-11-14T22:14:20Z", "message": "m"}
        assert again.body("c")["firstTimestamp"] == "2023-11-14T22:13:20Z"

    @pytest.mark.parametrize(
        "other",
        [
            happening("other"),
            happening(reason="Other"),
            happening(kind="Warning"),
            happening(ref=Reference("Node", "n1", uid="u2")),
            happening(ref=Reference("Node", "n2", uid="u1")),
            happening(ref=Reference("Service", "n1", "ns", uid="u1")),
        ],
    )
    def test_anything_else_is_another_event(self, other: Event) -> None:
        correlator = Correlator()
        first = observed(correlator, happening())
        assert observed(correlator, other) is not first
        assert first.count == 1

    def test_a_forgotten_one_starts_anew(self) -> None:
        correlator = Correlator()
        first = observed(correlator, happening())
        correlator.forget(first)
        again = observed(correlator, happening(at=START + 1))
        assert again is not first
        assert again.count == 1
        correlator.forget(first)  # not the present one: no effect
        assert observed(correlator, happening(at=START + 2)) is again


class TestSimilarity:
    def test_from_the_tenth_message_on_one_event_stands_for_all(self) -> None:
        correlator = Correlator()
        names = {observed(correlator, happening(f"m{n}", at=START + n)).name for n in range(SIMILAR_LIMIT - 1)}
        assert len(names) == SIMILAR_LIMIT - 1
        combined = observed(correlator, happening("tenth", at=START + 10))
        assert combined.message == f"{COMBINED_PREFIX}tenth"
        assert combined.name not in names
        later = observed(correlator, happening("eleventh", at=START + 11))
        assert later is combined
        assert (later.count, later.message) == (2, f"{COMBINED_PREFIX}eleventh")

    def test_other_reasons_and_objects_are_not_drawn_in_and_after_ten_quiet_minutes_messages_stand_alone(self) -> None:
        correlator = Correlator()
        for n in range(SIMILAR_LIMIT + 3):
            correlator.observe(happening(f"m{n}"))
        assert observed(correlator, happening("x", reason="Other")).message == "x"
        assert observed(correlator, happening("x", ref=Reference("Node", "n2"))).message == "x"
        assert observed(correlator, happening("new", at=START + SIMILAR_SECONDS + 1)).message == "new"

    def test_the_window_slides(self) -> None:
        """Messages nine minutes apart are similar, however long it lasts."""
        correlator = Correlator()
        last = None
        for n in range(SIMILAR_LIMIT):
            last = observed(correlator, happening(f"m{n}", at=START + n * 540))
        assert last is not None
        assert last.message.startswith(COMBINED_PREFIX)

    def test_a_combined_message_keeps_the_limit(self) -> None:
        correlator = Correlator()
        for n in range(SIMILAR_LIMIT):
            correlator.observe(happening(f"{n}" + "x" * (MAX_MESSAGE - 1)))
        entry = observed(correlator, happening("y" * MAX_MESSAGE))
        assert len(entry.message) == MAX_MESSAGE


class TestBudget:
    def test_so_many_writes_then_one_in_five_minutes_which_counts_what_was_not_written(self) -> None:
        correlator = Correlator()
        written = [correlator.observe(happening(at=START)) for _ in range(BURST + 5)]
        assert sum(entry is not None for entry in written) == BURST
        assert correlator.observe(happening(kind="Warning")) is not None, "every type has its own budget"
        assert correlator.observe(happening(ref=Reference("Node", "n2"))) is not None, "and every object"
        assert correlator.observe(happening(at=START + 299)) is None
        assert observed(correlator, happening(at=START + 301)).count == BURST + 7
        assert correlator.observe(happening(at=START + 302)) is None

    @given(st.lists(st.floats(0, 400), max_size=60))
    def test_never_more_than_the_rate_allows(self, pauses: list[float]) -> None:
        correlator, at, written = Correlator(), START, 0
        for pause in pauses:
            at += pause
            written += correlator.observe(happening(at=at)) is not None
        assert written <= BURST + (at - START) / 300 + 1e-6


class TestNames:
    def test_object_and_time_and_two_at_the_same_instant_differ(self) -> None:
        assert observed(Correlator(), happening(at=START)).name == f"n1.{int(START * 1e9):x}"
        correlator = Correlator()
        assert len({observed(correlator, happening(f"m{n}")).name for n in range(5)}) == 5

    def test_a_name_that_would_be_refused_is_replaced(self) -> None:
        for name in ("system:node", "x" * 250, "UPPER", "a..b", "-a"):
            unique = observed(Correlator(), happening(ref=Reference("ClusterRole", name))).name
            assert str(UUID(unique)) == unique


def test_memory_is_bounded_and_forgets_the_longest_unused() -> None:
    memory = EventMemory(3)
    correlator = Correlator(memory)
    kept = observed(correlator, happening("kept"))
    for n in range(2):
        correlator.observe(happening(f"m{n}"))
    assert correlator.observe(happening("kept")) is kept
    correlator.observe(happening("m2"))  # m0 goes
    assert observed(correlator, happening("kept")).count == 3
    assert observed(correlator, happening("m0")).count == 1
    assert memory.sizes() == {"event": 3, "group": 1, "budget": 1}


def test_nothing_is_remembered_for_longer_than_it_is_of_use() -> None:
    memory = EventMemory()
    correlator = Correlator(memory)
    for n in range(50):
        correlator.observe(happening("m", ref=Reference("Node", f"n{n}"), at=n))
    correlator.observe(happening("m", ref=Reference("Node", "late"), at=700))
    assert memory.sizes() == {"event": 51, "group": 1, "budget": 1}
    correlator.observe(happening("m", ref=Reference("Node", "later"), at=3620))
    assert memory.sizes() == {"event": 31, "group": 1, "budget": 1}


def test_an_object_that_used_up_its_writes_is_remembered_until_it_has_them_again() -> None:
    correlator = Correlator()
    written = [correlator.observe(happening("m", at=0)) is not None for _ in range(BURST + 1)]
    assert written == [True] * BURST + [False]
    correlator.observe(happening("m", ref=Reference("Node", "other"), at=50))
    assert correlator.observe(happening("again", at=50)) is None


def test_the_messages_of_a_group_are_not_all_remembered() -> None:
    memory = EventMemory()
    correlator = Correlator(memory)
    for n in range(100):
        correlator.observe(happening(f"m{n}"))
    messages, _ = memory.get("group", (correlator, happening("one").key[:3]))
    assert len(messages) < SIMILAR_LIMIT


class TestEvents:
    def test_of_a_node(self) -> None:
        entry = observed(Correlator(), happening("Node synced successfully", reason="Synced"))
        assert entry.body("cloud-node-controller") == {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": entry.name, "namespace": "default"},
            "involvedObject": {"kind": "Node", "name": "n1", "uid": "u1", "apiVersion": "v1"},
            "type": "Normal",
            "reason": "Synced",
            "message": "Node synced successfully",
            "count": 1,
            "firstTimestamp": "2023-11-14T22:13:20Z",
            "lastTimestamp": "2023-11-14T22:13:20Z",
            "source": {"component": "cloud-node-controller"},
            "reportingComponent": "cloud-node-controller",
        }

    def test_with_a_namespace(self) -> None:
        ref = Reference("Service", "s", "shop", "u", resource_version="5", field_path="spec")
        body = observed(Correlator(), happening(ref=ref)).body("service-controller")
        assert body["metadata"]["namespace"] == "shop"
        assert body["involvedObject"] == {
            "kind": "Service",
            "name": "s",
            "namespace": "shop",
            "uid": "u",
            "apiVersion": "v1",
            "resourceVersion": "5",
            "fieldPath": "spec",
        }


class TestReference:
    META = {"name": "x", "namespace": "ns", "uid": "u", "resourceVersion": "7"}  # noqa: RUF012

    def test_models_of_lists_lack_kind_and_version(self) -> None:
        node = V1Node.from_dict({"metadata": {"name": "n1", "uid": "u1"}})
        assert reference(node) == NODE
        service = V1Service.from_dict({"metadata": self.META})
        assert reference(service) == Reference("Service", "x", "ns", "u", resource_version="7")
        lease = V1Lease.from_dict({"metadata": self.META})
        assert reference(lease) == Reference("Lease", "x", "ns", "u", "coordination.k8s.io/v1", "7")

    def test_raw_objects_and_references(self) -> None:
        raw = {"kind": "Gateway", "apiVersion": "gateway.networking.k8s.io/v1", "metadata": self.META}
        assert reference(raw) == Reference("Gateway", "x", "ns", "u", "gateway.networking.k8s.io/v1", "7")
        assert reference(NODE) is NODE
        assert reference(V1ObjectReference(kind="Node", name="n1", uid="u1", api_version="v1")) == NODE

    @pytest.mark.parametrize("obj", [{}, {"kind": "Node"}, {"metadata": {"name": "x"}}, V1Node(), V1ObjectReference()])
    def test_what_cannot_be_referred_to(self, obj: object) -> None:
        with pytest.raises(ValueError, match="kind and a name"):
            reference(obj)
