"""Watch lines read in one step: the same objects as the long way gives, and nothing decided that only it can decide."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kubernetes.client.models.v1_node import V1Node

from controllers.runtime.cache import NODES, SERVICES
from controllers.runtime.cache.decoding import read_watch_line
from controllers.runtime.cache.fastdecoding import SlimReader
from controllers.runtime.cache.resources import Raw
from controllers.runtime.cache.store import Cache
from controllers.runtime.cache.trimming import LAST_APPLIED, NODE_LEFT_OUT
from controllers.runtime.metrics import Metrics
from tests.support.nodes import big_node

TEXT = st.text(max_size=80)


def line_of(raw: Raw, event: str = "MODIFIED") -> bytes:
    return json.dumps({"type": event, "object": raw}).encode()


def full_node(**metadata: Any) -> Raw:
    raw = big_node("node-1")
    raw["metadata"] |= {
        "uid": "u-1",
        "resourceVersion": "7",
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}],
        "annotations": {LAST_APPLIED: "{}", "a": "b"},
        **metadata,
    }
    raw["spec"]["configSource"] = {"configMap": {"name": "x", "namespace": "y", "kubeletConfigKey": "z"}}
    raw["status"]["volumesInUse"] = ["v"]
    return raw


def long_way(line: bytes) -> tuple[str, Any]:
    event, raw = read_watch_line(line)
    return event, Cache(NODES, Metrics()).read(raw)


def given_fields(model: Any) -> list[object]:
    found: list[object] = [model.model_fields_set, type(model)]
    for value in model.__dict__.values():
        for item in value if isinstance(value, list) else [value]:
            if hasattr(item, "model_fields_set"):
                found += given_fields(item)
    return found


class TestEqualToTheLongWay:
    def check(self, line: bytes) -> None:
        found = Cache(NODES, Metrics()).read_line(line)
        assert found == long_way(line)
        assert found is not None
        assert found[1].obj is not None
        assert given_fields(found[1].obj) == given_fields(long_way(line)[1].obj)

    @pytest.mark.parametrize("event", ["ADDED", "MODIFIED", "DELETED"])
    def test_a_whole_node(self, event: str) -> None:
        self.check(line_of(full_node(), event))

    def test_what_is_left_out_need_not_even_be_well_formed(self) -> None:
        raw = full_node(managedFields=7)
        raw["status"]["images"] = "none"
        self.check(line_of(raw))

    def test_fields_of_later_versions_are_dropped(self) -> None:
        raw = full_node(later={"x": [1]})
        raw["status"]["conditions"][0]["later"] = 1
        self.check(line_of(raw))

    def test_fields_are_known_by_the_names_of_the_api_only(self) -> None:
        raw = full_node()
        raw["status"]["volumes_in_use"] = raw["status"]["declared_features"] = ["x"]
        found = Cache(NODES, Metrics()).read_line(line_of(raw))
        assert found is not None
        node = found[1].obj
        assert node is not None
        assert node.status is not None
        assert node.status.volumes_in_use is None

    @settings(deadline=None)
    @given(
        labels=st.dictionaries(TEXT, TEXT, max_size=4),
        annotations=st.none() | st.dictionaries(TEXT, TEXT, max_size=4),
        uid=st.none() | TEXT,
        conditions=st.lists(st.fixed_dictionaries({"type": TEXT, "status": TEXT, "message": TEXT}), max_size=3),
        parts=st.sets(st.sampled_from(["status", "spec"])),
    )
    def test_whatever_it_holds(
        self,
        labels: dict[str, str],
        annotations: dict[str, str] | None,
        uid: str | None,
        conditions: list[dict[str, str]],
        parts: set[str],
    ) -> None:
        raw = full_node(labels=labels, annotations=annotations, uid=uid)
        raw["status"]["conditions"] = conditions
        for part in parts:
            raw[part] = None
        self.check(line_of(raw))


class TestLeftToTheLongWay:
    @pytest.mark.parametrize(
        "line",
        [
            b"",
            b"{",
            b"null",
            b'{"type":"MODIFIED"}',
            b'{"type":"MODIFIED","object":[]}',
            line_of(full_node(), "BOOKMARK"),
            line_of({"kind": "Status", "apiVersion": "v1", "metadata": {}, "code": 410}, "ERROR"),
            line_of(full_node(name="")),
            line_of(full_node(resourceVersion=None)),
            line_of(full_node(labels={"a": 1})),
            line_of(full_node() | {"kind": "Service"}),
            line_of(full_node() | {"metadata": None}),
            line_of(full_node())[:-9],
            line_of(full_node()) + b"x",
            line_of(full_node()).replace(b"kubelet says so", b"\xff"),
        ],
        ids=range(15),
    )
    def test_what_is_no_event_of_a_good_node(self, line: bytes) -> None:
        assert Cache(NODES, Metrics()).read_line(line) is None

    def test_kinds_for_which_nothing_is_declared(self) -> None:
        service = {"kind": "Service", "apiVersion": "v1", "metadata": {"name": "s", "namespace": "n"}}
        assert Cache(SERVICES, Metrics()).read_line(line_of(service)) is None


def test_nothing_is_made_of_what_is_left_out() -> None:
    found = SlimReader(V1Node, NODE_LEFT_OUT).event(line_of(full_node()))
    assert found is not None
    node = found[1]
    assert node.status is not None
    assert node.metadata is not None
    assert (node.status.images, node.status.volumes_in_use, node.metadata.managed_fields) == (None, None, None)
    assert "images" not in node.status.model_fields_set
    assert copy.deepcopy(node) == node


def test_equal_strings_and_field_sets_are_shared() -> None:
    cache = Cache(NODES, Metrics())
    nodes = []
    for number in (1, 2):
        found = cache.read_line(line_of(full_node(uid=f"u-{number}")))
        assert found is not None
        assert found[1].obj is not None
        nodes.append(found[1].obj)
    first, second = nodes
    assert first.status is not None
    assert second.status is not None
    assert first.status.conditions is not None
    assert second.status.conditions is not None
    assert first.status.conditions[0].reason is second.status.conditions[0].reason
    assert first.status.conditions[0].__pydantic_fields_set__ is second.status.conditions[0].__pydantic_fields_set__
