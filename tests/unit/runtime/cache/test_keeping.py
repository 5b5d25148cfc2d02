"""Which bytes are kept beside the cache: those of Nodes that are still to be initialised, of this
very version, and no more than the limit."""

from __future__ import annotations

from typing import Any

from kubernetes.client.models.v1_node import V1Node

from controllers.runtime.cache import NODES
from controllers.runtime.cache.keeping import KeptBytes, WireObject
from controllers.runtime.cache.store import Cache, Item
from controllers.runtime.metrics import Metrics
from controllers.runtime.protobuf.reading import message_in
from controllers.runtime.protobuf.replacing import kept
from tests.support.nodes import big_node
from tests.support.there import there
from tests.support.wirefields import encoded


def sent(name: str, version: str, *, tainted: bool = True, uid: str = "u1") -> WireObject:
    node = big_node(name, images=2)
    node["metadata"] |= {"uid": uid, "resourceVersion": version}
    if not tainted:
        node["spec"]["taints"] = []
    data = encoded("Node", node)
    return WireObject(message_in("Node", data), data)


class Watched:
    """A cache, and what it is told."""

    def __init__(self) -> None:
        self.cache: Cache[V1Node] = Cache(NODES, Metrics())

    def list(self, version: str, *raws: Any, restored: bool = False) -> None:
        self.cache.replace([self.cache.read(raw, anew=restored) for raw in raws], version, restored=restored)

    def event(self, kind: str, raw: Any) -> None:
        self.cache.apply(kind, self.cache.read(raw))

    def kept(self, name: str = "n1") -> bytes | None:
        return self.cache.kept(there(self.cache.get(name)))


def test_a_node_is_kept_until_it_is_initialised() -> None:
    watched, first = Watched(), sent("n1", "1")
    watched.list("1", first)
    assert watched.kept() == kept(first.data)
    second = sent("n1", "2")
    second_data = second.data
    watched.event("MODIFIED", second)
    assert watched.kept() == kept(second_data)
    watched.event("MODIFIED", sent("n1", "3", tainted=False))
    assert watched.kept() is None
    watched.event("MODIFIED", sent("n1", "4"))
    assert watched.kept() is not None, "the taint came back"
    watched.event("DELETED", sent("n1", "5"))
    assert watched.cache._kept.size == 0


def test_an_earlier_version_of_the_object_has_no_bytes_any_more() -> None:
    watched = Watched()
    watched.list("1", sent("n1", "1"))
    old = there(watched.cache.get("n1"))
    watched.event("MODIFIED", sent("n1", "2"))
    assert watched.cache.kept(old) is None


def test_what_came_as_json_has_no_bytes() -> None:
    watched, node = Watched(), big_node("n1", images=2)
    node["metadata"] |= {"uid": "u1", "resourceVersion": "1"}
    watched.list("1", node)
    assert watched.kept() is None
    watched.event("MODIFIED", sent("n1", "2"))
    assert watched.kept() is not None


def test_a_list_keeps_what_it_confirms_and_drops_what_it_lacks() -> None:
    watched = Watched()
    watched.list("2", sent("n1", "1"), sent("n2", "2", uid="u2"), sent("n3", "2", uid="u3"))
    before = watched.kept("n1")
    watched.list("9", sent("n1", "1"), sent("n2", "8", tainted=False, uid="u2"))
    assert watched.kept("n1") == before
    assert watched.kept("n2") is None
    assert watched.cache._kept.size == len(there(before))


def test_a_restored_server_s_list_replaces_the_bytes_too() -> None:
    watched, restored = Watched(), sent("n1", "3")
    watched.list("5", sent("n1", "5"))
    watched.list("3", restored, restored=True)
    assert watched.kept() == kept(restored.data)


def test_a_malformed_version_leaves_the_bytes_of_the_last_good_one() -> None:
    watched = Watched()
    watched.list("1", sent("n1", "1"))
    watched.cache.apply("MODIFIED", Item("n1", "u1", "2", None, "spoilt"))
    assert watched.kept() is not None


def test_they_are_small_and_bounded() -> None:
    watched, node = Watched(), sent("n1", "1")
    watched.list("1", node)
    assert 0 < len(there(watched.kept())) < len(node.data) / 2
    table: KeptBytes[object] = KeptBytes(limit=10)
    objects = [object() for _ in range(4)]
    for number, data in enumerate((b"12345", b"123456", b"12345", b"1")):
        table.put(str(number), objects[number], data)
    assert [table.get(str(number), objects[number]) for number in range(4)] == [b"12345", None, b"12345", None]
    assert table.get("0", objects[1]) is None
    table.put("0", objects[0], b"1")
    table.put("3", objects[3], b"1")
    assert table.size == 7
    table.keep_only({"0": objects[0], "2": objects[0]})
    assert table.size == 1
    table.drop("0")
    table.drop("0")
    assert table.size == 0
