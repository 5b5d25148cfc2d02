"""The cache: lists and events in, changes out, whatever order, damage and repetition they come
in."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kubernetes.client.models.v1_node import V1Node

from controllers.runtime.cache import NODES, Lister, uid_of, version_of
from controllers.runtime.cache.resources import Raw
from controllers.runtime.cache.store import Cache, Change, ChangeKind
from controllers.runtime.metrics import Metrics
from tests.unit.runtime.cache.informers import malformed, raw_node


def make() -> Cache[V1Node]:
    return Cache(NODES, Metrics())


def told(changes: list[Change[V1Node]] | None) -> list[tuple[str, str, str, str]] | None:
    """Changes as (kind, key, old version, new version)."""
    if changes is None:
        return None
    return [
        (c.kind.value, c.key, version_of(c.old) if c.old else "", version_of(c.new) if c.new else "") for c in changes
    ]


def replace(cache: Cache[V1Node], version: int, *raws: Any) -> list[tuple[str, str, str, str]] | None:
    return told(cache.replace([cache.read(raw) for raw in raws], str(version)))


def apply(cache: Cache[V1Node], kind: str, raw: Raw) -> list[tuple[str, str, str, str]] | None:
    return told(cache.apply(kind, cache.read(raw)))


class TestLists:
    def test_a_list_becomes_adds_updates_and_deletes(self) -> None:
        cache = make()
        assert replace(cache, 5, raw_node("a", 1), raw_node("b", 2)) == [("add", "a", "", "1"), ("add", "b", "", "2")]
        changes = replace(cache, 9, raw_node("b", 7), raw_node("c", 8))
        assert changes == [("delete", "a", "1", ""), ("update", "b", "2", "7"), ("add", "c", "", "8")]
        assert sorted(cache.keys()) == ["b", "c"]
        assert cache.version == "9"

    def test_unchanged_objects_are_kept_as_they_are_and_not_parsed_again(self) -> None:
        cache = make()
        replace(cache, 5, raw_node("a", 1))
        known = cache.get("a")
        again = cache.read(malformed(raw_node("a", 1)))
        assert again.obj is known
        assert told(cache.replace([again], "6")) == []
        assert cache.get("a") is known

    def test_an_object_that_is_listed_twice_counts_once_in_its_newer_state(self) -> None:
        cache = make()
        assert replace(cache, 5, raw_node("a", 3), raw_node("a", 2)) == [("add", "a", "", "3")]


class TestEvents:
    def test_a_deletion_carries_the_last_state_or_else_the_one_known(self) -> None:
        cache = make()
        replace(cache, 5, raw_node("a", 1), raw_node("b", 2))
        known = cache.get("b")
        cache.apply("DELETED", cache.read(raw_node("a", 6, label="last")))
        changes = cache.apply("DELETED", cache.read(malformed(raw_node("b", 7))))
        assert changes is not None
        assert changes[0].old is known

    def test_a_deletion_of_the_unknown_tells_nobody(self) -> None:
        cache = make()
        replace(cache, 5)
        assert apply(cache, "DELETED", raw_node("a", 6)) == []

    def test_a_deletion_of_a_successor_that_was_never_seen_deletes_the_predecessor(self) -> None:
        cache = make()
        replace(cache, 5, raw_node("a", 1, "old"))
        assert apply(cache, "DELETED", raw_node("a", 9, "new")) == [("delete", "a", "1", "")]

    def test_a_deletion_that_carries_the_objects_last_version_counts(self) -> None:
        cache = make()
        replace(cache, 5, raw_node("a", 3))
        cache.advance("20")
        assert apply(cache, "DELETED", raw_node("a", 3)) == [("delete", "a", "3", "")]

    def test_opaque_versions_are_believed(self) -> None:
        cache = make()
        cache.replace([], "start")
        first, second = raw_node("a", 1), raw_node("a", 2)
        first["metadata"]["resourceVersion"], second["metadata"]["resourceVersion"] = "zz", "aa"
        assert apply(cache, "ADDED", first) == [("add", "a", "", "zz")]
        assert apply(cache, "MODIFIED", second) == [("update", "a", "zz", "aa")]
        assert cache.version == "aa"

    def test_bookmarks_only_go_forward(self) -> None:
        cache = make()
        replace(cache, 5)
        for version in ("9", "7", ""):
            cache.advance(version)
        assert cache.version == "9"


class TestQuarantine:
    def test_the_last_good_version_stays_until_the_object_is_well_again(self) -> None:
        cache = make()
        replace(cache, 5, raw_node("a", 1))
        assert apply(cache, "MODIFIED", malformed(raw_node("a", 6))) == []
        assert version_of(cache.get("a") or V1Node()) == "1"
        assert cache.version == "6", "the watch goes on behind it"
        assert list(cache.quarantine.problems()) == ["a"]
        assert apply(cache, "MODIFIED", raw_node("a", 7)) == [("update", "a", "1", "7")]
        assert cache.quarantine.problems() == {}

    @pytest.mark.parametrize("by_list", [True, False])
    def test_an_illegible_uid_is_no_other_uid(self, by_list: bool) -> None:
        cache = make()
        replace(cache, 5, raw_node("a", 1))
        spoilt = raw_node("a", 8)
        spoilt["metadata"]["uid"] = 7
        assert (replace(cache, 9, spoilt) if by_list else apply(cache, "MODIFIED", spoilt)) == []
        assert version_of(cache.get("a") or V1Node()) == "1"

    def test_it_is_counted_each_time_and_logged_once(self, caplog: pytest.LogCaptureFixture) -> None:
        metrics = Metrics()
        cache = Cache(NODES, metrics)
        caplog.set_level(logging.ERROR)
        replace(cache, 5, malformed(raw_node("a", 1)))
        for version in (6, 7, 8):
            apply(cache, "MODIFIED", malformed(raw_node("a", version)))
        assert metrics.value("informer_quarantined_objects", resource="nodes") == 1
        assert metrics.value("informer_malformed_objects_total", resource="nodes") == 4
        assert len(caplog.records) == 1
        assert "nodes a is malformed" in caplog.text
        apply(cache, "MODIFIED", raw_node("a", 9))
        assert metrics.value("informer_quarantined_objects", resource="nodes") == 0
        apply(cache, "MODIFIED", malformed(raw_node("a", 10)))
        assert len(caplog.records) == 2, "falling ill again is news"

    @pytest.mark.parametrize("item", [None, 7, "text", [], {}, {"metadata": []}, {"metadata": {"name": 5}}])
    def test_items_without_a_name_cost_nobody_else(self, item: Any) -> None:
        cache = make()
        assert replace(cache, 5, item, raw_node("a", 1)) == [("add", "a", "", "1")]
        assert cache.quarantine.problems() == {}


def test_the_lister_reads_snapshots() -> None:
    cache = make()
    lister: Lister[Any] = cache
    assert (lister.list(), list(lister.keys()), len(lister), lister.get("a")) == ([], [], 0, None)
    replace(cache, 5, raw_node("a", 1))
    listed = lister.list()
    assert listed == [lister.get("a")]
    listed.clear()
    assert len(lister) == 1


class History:
    """What a server went through: every object's states by version, from random steps."""

    def __init__(self) -> None:
        self.version = 0
        self.objects: dict[str, Raw] = {}
        self.events: list[tuple[str, Raw]] = []

    def step(self, name: str, what: str) -> None:
        self.version += 1
        if what == "delete":
            raw = self.objects.pop(name, None)
            if raw is not None:
                gone = {**raw, "metadata": {**raw["metadata"], "resourceVersion": str(self.version)}}
                self.events.append(("DELETED", gone))
            return
        before = self.objects.get(name)
        uid = before["metadata"]["uid"] if before else f"uid-{self.version}"
        raw = raw_node(name, self.version, uid)
        self.objects[name] = malformed(raw) if what == "spoil" else raw
        self.events.append(("MODIFIED" if before else "ADDED", self.objects[name]))


class Follower:
    """Checks, as a handler would see it, that the changes of each object make sense one after
    another."""

    def __init__(self) -> None:
        self.seen: dict[str, V1Node] = {}

    def take(self, changes: list[Change[V1Node]]) -> None:
        for change in changes:
            known = self.seen.get(change.key)
            if change.kind is ChangeKind.ADD:
                assert known is None, f"{change.key} added twice"
                assert change.new is not None
                self.seen[change.key] = change.new
            elif change.kind is ChangeKind.UPDATE:
                assert change.old is known, "old is not what was seen last"
                assert change.new is not None
                assert uid_of(change.new) == uid_of(known or V1Node())
                assert int(version_of(change.new)) > int(version_of(known or V1Node()))
                self.seen[change.key] = change.new
            else:
                assert known is not None, f"{change.key} deleted, though it was never there"
                assert change.old is not None
                assert uid_of(change.old) == uid_of(known)
                del self.seen[change.key]


STEPS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["write", "write", "spoil", "delete"])), min_size=1, max_size=40
)


@settings(max_examples=200)
@given(STEPS, st.data())
def test_any_mixture_of_lists_events_and_repetitions_ends_at_the_servers_state(
    steps: list[tuple[str, str]], data: st.DataObject
) -> None:
    history, cache, follower = History(), make(), Follower()
    follower.take(cache.replace([], "0"))
    shown = 0
    for name, what in steps:
        history.step(name, what)
        act = data.draw(st.sampled_from(["watch", "watch", "wait", "list", "repeat", "bookmark"]))
        if act == "list":
            items = [cache.read(dict(raw)) for raw in history.objects.values()]
            follower.take(cache.replace(items, str(history.version)))
            shown = len(history.events)
            continue
        if act == "wait":
            continue
        start = max(0, shown - data.draw(st.integers(0, 10))) if act == "repeat" else shown
        for kind, raw in history.events[start:]:
            follower.take(cache.apply(kind, cache.read(dict(raw))) or [])
        shown = len(history.events)
        if act == "bookmark":
            cache.advance(str(history.version))
    for kind, raw in history.events[shown:]:
        follower.take(cache.apply(kind, cache.read(dict(raw))) or [])

    held = set(cache.quarantine.problems())
    assert held == {name for name, raw in history.objects.items() if raw["spec"]["podCIDR"] == 7}
    versions = {key: version_of(cache.get(key) or V1Node()) for key in list(cache.keys()) if key not in held}
    assert versions == {n: raw["metadata"]["resourceVersion"] for n, raw in history.objects.items() if n not in held}
    for key in set(cache.keys()) & held:
        assert uid_of(cache.get(key) or V1Node()) == history.objects[key]["metadata"]["uid"]
    assert follower.seen == {key: cache.get(key) for key in list(cache.keys())}
