"""Bytes of lists and watches: complete ones are read as json reads them, and a part never passes
for the whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.runtime.cache.decoding import read_list, read_watch_line
from controllers.runtime.cache.resources import DecodeError, ListMeta
from tests.support.anyjson import SCALARS, TEXT, json_values

VALUES = json_values(SCALARS | st.floats(allow_nan=False))
OBJECTS = st.dictionaries(TEXT, VALUES, max_size=3)
LAYOUTS = st.sampled_from([{"separators": (",", ":")}, {"indent": 2}, {}, {"ensure_ascii": False}])


def a_list(items: list[Any], others: dict[str, Any], first: bool) -> dict[str, Any]:
    """A list whose items come before or after its metadata: JSON objects have no order."""
    head = {"kind": "NodeList", "metadata": {"resourceVersion": "7", "continue": "t"}}
    rest = {name: value for name, value in others.items() if name not in ("kind", "metadata", "items")}
    return {"items": items, **head, **rest} if first else {**rest, **head, "items": items}


@given(st.lists(VALUES, max_size=4), OBJECTS, st.booleans(), LAYOUTS)
def test_a_list_is_read_item_by_item_as_json_would(
    items: list[Any], others: dict[str, Any], first: bool, layout: dict[str, Any]
) -> None:
    seen: list[Any] = []
    data = json.dumps(a_list(items, others, first), **layout).encode()
    assert read_list(data + b"\n", "Node", seen.append) == ListMeta("7", "t")
    assert seen == json.loads(data)["items"]


@given(st.lists(OBJECTS, min_size=1, max_size=3), st.booleans(), st.data())
def test_a_part_of_a_list_is_never_a_list(items: list[Any], first: bool, data: st.DataObject) -> None:
    whole = json.dumps(a_list(items, {}, first), ensure_ascii=False).encode()
    end = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(DecodeError):
        read_list(whole[:end], "Node", lambda raw: None)


@given(st.lists(OBJECTS, min_size=1, max_size=2), st.data())
def test_a_spoilt_byte_is_garbled_or_json_too(items: list[Any], data: st.DataObject) -> None:
    whole = bytearray(json.dumps(a_list(items, {}, False)).encode())
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    seen: list[Any] = []
    try:
        read_list(bytes(whole), "Node", seen.append)
    except DecodeError:
        return
    assert seen == (json.loads(whole)["items"] or [])


@pytest.mark.parametrize(
    "data",
    [
        b'{"items":[1 2]}', b'{"items":[,]}', b'{"items":[1,]}', b"{1:2}", b'{"a" 1}', b"{,}", b"\xff", b'{"a":1,}',
        b'{"metadata":{"resourceVersion":"1"},"items":[' + b"[" * 200_000,
    ],
    ids=lambda data: str(data[:50]),
)  # fmt: skip
def test_what_is_no_json_is_garbled_and_no_nesting_is_a_crash(data: bytes) -> None:
    with pytest.raises(DecodeError):
        read_list(data, "Node", lambda raw: None)


def test_messages_never_repeat_contents() -> None:
    with pytest.raises(DecodeError) as caught:
        read_watch_line(b'{"type":"ADDED","object":{"metadata":{"annotations":{"password":"hunter2"')
    assert "hunter2" not in str(caught.value)


@given(st.text(), OBJECTS, LAYOUTS)
def test_a_watch_line_is_its_type_and_its_object(kind: str, raw: dict[str, Any], layout: dict[str, Any]) -> None:
    assert read_watch_line(json.dumps({"type": kind, "object": raw}, **layout).encode()) == (kind, raw)


@given(OBJECTS, st.data())
def test_a_part_of_a_watch_line_is_garbled(raw: dict[str, Any], data: st.DataObject) -> None:
    line = json.dumps({"type": "ADDED", "object": raw}).encode()
    with pytest.raises(DecodeError):
        read_watch_line(line[: data.draw(st.integers(0, len(line) - 1))])
