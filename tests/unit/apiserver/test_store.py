"""The versioned store: one rising version, snapshots of the past, subscriptions that miss
nothing."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudprovider.testing.apiserver.storage import Change, Compacted, Store

WRITES = st.lists(st.tuples(st.sampled_from(["put", "remove"]), st.sampled_from("abc"), st.integers(0, 9)), max_size=25)


def put(store: Store, key: str, value: object = 0) -> int:
    return store.put("nodes", key, {"metadata": {"name": key}, "value": value}).version


def content(store: Store, version: int | None = None) -> dict[str, Any]:
    objects, _ = store.snapshot("nodes", version)
    return {stored.key: stored.object["value"] for stored in objects}


def replay(store: Store, writes: list[tuple[str, str, int]]) -> dict[int, dict[str, Any]]:
    """Carry out the writes; returns what the resource held at each version."""
    present: dict[str, Any] = {}
    states = {store.version: dict(present)}
    for act, key, value in writes:
        if act == "put":
            present[key] = value
            version = put(store, key, value)
        elif key in present:
            del present[key]
            version = store.remove("nodes", key).version
        else:
            version = store.put("services", "x", {"metadata": {}}).version
        states[version] = dict(present)
    return states


@given(WRITES)
def test_every_past_version_can_be_read(writes: list[tuple[str, str, int]]) -> None:
    store = Store()
    states = replay(store, writes)
    assert {version: content(store, version) for version in states} == states
    assert content(store) == states[store.version]


@given(WRITES, st.data())
def test_changes_from_any_version_lead_to_the_present(writes: list[tuple[str, str, int]], data: st.DataObject) -> None:
    store = Store()
    states = replay(store, writes)
    since = data.draw(st.sampled_from(sorted(states)))
    held = dict(states[since])
    subscription, missed = store.subscribe("nodes", since)
    last = since
    for change in missed:
        assert change.version > last
        last = change.version
        if change.kind == "DELETED":
            del held[change.stored.key]
        else:
            assert (change.kind == "ADDED") is (change.stored.key not in held)
            held[change.stored.key] = change.stored.object["value"]
    assert held == states[store.version]
    assert subscription.pending.empty()


@given(WRITES, st.integers(1, 12))
def test_a_short_history_answers_compacted_or_right(writes: list[tuple[str, str, int]], history: int) -> None:
    store = Store(history=history)
    states = replay(store, writes)
    for version, expected in states.items():
        if version >= store.oldest:
            assert content(store, version) == expected
        else:
            with pytest.raises(Compacted):
                store.snapshot("nodes", version)
            with pytest.raises(Compacted):
                store.subscribe("nodes", version)


def test_a_subscriber_gets_later_changes_in_order_until_it_leaves() -> None:
    store = Store()
    put(store, "a", 1)
    subscription, objects, version = store.subscribe_now("nodes")
    assert [stored.key for stored in objects] == ["a"]
    assert store.quiet_version(subscription) == version
    put(store, "a", 2)
    store.put("services", "s", {"metadata": {}})
    store.remove("nodes", "a")
    assert store.quiet_version(subscription) is None
    changes = [subscription.pending.get_nowait() for _ in range(2)]
    assert [change.kind for change in changes if isinstance(change, Change)] == ["MODIFIED", "DELETED"]
    assert store.quiet_version(subscription) == store.version
    store.unsubscribe(subscription)
    store.unsubscribe(subscription)
    put(store, "b")
    assert subscription.pending.empty()
    assert not store.collection("nodes").subscriptions


def test_bytes_are_made_once_and_not_kept_in_the_history() -> None:
    store = Store()
    old = store.put("nodes", "a", {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "a"}})
    assert old.data is old.data
    assert json.loads(old.item) == {"metadata": {"name": "a", "resourceVersion": str(old.version)}}
    put(store, "a")
    assert old.data is not old.data
    assert json.loads(old.data) == old.object


def test_writers_on_many_threads_lose_nothing() -> None:
    store = Store()
    subscription, _ = store.subscribe("nodes", store.version)

    def write(name: str) -> None:
        for value in range(200):
            put(store, name, value)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    versions = [subscription.pending.get_nowait() for _ in range(800)]
    assert subscription.pending.empty()
    numbers = [change.version for change in versions if isinstance(change, Change)]
    assert numbers == sorted(set(numbers))
