"""What every store promises, over both kinds; and that both kinds answer alike whatever is done to them."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudprovider.testing.fake.errors import FakeCloudClosed
from cloudprovider.testing.fake.records import (
    INSTANCES,
    LOAD_BALANCERS,
    REMOVED_INSTANCES,
    Instance,
    Kind,
    LoadBalancerRecord,
    LoadBalancerState,
    Mark,
    Port,
)
from cloudprovider.testing.fake.store import MemoryStore, Store
from cloudprovider.testing.fake.store_sqlite import SQLiteStore
from tests.support.clock import FakeClock

FULL = Instance("a", "i-a", "small", "z", "r", (("InternalIP", "10.0.0.1"), ("Hostname", "a")), {"k": "v"}, True)
EVER = float("-inf")


def names(found: list[Instance]) -> list[str]:
    return [instance.name for instance in found]


def test_records_come_back_as_they_were(store: Store) -> None:
    balancer = LoadBalancerRecord(
        "lb",
        "c",
        "default/web",
        "u",
        LoadBalancerState.HALF_BUILT,
        ["192.0.2.1"],
        "",
        [Port(80, 30080, "UDP", "x")],
        ["b"],
    )
    with store.write() as tx:
        tx.put(INSTANCES, "a", FULL)
        tx.put(LOAD_BALANCERS, "lb", balancer)
        tx.put(REMOVED_INSTANCES, "x", Mark("why"))
    with store.read() as view:
        assert view.get(INSTANCES, "a") == FULL
        assert view.get(LOAD_BALANCERS, "lb") == balancer
        assert view.get(REMOVED_INSTANCES, "x") == Mark("why")
        assert view.get(INSTANCES, "lb") is None, "kinds are apart"


def test_many_are_found_by_key_and_by_index_beyond_one_query(store: Store) -> None:
    with store.write() as tx:
        for number in range(1200):
            tx.put(INSTANCES, f"n{number}", Instance(f"n{number}", f"i{number}"))
    with store.read() as view:
        assert len(view.get_many(INSTANCES, [f"n{number}" for number in range(1300)])) == 1200
        found = view.find_many(INSTANCES, [f"i{number}" for number in range(1300)])
        assert {key: one.name for key, one in found.items()} == {f"i{n}": f"n{n}" for n in range(1200)}
        assert view.get_many(INSTANCES, []) == {}


def test_scan_is_sorted_by_key(store: Store) -> None:
    with store.write() as tx:
        for name in ("b", "ä", "a", "B"):
            tx.put(INSTANCES, name, Instance(name, name))
    with store.read() as view:
        assert names(view.scan(INSTANCES)) == ["B", "a", "b", "ä"]


def test_the_index_follows_changes_and_prefers_the_first_key(store: Store) -> None:
    with store.write() as tx:
        tx.put(INSTANCES, "b", Instance("b", "same"))
        tx.put(INSTANCES, "a", Instance("a", "same"))
    with store.read() as view:
        assert view.find(INSTANCES, "same") == Instance("a", "same")
    with store.write() as tx:
        tx.put(INSTANCES, "a", Instance("a", "other"))
        assert view_names(tx.find(INSTANCES, "same")) == "b"
        tx.delete(INSTANCES, "b")
        assert tx.find(INSTANCES, "same") is None
        assert view_names(tx.find(INSTANCES, "other")) == "a"


def view_names(found: Instance | None) -> str:
    return found.name if found is not None else ""


def test_deleting_says_whether_there_was_something(store: Store) -> None:
    with store.write() as tx:
        tx.put(INSTANCES, "a", FULL)
        tx.put(REMOVED_INSTANCES, "a", Mark())
    kinds: list[Kind[Any]] = [INSTANCES, REMOVED_INSTANCES]
    for kind in kinds:
        with store.write() as tx:
            assert tx.delete(kind, "a")
            assert not tx.delete(kind, "a")
            assert not tx.delete(kind, "never there")
            assert tx.scan(kind) == []


def test_counters(store: Store) -> None:
    with store.write() as tx:
        assert tx.add("calls/b") == 1
        assert tx.add("calls/a", 5) == 5
        assert tx.add("calls/a", -2) == 3
        tx.add("call", 9)
    with store.read() as view:
        assert view.counters("calls/") == {"a": 3, "b": 1}
        assert list(view.counters("calls/")) == ["a", "b"]
        assert view.counter("call") == 9
        assert view.counter("nothing") == 0


def _change_much_and_fail(store: Store) -> None:
    with store.write() as tx:
        tx.put(INSTANCES, "new", Instance("new", "i3"))
        tx.put(INSTANCES, "changed", Instance("changed", "i4"))
        tx.put(INSTANCES, "changed", Instance("changed", "i5"))
        tx.delete(INSTANCES, "kept")
        tx.add("n")
        tx.add("fresh")
        tx.clear(INSTANCES)
        raise ZeroDivisionError


def test_a_failed_transaction_leaves_nothing_behind(store: Store) -> None:
    with store.write() as tx:
        tx.put(INSTANCES, "kept", Instance("kept", "i1"))
        tx.put(INSTANCES, "changed", Instance("changed", "i2"))
        tx.add("n", 7)
    with pytest.raises(ZeroDivisionError):
        _change_much_and_fail(store)
    with store.read() as view:
        assert names(view.scan(INSTANCES)) == ["changed", "kept"]
        assert view.find(INSTANCES, "i2") == Instance("changed", "i2")
        assert view.find(INSTANCES, "i1") == Instance("kept", "i1")
        assert [view.find(INSTANCES, gone) for gone in ("i3", "i4", "i5")] == [None] * 3
        assert view.counters() == {"n": 7}
    with store.read(as_of=EVER) as view:
        assert view.get(INSTANCES, "changed") is None, "its one change is its creation"


def test_clear_forgets_one_kind_with_its_history(store: Store) -> None:
    with store.write() as tx:
        tx.put(INSTANCES, "a", FULL)
        tx.put(REMOVED_INSTANCES, "a", Mark())
    with store.write() as tx:
        tx.clear(INSTANCES)
    with store.read(as_of=EVER) as view:
        assert view.scan(INSTANCES) == []
    with store.read() as view:
        assert view.scan(INSTANCES) == []
        assert view.find(INSTANCES, "i-a") is None
        assert view.scan(REMOVED_INSTANCES) == [Mark()]


class TestOlderViews:
    def test_what_was_always_so_has_no_other_past(self, store: Store) -> None:
        with store.write(settled=True) as tx:
            tx.put(INSTANCES, "a", FULL)
        with store.read(as_of=EVER) as view:
            assert view.get(INSTANCES, "a") == FULL
            assert view.find(INSTANCES, "i-a") == FULL

    def test_a_new_record_is_absent_a_changed_one_as_before_a_deleted_one_there(self, store: Store) -> None:
        with store.write(settled=True) as tx:
            tx.put(INSTANCES, "changed", Instance("changed", "old"))
            tx.put(INSTANCES, "deleted", Instance("deleted", "gone"))
        with store.write() as tx:
            tx.put(INSTANCES, "new", Instance("new", "new"))
            tx.put(INSTANCES, "changed", Instance("changed", "now"))
            tx.delete(INSTANCES, "deleted")
        with store.read(as_of=EVER) as view:
            assert names(view.scan(INSTANCES)) == ["changed", "deleted"]
            assert view.get(INSTANCES, "changed") == Instance("changed", "old")
            assert set(view.get_many(INSTANCES, ["new", "changed", "deleted"])) == {"changed", "deleted"}
            found = view.find_many(INSTANCES, ["old", "now", "gone", "new"])
            assert {value: one.name for value, one in found.items()} == {"old": "changed", "gone": "deleted"}
        with store.read() as view:
            found = view.find_many(INSTANCES, ["old", "now", "gone", "new"])
            assert {value: one.name for value, one in found.items()} == {"now": "changed", "new": "new"}

    def test_only_changes_after_the_time_are_undone(self, store: Store, clock: FakeClock) -> None:
        with store.write() as tx:
            tx.put(INSTANCES, "early", FULL)
        clock.advance(10)
        with store.write() as tx:
            tx.put(INSTANCES, "late", FULL)
        with store.read(as_of=clock.time() - 5) as view:
            assert set(view.get_many(INSTANCES, ["early", "late"])) == {"early"}
        with store.read(as_of=clock.time()) as view:
            assert set(view.get_many(INSTANCES, ["early", "late"])) == {"early", "late"}

    def test_kinds_without_history_show_the_present(self, store: Store) -> None:
        with store.write() as tx:
            tx.put(REMOVED_INSTANCES, "a", Mark("1"))
        with store.write() as tx:
            tx.put(REMOVED_INSTANCES, "a", Mark("2"))
            tx.put(REMOVED_INSTANCES, "b", Mark("3"))
            tx.delete(REMOVED_INSTANCES, "b")
        with store.read() as view:
            assert view.scan(REMOVED_INSTANCES) == [Mark("2")]


def test_transactions_do_not_nest_and_the_store_survives_the_attempt(store: Store) -> None:
    with store.write() as tx:
        tx.add("n")
        with pytest.raises(RuntimeError, match="nest"), store.read():
            pass
        tx.add("n")
    with store.read() as view:
        assert view.counter("n") == 2


def test_a_closed_store_refuses(store: Store) -> None:
    store.close()
    store.close()
    for attempt in (store.read, store.write):
        with pytest.raises(FakeCloudClosed), attempt():
            pass


def test_threads_lose_no_update(store: Store) -> None:
    def work() -> None:
        for _ in range(100):
            with store.write() as tx:
                current = tx.get(REMOVED_INSTANCES, "n")
                tx.put(REMOVED_INSTANCES, "n", Mark(str(int(current.value) + 1 if current else 1)))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with store.read() as view:
        assert view.get(REMOVED_INSTANCES, "n") == Mark("800")


KEYS = st.sampled_from(["a", "b", "c"])
IDS = st.sampled_from(["1", "2", "3"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, IDS),
        st.tuples(st.just("delete"), KEYS, st.just("")),
        st.tuples(st.just("add"), KEYS, st.just("")),
        st.tuples(st.just("fail"), KEYS, IDS),
        st.tuples(st.just("wait"), KEYS, st.just("")),
        st.tuples(st.just("settle"), KEYS, IDS),
    ),
    max_size=30,
)


def everything(store: Store, as_of: float | None) -> object:
    with store.read(as_of) as view:
        return (
            view.scan(INSTANCES),
            view.get_many(INSTANCES, "abc"),
            view.find_many(INSTANCES, "123"),
            view.counters(),
        )


def carry_out(store: Store, step: tuple[str, str, str]) -> None:
    action, key, id_ = step
    try:
        with store.write(settled=action == "settle") as tx:
            if action == "delete":
                tx.delete(INSTANCES, key)
            elif action == "add":
                tx.add(key)
            else:
                tx.put(INSTANCES, key, Instance(key, id_))
            if action == "fail":
                tx.delete(INSTANCES, "a")
                raise KeyError
    except KeyError:
        pass


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_both_stores_answer_alike(steps: list[tuple[str, str, str]]) -> None:
    clock = FakeClock()
    now: Callable[[], float] = clock.time
    with tempfile.TemporaryDirectory() as folder:
        stores: list[Store] = [MemoryStore(now), SQLiteStore(Path(folder) / "state", now)]
        for step in steps:
            if step[0] == "wait":
                clock.advance(1)
                continue
            for store in stores:
                carry_out(store, step)
            for as_of in (None, EVER, now() - 0.5, now() - 2):
                assert everything(stores[0], as_of) == everything(stores[1], as_of)
        for store in stores:
            store.close()
