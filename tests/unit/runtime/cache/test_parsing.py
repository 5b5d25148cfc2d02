"""What came over the wire becomes the same small model, in JSON and in Protobuf."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.runtime.cache.decoding import Metadata, Parser, metadata_of
from controllers.runtime.cache.resources import LAST_APPLIED, NODES, SERVICES, MalformedObject, WireObject
from controllers.runtime.protobuf.schema import message_class
from tests.support.nodes import big_node
from tests.support.protobuf import message_of

META: dict[str, Any] = {"name": "web", "namespace": "default", "uid": "u1", "resourceVersion": "7"}


def wire(kind: str, raw: dict[str, Any]) -> WireObject:
    return WireObject(message_of(kind, raw))


def test_what_nobody_reads_is_left_out_in_both() -> None:
    node = big_node("n1", images=2)
    node["metadata"] |= {"resourceVersion": "7", "annotations": {LAST_APPLIED: "{}", "kept": "yes"}}
    sent = wire("Node", node)
    for found in (Parser(NODES).parse(sent), Parser(NODES).parse(node)):
        assert found.metadata is not None
        assert found.metadata.annotations == {"kept": "yes"}
        assert found.status is not None
        assert found.status.images is None


def test_equal_strings_of_several_objects_are_one() -> None:
    parser = Parser(NODES)
    first, second = (
        parser.parse(wire("Node", {"metadata": {"name": name, "resourceVersion": "7", "labels": {"zone": "zone-a"}}}))
        for name in ("n1", "n2")
    )
    assert first.metadata is not None
    assert second.metadata is not None
    assert first.metadata.labels is not None
    assert second.metadata.labels is not None
    assert first.metadata.labels["zone"] is second.metadata.labels["zone"]
    assert first.metadata.labels is not second.metadata.labels


def test_what_a_model_requires_is_required_of_protobuf_too() -> None:
    """Go's zero time, which JSON shows as null."""
    condition = {"type": "Ready", "status": "True", "reason": "r", "message": "m"}
    service = {"metadata": META, "status": {"conditions": [condition]}}
    message = message_of("Service", service)
    message.status.conditions[0].lastTransitionTime.SetInParent()
    with pytest.raises(MalformedObject, match="lastTransitionTime"):
        Parser(SERVICES).parse(WireObject(message))
    with pytest.raises(MalformedObject, match="lastTransitionTime"):
        Parser(SERVICES).parse({**service, "status": {"conditions": [{**condition, "lastTransitionTime": None}]}})


def test_an_object_without_a_version_is_none() -> None:
    with pytest.raises(MalformedObject, match="resourceVersion"):
        Parser(SERVICES).parse(wire("Service", {"metadata": {**META, "resourceVersion": ""}}))


def test_a_number_or_string_that_is_neither_costs_its_object_alone() -> None:
    message = message_of("Service", {"metadata": META, "spec": {"ports": [{"port": 80, "targetPort": 80}]}})
    message.spec.ports[0].targetPort.type = 7
    with pytest.raises(MalformedObject, match="neither a number nor a string"):
        Parser(SERVICES).parse(WireObject(message))


@pytest.mark.parametrize("raw", [None, [], {}, {"metadata": None}, {"metadata": "x"}])
def test_what_has_no_metadata(raw: object) -> None:
    assert metadata_of(raw) is None


def test_metadata_of_both() -> None:
    wanted = Metadata("web", "default", "u1", "7")
    assert metadata_of({"metadata": META}) == wanted
    assert metadata_of(wire("Service", {"metadata": META})) == wanted
    assert metadata_of({"metadata": {"name": 1}}) == Metadata("", "", "", "")
    no_text = message_class("Node").FromString(b"\x0a\x04\x0a\x02\xff\xfe")  # a name that is no UTF-8
    assert metadata_of(WireObject(no_text)) == Metadata("", "", "", "")
