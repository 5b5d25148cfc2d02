"""Which encoding is asked for, and what is done where Protobuf is of no use."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from controllers.runtime.api import ApiError, Response
from controllers.runtime.cache.decoding import Encoding, read_page
from controllers.runtime.cache.listing import Listing, fetch_list
from controllers.runtime.cache.lists import Listed, Watched
from controllers.runtime.cache.resources import (
    NAMESPACES,
    NODES,
    SERVICES,
    DecodeError,
    ListMeta,
    ProtobufDecodeError,
    Resource,
    WireObject,
)
from controllers.runtime.cache.store import Cache
from controllers.runtime.cache.watch import ListWatch
from controllers.runtime.metrics import Metrics
from controllers.runtime.protobuf import ACCEPT, CONTENT_TYPE, JSON, MAGIC
from controllers.runtime.protobuf.schema import message_class
from tests.support.protobuf import message_of, seal
from tests.unit.runtime.cache.informers import (
    End,
    ScriptedLines,
    ScriptedRest,
    SkippingClock,
    answer,
    event,
    page,
    raw_node,
    rest_of,
    watch,
)

A = raw_node("a", 5)
UNACCEPTABLE = ApiError("only JSON", status=406)
NO_PROTOBUF = MAGIC + b"\xff\xff"


def play(*steps: bytes | Exception | ScriptedLines) -> tuple[ScriptedRest, Cache[Any]]:
    """Run a script to its end, against a client that may talk Protobuf."""
    rest = ScriptedRest(*steps, protobuf=True)
    cache = Cache(NODES, Metrics())
    source = ListWatch(rest_of(rest), cache, metrics=Metrics(), clock=SkippingClock())
    with pytest.raises(End):
        apply_all(source, cache)
    return rest, cache


def encoding_of(resource: Resource[Any] = NODES, *, protobuf: bool = True) -> Encoding:
    return Encoding(rest_of(ScriptedRest(protobuf=protobuf)), resource)


def apply_all(source: ListWatch[Any], cache: Cache[Any]) -> None:
    for update in source.updates():
        if isinstance(update, Listed):
            cache.replace(update.items, update.version)
        elif isinstance(update, Watched):
            cache.apply(update.event, update.item)


@pytest.mark.parametrize(("resource", "accept"), [(NODES, ACCEPT), (SERVICES, ACCEPT), (NAMESPACES, JSON)])
def test_protobuf_is_asked_for_where_there_is_a_schema(resource: Resource[Any], accept: str) -> None:
    assert encoding_of(resource).accept == accept
    assert encoding_of(resource, protobuf=False).accept == JSON


GOOD = event("MODIFIED", raw_node("a", 10))
PLAYED: dict[str, tuple[tuple[Any, ...], list[str], str]] = {
    "lists and watches ask for it": ((page(9, A), watch(GOOD), watch(End())), [ACCEPT] * 3, "10"),
    "a watch that is refused goes on in JSON": (
        (page(9, A), ScriptedLines([], UNACCEPTABLE), watch(End())), [ACCEPT, ACCEPT, JSON], "9"
    ),
    "the third unreadable answer in a row leads to JSON": (
        (NO_PROTOBUF, NO_PROTOBUF, NO_PROTOBUF, page(9, A), watch(End())), [ACCEPT] * 3 + [JSON] * 2, "9"
    ),
    "frames that can be read begin the count from the start": (
        (page(9, A), watch(b"\xff"), watch(GOOD, b"\xff"), watch(b"\xff"), page(11, A), watch(End())),
        [ACCEPT] * 6, "11",
    ),
}  # fmt: skip


@pytest.mark.parametrize("script", PLAYED)
def test_what_is_asked_for(script: str) -> None:
    steps, accepted, version = PLAYED[script]
    rest, cache = play(*steps)
    assert rest.accepted == accepted
    assert (list(cache.keys()), cache.version) == (["a"], version)


def test_json_is_read_where_the_server_answers_in_it() -> None:
    """One that knows no Protobuf for the kind: no reason to ask otherwise the next time."""
    encoding = encoding_of()
    seen: list[Any] = []
    read_page(answer(page(9, A)), "Node", seen.append, seen.append)
    assert [raw["metadata"]["name"] for raw in seen[:1]] == ["a"]
    assert seen[1:] == [ListMeta("9", "")]
    assert encoding.read_event(event("ADDED", A), protobuf=False) == ("ADDED", A)
    assert not encoding.failed(DecodeError("a line of JSON"))
    assert encoding.accept == ACCEPT


def test_a_page_is_asked_for_before_the_items_of_the_one_before_it_are_read() -> None:
    order: list[str] = []
    bodies = []
    for name, token in (("a", "more"), ("b", "")):
        listed = message_class("ObjectList")(items=[message_of("Node", raw_node(name, 5)).SerializeToString()])
        listed.metadata.resourceVersion = "9"
        setattr(listed.metadata, "continue", token)
        bodies.append(seal("v1", "NodeList", listed))

    def fetch(query: Mapping[str, str]) -> Callable[[], Response]:
        order.append(query.get("continue", "first"))
        body = bodies.pop(0)
        return lambda: Response(200, {"content-type": CONTENT_TYPE}, body)

    def read(sent: WireObject) -> str:
        order.append(sent.message.metadata.name)
        return order[-1]

    assert fetch_list(fetch, "Node", read, page_size=1) == Listing(["a", "b"], "9")
    assert order == ["first", "more", "a", "b"]


def test_after_a_406_json_is_asked_for_at_once_and_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "controllers.runtime.cache.decoding"):
        rest, cache = play(UNACCEPTABLE, page(9, A), watch(), watch(End()))
    assert rest.accepted == [ACCEPT, JSON, JSON, JSON]
    assert list(cache.keys()) == ["a"]
    [told] = [record for record in caplog.records if record.name == "controllers.runtime.cache.decoding"]
    assert "nodes: the API server's Protobuf cannot be read, asking for JSON from now on" in told.message
    assert "--kube-api-content-type=application/json" in told.message


def test_an_unreadable_object_costs_its_page_and_nothing_is_taken_for_deleted() -> None:
    listed = message_class("ObjectList")(items=[message_of("Node", A).SerializeToString(), b"\xff"])
    listed.metadata.resourceVersion = "9"
    seen: list[Any] = []
    with pytest.raises(ProtobufDecodeError, match="no Node"):
        read_page(answer(seal("v1", "NodeList", listed)), "Node", seen.append, lambda _: None)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (NO_PROTOBUF, "cannot be read"),
        (b'{"items":[]}', "do not begin"),
        (seal("v1", "PodList", message_class("ObjectList")()), "expected a NodeList, got 'PodList'"),
        (seal("v1", "NodeList", message_class("ObjectList")()), "without items or resourceVersion"),
    ],
)
def test_what_is_no_list_never_passes_for_an_empty_one(data: bytes, why: str) -> None:
    seen: list[Any] = []
    with pytest.raises(ProtobufDecodeError, match=why):
        read_page(Response(200, {"content-type": CONTENT_TYPE}, data), "Node", seen.append, seen.append)
    assert not seen


@pytest.mark.parametrize("frame", [b"", b"\xff", seal("v1", "Node", message_class("Node")())])
def test_what_is_no_event_is_unreadable(frame: bytes) -> None:
    encoding = encoding_of()
    with pytest.raises(ProtobufDecodeError, match="watch frame of"):
        encoding.read_event(frame, protobuf=True)


def test_an_object_of_another_kind_is_no_event_of_this_watch() -> None:
    sent = message_class("WatchEvent")(type="ADDED")
    sent.object.raw = seal("v1", "Service", message_of("Service", {"metadata": {"name": "s"}}))
    with pytest.raises(ProtobufDecodeError, match="expected a Node, got 'Service'"):
        encoding_of().read_event(sent.SerializeToString(), protobuf=True)
