"""An object in Protobuf is the object that the same server would have sent as JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controllers.runtime.cache.decoding import Parser
from controllers.runtime.cache.protodecoding import model_reader
from controllers.runtime.cache.resources import (
    ENDPOINT_SLICES,
    LEASES,
    NODES,
    PERSISTENT_VOLUMES,
    SERVICES,
    MalformedObject,
    Resource,
    WireObject,
)
from controllers.runtime.protobuf.reading import (
    ALWAYS_SHOWN,
    INLINE,
    POINTERS,
    message_in,
    object_in,
    read_enveloped,
    read_object,
)
from controllers.runtime.protobuf.schema import MAGIC, message_class, open_envelope
from tests.support.models import given_fields
from tests.support.protobuf import BEYOND_TIME, enveloped, message_of, seal

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]  # large objects, on a busy machine
KINDS = [NODES, SERVICES, PERSISTENT_VOLUMES, LEASES, ENDPOINT_SLICES]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
TIMES = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))


def _special(name: str) -> st.SearchStrategy[Any] | None:
    if name == "Time":
        return TIMES.map(lambda moment: moment.replace(microsecond=0).isoformat().replace("+00:00", "Z"))
    if name == "MicroTime":
        return TIMES.map(lambda moment: f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z".rjust(27, "0"))
    if name == "Quantity":
        return st.sampled_from(["0", "4", "16374968Ki", "100m", "1.5Gi", ""])
    if name == "IntOrString":
        return st.integers(-(2**31), 2**31 - 1) | TEXT
    return None


def objects(name: str) -> st.SearchStrategy[dict[str, Any]]:
    """Objects of that message as Go's JSON shows them: what is empty is left out, but for what is
    always shown."""
    required: dict[str, Any] = {}
    optional: dict[str, Any] = {}
    always, pointers = ALWAYS_SHOWN.get(name, "").split(), POINTERS.get(name, "").split()
    inline: st.SearchStrategy[dict[str, Any]] = st.just({})
    for field in message_class(name).DESCRIPTOR.fields:
        kind = field.message_type
        value: st.SearchStrategy[Any]
        if (name, field.name) == INLINE:
            inline = st.sampled_from(list(kind.fields)).flatmap(_only)
            continue
        if kind is not None and kind.GetOptions().map_entry:
            inner = kind.fields_by_name["value"].message_type
            value = st.dictionaries(TEXT, TEXT if inner is None else _of(inner.name), min_size=1, max_size=2)
        elif field.is_repeated:
            value = st.lists(TEXT if kind is None else _of(kind.name), min_size=1, max_size=2)
        elif kind is not None:
            value = _of(kind.name)
        else:
            value = _scalar(field)
            if field.name not in always and field.name not in pointers:
                value = value.filter(bool)
        if field.name in always and not (kind is None and field.name in pointers):
            required[field.name] = value
        elif field.name in always:
            required[field.name] = value | st.none()
        else:
            optional[field.name] = value
    shown = st.fixed_dictionaries(required, optional=optional)
    return st.tuples(shown, inline).map(lambda both: {**both[0], **both[1]})


def _of(name: str) -> st.SearchStrategy[Any]:
    special = _special(name)
    return st.deferred(lambda: objects(name)) if special is None else special


def _only(field: Any) -> st.SearchStrategy[dict[str, Any]]:
    """One source of a volume, as no volume has two."""
    return st.fixed_dictionaries({field.name: _of(field.message_type.name)})


def _scalar(field: Any) -> st.SearchStrategy[Any]:
    if field.type == field.TYPE_BOOL:
        return st.booleans()
    if field.type == field.TYPE_INT32:
        return st.integers(-(2**31), 2**31 - 1)
    if field.type == field.TYPE_INT64:
        return st.integers(-(2**63), 2**63 - 1)
    assert field.type == field.TYPE_STRING
    return TEXT


@pytest.mark.parametrize("resource", KINDS, ids=lambda one: one.kind)
@settings(max_examples=25, deadline=None, suppress_health_check=SLOW)
@given(data=st.data())
def test_it_gives_the_model_that_json_gives(resource: Resource[Any], data: st.DataObject) -> None:
    """The dict that the model is made of in the long way, and the model that is read at once."""
    raw = data.draw(objects(resource.kind))
    raw["metadata"] = {**raw.get("metadata", {}), "name": "n", "namespace": "ns", "resourceVersion": "7"}
    wire = enveloped(raw, resource.kind)
    expected = resource.parse(json.loads(json.dumps(raw)))
    top = {"kind": resource.kind, "api_version": resource.api_version}
    at_once = model_reader(resource.kind, resource.model, top, share=lambda text: text)
    for read in (
        resource.parse(read_enveloped(wire, resource.kind)),
        at_once(message_in(resource.kind, object_in(wire, resource.kind))),
    ):
        assert read == expected
        assert given_fields(read) == given_fields(expected)
        assert repr(read) == repr(expected)


def test_what_is_empty_is_left_out_or_shown_as_in_json() -> None:
    status = {"addresses": [{"type": "", "address": ""}], "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}}}
    node = {"metadata": {"name": "n", "labels": {"a": ""}}, "spec": {"taints": [{"key": "", "effect": ""}]}}
    raw = {**node, "status": {**status, "conditions": [{"type": "", "status": ""}]}}
    found = read_object("Node", message_of("Node", raw).SerializeToString())
    assert found == raw
    port = {"ports": [{"port": 0, "targetPort": 0, "appProtocol": ""}]}
    assert read_object("Service", message_of("Service", {"spec": port}).SerializeToString()) == {"spec": port}


def test_times_are_datetimes_and_the_zero_time_is_none() -> None:
    node = message_of("Node", {"metadata": {"name": "n"}})
    node.metadata.creationTimestamp.SetInParent()  # Go's zero time, which JSON leaves out here
    node.metadata.deletionTimestamp.seconds = 1_700_000_000
    node.metadata.deletionTimestamp.nanos = 999_999_999  # Go reads none of it
    condition = node.status.conditions.add(type="Ready", status="True")
    condition.lastHeartbeatTime.SetInParent()  # and here it is null
    condition.lastTransitionTime.seconds = 0
    found = read_object("Node", node.SerializeToString())
    assert found["metadata"] == {"name": "n", "deletionTimestamp": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)}
    assert found["status"]["conditions"][0] == {
        "type": "Ready",
        "status": "True",
        "lastHeartbeatTime": None,
        "lastTransitionTime": datetime(1970, 1, 1, tzinfo=UTC),
    }
    lease = message_class("Lease")()
    lease.spec.renewTime.seconds, lease.spec.renewTime.nanos = -1, 123_456_999
    expected = datetime(1969, 12, 31, 23, 59, 59, 123456, tzinfo=UTC)
    assert read_object("Lease", lease.SerializeToString())["spec"] == {"renewTime": expected}


@pytest.mark.parametrize("seconds", [BEYOND_TIME, -BEYOND_TIME, 2**62])
def test_a_time_beyond_all_calendars_costs_its_object_alone(seconds: int) -> None:
    node = message_of("Node", {"metadata": {"name": "n", "resourceVersion": "7"}})
    node.metadata.creationTimestamp.seconds = seconds
    with pytest.raises(MalformedObject, match="creationTimestamp"):
        NODES.parse(read_object("Node", node.SerializeToString()))
    with pytest.raises(MalformedObject, match="creationTimestamp"):
        Parser(NODES).parse(WireObject(node))


def test_text_that_is_no_utf8_is_repaired_as_gos_json_does() -> None:
    bad = b"a\xe2\x82b\xed\xa0\x80\xff"
    good = "a\ufffd\ufffdb\ufffd\ufffd\ufffd\ufffd"
    taint = b"\x0a" + bytes([len(bad)]) + bad
    assert read_object("Taint", taint) == {"key": good, "effect": ""}
    entry = b"\x0a\x01k\x12" + bytes([len(bad)]) + bad
    labels = b"\x5a" + bytes([len(entry)]) + entry
    finalizers = b"\x72" + bytes([len(bad)]) + bad
    assert read_object("ObjectMeta", labels + finalizers) == {"labels": {"k": good}, "finalizers": [good]}


def test_fields_of_a_newer_server_are_skipped_and_kept_when_written_back() -> None:
    unknown = b"\xaa\x3e\x03new\xb0\x3e\x07"  # 997 and 998
    raw = message_of("Node", {"metadata": {"name": "n"}}).SerializeToString() + unknown
    assert read_object("Node", raw)["metadata"] == {"name": "n"}
    assert unknown in message_class("Node").FromString(raw).SerializeToString()


@given(objects("Node"), st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
def test_spoilt_bytes_are_told_and_nothing_else_happens(raw: dict[str, Any], data: st.DataObject) -> None:
    wire = bytearray(enveloped(raw, "Node"))
    wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read_enveloped(bytes(wire), "Node")
    except ValueError:
        return
    assert isinstance(found, dict)
    try:
        NODES.parse(found)
    except MalformedObject:
        return


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "do not begin"),
        (b'{"kind":"Node"}', "do not begin"),
        (MAGIC + b"\xff", "cannot be read"),
        (seal("v1", "Pod", message_class("Node")()), "expected a Node, got 'Pod'"),
        (MAGIC + message_class("Unknown")(contentEncoding="gzip").SerializeToString(), "encoded once more"),
        (MAGIC + message_class("Unknown")(contentType="application/json").SerializeToString(), "encoded once more"),
        (seal("v1", "Node", message_class("Taint")(key="x")), "no Node"),
    ],
)
def test_what_is_no_object_is_told(data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_enveloped(data, "Node")


def test_a_sealed_message_is_opened_again() -> None:
    found = open_envelope(seal("coordination.k8s.io/v1", "Lease", message_of("Lease", {"metadata": {"name": "l"}})))
    assert (found.typeMeta.apiVersion, found.typeMeta.kind) == ("coordination.k8s.io/v1", "Lease")
    assert read_object("Lease", found.raw) == {"metadata": {"name": "l"}}
