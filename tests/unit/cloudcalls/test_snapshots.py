"""Copies for vendors: independent, shared per revision, watched, freed."""

import copy
import threading
import weakref
from itertools import pairwise
from typing import Any

import pytest
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_node_address import V1NodeAddress
from kubernetes.client.models.v1_persistent_volume import V1PersistentVolume

from cloudprovider import Route
from controllers.cloudcalls.snapshots import Snapshots, private_copy, same
from tests.unit.cloudcalls.support import node

RAW = {
    "metadata": {
        "name": "n1",
        "uid": "u1",
        "resourceVersion": "5",
        "labels": {"a": "b"},
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "u"}],
    },
    "spec": {"providerID": "test://1", "taints": [{"key": "k", "effect": "NoSchedule"}]},
    "status": {"addresses": [{"type": "InternalIP", "address": "1.2.3.4"}], "capacity": {"cpu": "4"}},
}


def full() -> V1Node:
    parsed = V1Node.from_dict(copy.deepcopy(RAW))
    assert parsed is not None
    return parsed


class Watched(Snapshots):
    def __init__(self, limit: int = 100) -> None:
        self.reports: list[tuple[str, str]] = []
        super().__init__(limit, lambda method, what: self.reports.append((method, what)))


def mutables(value: Any) -> set[int]:
    """The ids of everything in there that could be changed."""
    if hasattr(value, "__pydantic_fields_set__"):
        own = {id(value), id(value.__dict__), id(value.__pydantic_fields_set__)}
        return own.union(*(mutables(v) for v in value.__dict__.values()))
    if isinstance(value, dict):
        return {id(value)}.union(*(mutables(v) for v in value.values()))
    if isinstance(value, list):
        return {id(value)}.union(*(mutables(v) for v in value))
    return set()


def test_a_copy_is_equal_and_shares_nothing_that_can_change() -> None:
    original = full()
    made = private_copy(original)
    assert made == original
    assert made.to_dict() == original.to_dict()
    assert made.model_fields_set == original.model_fields_set
    assert not mutables(made) & mutables(original)
    made.metadata.labels["a"] = "changed"
    made.spec.taints.append(made.spec.taints[0])
    assert original == full()


@pytest.mark.parametrize(
    "change",
    [
        lambda n: n.metadata.labels.update(a="c"),
        lambda n: n.metadata.labels.pop("a"),
        lambda n: n.metadata.labels.update(new="x"),
        lambda n: setattr(n.spec, "provider_id", "test://2"),
        lambda n: n.spec.taints.clear(),
        lambda n: setattr(n.spec.taints[0], "key", "z"),
        lambda n: n.status.addresses.append(n.status.addresses[0]),
        lambda n: setattr(n, "status", None),
        lambda n: n.metadata.__dict__.pop("labels"),
    ],
)
def test_every_change_is_seen(change: Any) -> None:
    original = full()
    made = private_copy(original)
    assert same(original, made)
    change(made)
    assert not same(original, made)


def test_things_that_are_no_data_are_passed_on() -> None:
    stop = threading.Event()
    loan = Watched().lend(("text", 5, None, b"key", stop, V1Node))
    assert loan.args == ("text", 5, None, b"key", stop, V1Node)
    assert loan.args[4] is stop
    assert loan.pairs == []


def test_one_copy_per_object_shared_between_calls() -> None:
    snapshots, n = Watched(), node("n1")
    first, second = snapshots.lend((n,)).args[0], snapshots.lend(([n],)).args[0][0]
    assert first is second
    assert first is not n
    newer = node("n1", revision="2")
    third = snapshots.lend((newer,)).args[0]
    assert third is not first
    assert third.metadata.resource_version == "2"
    assert len(snapshots) == 2
    del n
    assert len(snapshots) == 1, "the older revision is freed"


def test_objects_without_revision_are_copied_each_time() -> None:
    snapshots = Watched()
    draft = V1Node.from_dict({"metadata": {"name": "draft"}})
    loans = snapshots.lend((draft,)), snapshots.lend((draft,))
    assert loans[0].args[0] is not loans[1].args[0]
    assert len(snapshots) == 0


def test_copies_are_bounded_the_least_used_go_first() -> None:
    snapshots, many = Watched(limit=10), [node(f"n{i}") for i in range(11)]
    copies = [snapshots.lend((n,)).args[0] for n in many[:10]]
    assert snapshots.lend((many[0],)).args[0] is copies[0]
    snapshots.lend((many[10],))
    assert len(snapshots) == 10
    assert snapshots.lend((many[0],)).args[0] is copies[0]
    assert snapshots.lend((many[1],)).args[0] is not copies[1]


@pytest.mark.row("X9")
@pytest.mark.parametrize("forged_first", [True, False])
@pytest.mark.parametrize("in_list", [True, False])
def test_an_object_that_claims_another_ones_uid_and_version_never_stands_in_for_it(
    forged_first: bool, in_list: bool
) -> None:
    snapshots, real = Watched(), node("n1")
    assert real.metadata is not None
    claims = {"name": "not-a-machine", "uid": real.metadata.uid, "resourceVersion": real.metadata.resource_version}
    volume = V1PersistentVolume.from_dict({"metadata": claims})
    same_class = V1Node.from_dict({"metadata": claims})

    def lent(one: Any) -> Any:
        return snapshots.lend(([one, one],)).args[0][0] if in_list else snapshots.lend((one,)).args[0]

    for forged in (volume, same_class):
        order = [forged, real] if forged_first else [real, forged]
        held = [lent(one) for one in (*order, *order)]
        assert held == [*order, *order]
        assert [type(one) for one in held] == [type(one) for one in (*order, *order)]


@pytest.mark.row("X9")
def test_forged_objects_do_not_cost_a_cached_one_its_copy() -> None:
    snapshots, real = Watched(limit=2), node("n1")
    kept = snapshots.lend((real,)).args[0]
    for _ in range(10):
        assert snapshots.lend((node("n1", labels={"forged": "yes"}),)).args[0] is not kept
    assert snapshots.lend((real,)).args[0] is kept
    assert len(snapshots) == 1


def test_a_change_is_reported_and_never_seen_by_others() -> None:
    snapshots, n = Watched(), node("n1", labels={"a": "b"})
    loan = snapshots.lend(([n, node("n2")],))
    loan.args[0][0].metadata.labels["a"] = "vendor"
    snapshots.settle("instance_metadata", loan)
    assert snapshots.reports == [("instance_metadata", "V1Node n1")]
    assert n.metadata is not None
    assert n.metadata.labels == {"a": "b"}
    again = snapshots.lend((n,))
    assert again.args[0].metadata.labels == {"a": "b"}
    snapshots.settle("instance_metadata", again)
    assert len(snapshots.reports) == 1


def test_a_vendor_may_sort_its_own_list() -> None:
    snapshots, seq = Watched(), [node("b"), node("a")]
    loan = snapshots.lend((seq,))
    loan.args[0].sort(key=lambda n: n.metadata.name)
    loan.args[0].pop()
    snapshots.settle("m", loan)
    assert snapshots.reports == []
    assert [n.metadata.name for n in seq if n.metadata] == ["b", "a"]


def test_changes_of_objects_without_revision_are_reported_too() -> None:
    snapshots, route = Watched(), Route("r", "n", "c", target_node_addresses=[V1NodeAddress(type="A", address="b")])
    loan = snapshots.lend((route,))
    loan.args[0].target_node_addresses[0].address = "x"
    snapshots.settle("create_route", loan)
    assert snapshots.reports == [("create_route", "Route")]


def test_a_list_longer_than_the_bound_is_copied_once() -> None:
    snapshots, many = Watched(limit=1), [node(f"n{i}") for i in range(20)]
    first = snapshots.lend((node("a"), many)).args[1]
    second = snapshots.lend((node("b"), many)).args[1]
    assert all(a is b for a, b in zip(first, second, strict=True))


def test_long_lists_are_compared_in_parts_and_whole_once_a_method_was_caught() -> None:
    snapshots, many = Watched(), [node(f"n{i}", labels={"a": "b"}) for i in range(300)]

    def call(*changes: int) -> None:
        loan = snapshots.lend((many,))
        for index in changes:
            loan.args[0][index].metadata.labels["a"] = "vendor"
        snapshots.settle("ensure_load_balancer", loan)

    call(70)
    assert snapshots.reports == []
    call()
    assert snapshots.reports == []
    call()
    assert snapshots.reports == [("ensure_load_balancer", "V1Node n70")], "the third part holds it"
    call(1, 299)
    assert len(snapshots.reports) == 3
    assert snapshots.lend((many,)).args[0][299].metadata.labels == {"a": "b"}


def test_a_long_tuple_is_lent_as_a_whole_until_another_one_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots, many = Watched(), tuple(node(f"n{i}", labels={"a": "b"}) for i in range(300))
    first = snapshots.lend((node("a"), many)).args[1]
    one_by_one: list[Any] = []
    monkeypatch.setattr(snapshots, "_find", one_by_one.append)
    second = snapshots.lend((many,)).args[0]
    assert first == second
    assert first is not second, "a provider may sort its own"
    assert first[299] is second[299]
    assert not one_by_one
    monkeypatch.undo()
    third = snapshots.lend(((*many, node("late")),)).args[0]
    assert third[299] is first[299]
    assert third[300].metadata.name == "late"


def test_two_long_tuples_in_turn_are_found_while_a_call_has_them_and_free_afterwards() -> None:
    snapshots, old = Watched(), tuple(node(f"n{i}") for i in range(40))
    new = (*old, node("late"))
    under_way, last = snapshots.lend((old,)), snapshots.lend((new,))
    assert snapshots.lend((old,)).lists[0] is under_way.lists[0]
    assert snapshots.lend((new,)).lists[0] is last.lists[0]
    kept = weakref.ref(under_way.lists[0])
    del under_way
    assert kept() is None, "it would keep the former versions of all nodes"


def test_a_change_in_a_long_tuple_is_reported_and_dropped() -> None:
    snapshots, many = Watched(), tuple(node(f"n{i}", labels={"a": "b"}) for i in range(100))
    for _ in range(4):  # parts of 32
        loan = snapshots.lend((many,))
        loan.args[0][70].metadata.labels["a"] = "vendor"
        snapshots.settle("update_load_balancer", loan)
    assert set(snapshots.reports) == {("update_load_balancer", "V1Node n70")}
    assert snapshots.lend((many,)).args[0][70].metadata.labels == {"a": "b"}


def test_only_what_was_changed_in_a_long_tuple_is_copied_anew() -> None:
    snapshots, many = Watched(), tuple(node(f"n{i}", labels={"a": "b"}) for i in range(40))
    loan = snapshots.lend((many,))
    loan.args[0][7].metadata.labels["a"] = "vendor"
    for _ in range(2):  # parts of 32
        snapshots.settle("update_load_balancer", snapshots.lend((many,)))
    again = snapshots.lend((many,)).args[0]
    assert [mine is lent for mine, lent in zip(again, loan.args[0], strict=True)].count(False) == 1
    assert again[7].metadata.labels == {"a": "b"}


def test_however_many_services_are_lent_a_long_tuple_keeps_its_copies() -> None:
    snapshots, many = Watched(limit=10), tuple(node(f"n{i:03}") for i in range(100))
    first = snapshots.lend((many,)).args[0]
    others = [node(f"other-{i}") for i in range(50)]
    for other in others:
        snapshots.lend((other, many))
    second = snapshots.lend(((*many[:99], node("new")),)).args[0]
    assert [mine is lent for mine, lent in zip(second, first, strict=True)].count(False) == 1
    assert snapshots.lend((many[0],)).args[0] is first[0]
    assert len(snapshots) <= 11


def test_calls_that_hold_the_same_long_tuple_share_the_work_of_comparing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots, many = Watched(), tuple(node(f"n{i}") for i in range(300))
    compared: list[Any] = []

    def look(one: Any, other: Any) -> bool:
        compared.append(one)
        return True

    monkeypatch.setattr("controllers.cloudcalls.snapshots.same", look)

    def counts(loans: list[Any]) -> list[int]:
        found = [0]
        for loan in loans:
            snapshots.settle("update_load_balancer", loan)
            found.append(len(compared))
        return [later - earlier for earlier, later in pairwise(found)]

    assert counts([snapshots.lend((many,)) for _ in range(6)]) == [8, 8, 8, 10, 16, 32]
    assert compared == list(many[:82]), "one part after the other"
    compared.clear()
    assert counts([snapshots.lend((many,))]) == [32], "alone"


def test_a_change_is_found_while_many_calls_hold_the_same_long_tuple() -> None:
    snapshots, many = Watched(), tuple(node(f"n{i}", labels={"a": "b"}) for i in range(300))
    under_way = [snapshots.lend((many,)) for _ in range(40)]
    under_way[0].args[0][299].metadata.labels["a"] = "vendor"
    for loan in under_way:
        snapshots.settle("update_load_balancer", loan)
    assert snapshots.reports[0] == ("update_load_balancer", "V1Node n299")
    assert snapshots.lend((many,)).args[0][299].metadata.labels == {"a": "b"}


def test_a_long_tuple_of_what_may_change_is_copied_each_time() -> None:
    snapshots, many = Watched(), tuple(node(f"n{i}", revision="") for i in range(100))
    first, second = (snapshots.lend((many,)).args[0] for _ in range(2))
    assert first[0] is not second[0]


def test_of_a_list_only_what_changed_is_copied_anew() -> None:
    snapshots, many = Watched(), [node(f"n{i}", labels={"a": "b"}) for i in range(5)]
    first = snapshots.lend((many,)).args[0]
    changed = [*many[:4], node("n4", revision="2", labels={"a": "c"})]
    loan = snapshots.lend((changed,))
    second = loan.args[0]
    assert second == changed
    assert [a is b for a, b in zip(first, second, strict=True)] == [True] * 4 + [False]
    second[0].metadata.labels["a"] = "vendor"
    snapshots.settle("ensure_load_balancer", loan)
    third = snapshots.lend((changed,)).args[0]
    assert third == changed
    assert third[0] is not second[0]


def test_lending_from_many_threads_gives_equal_copies() -> None:
    snapshots, many = Watched(limit=5), [node(f"n{i}") for i in range(20)]
    failures: list[str] = []

    def lend() -> None:
        for _ in range(50):
            for n in many:
                loan = snapshots.lend((n,))
                if loan.args[0] != n:
                    failures.append("different")
                snapshots.settle("m", loan)

    threads = [threading.Thread(target=lend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert not snapshots.reports
    assert len(snapshots) <= 5
