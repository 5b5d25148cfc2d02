"""What a PUT sends back: everything that the API server sent stays byte for byte, whatever it is,
but for what the patch changes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudprovider.internal.patching import merge_patch
from controllers.runtime.protobuf.reading import read_object
from controllers.runtime.protobuf.replacing import kept, replacement
from controllers.runtime.protobuf.schema import message_class, open_envelope
from tests.support.nodes import big_node
from tests.support.wirefields import (
    FIXED32,
    FIXED64,
    LENGTH,
    VARINT,
    Field,
    counted,
    encoded,
    field,
    fields,
    several,
    varint,
)

UID, VERSION = "u-1", "8"
METADATA, SPEC, STATUS = 1, 2, 3
UID_FIELD, VERSION_FIELD, LABELS, ANNOTATIONS, MANAGED_FIELDS = 5, 6, 11, 12, 17
PROVIDER_ID, TAINTS = 3, 5
OURS = {"key": "ours", "value": "true", "effect": "NoSchedule"}
THEIRS = {"key": "theirs", "effect": "NoExecute"}


def sent(data: bytes, patch: dict[str, Any]) -> bytes:
    """The Node in the body of the PUT for a Node that the server sent so."""
    small = kept(data)
    assert small is not None
    body = replacement(small, patch, uid=UID, version=VERSION)
    assert body is not None
    envelope = open_envelope(body)
    assert (envelope.typeMeta.apiVersion, envelope.typeMeta.kind) == ("v1", "Node")
    raw: bytes = envelope.raw
    return raw


def one(message: bytes, number: int) -> bytes:
    """The only field with this number."""
    [found] = [value for known, _, value in fields(message) if known == number]
    return found


def values(message: bytes, number: int) -> list[bytes]:
    return [value for known, _, value in fields(message) if known == number]


def declared(name: str) -> dict[str, int]:
    """Number of each field of a message that is sent back."""
    return {field.name: field.number for field in message_class(f"Whole{name}").DESCRIPTOR.fields}


def test_the_fields_that_are_declared_are_those_of_the_object() -> None:
    for name in ("Node", "ObjectMeta", "NodeSpec", "Taint"):
        known = {field.name: field.number for field in message_class(name).DESCRIPTOR.fields}
        known["managedFields"] = 17  # left out there; meta/v1 generated.proto
        assert declared(name).items() <= known.items()
    entry = message_class("ObjectMeta").DESCRIPTOR.fields_by_name["labels"].message_type
    assert declared("Entry") == {field.name: field.number for field in entry.fields}


def test_a_whole_node_becomes_what_the_merge_patch_would_make_of_it() -> None:
    node = big_node("n1", images=3)
    node["metadata"] |= {"uid": UID, "resourceVersion": "7", "annotations": {"a": "1", "gone": "x"}}
    node["metadata"] |= {"creationTimestamp": "2026-01-02T03:04:05Z", "finalizers": ["f/1"]}
    node["spec"] = {"podCIDR": "10.0.0.0/24", "taints": [OURS, {**THEIRS, "timeAdded": "2026-01-02T03:04:05Z"}]}
    patch = {
        "metadata": {"labels": {"new": "", "kubernetes.io/os": "bsd"}, "annotations": {"a": "2", "gone": None}},
        "spec": {"providerID": "fake://1", "taints": [{**THEIRS, "timeAdded": "2026-01-02T03:04:05Z"}]},
    }
    raw = encoded("Node", node)
    expected = merge_patch(read_object("Node", raw), patch)
    expected["metadata"]["resourceVersion"] = VERSION
    del expected["status"]
    found = read_object("Node", sent(raw, patch))
    expected["spec"]["taints"] = read_object("Node", raw)["spec"]["taints"][1:]  # with its time
    assert found == expected


# ---- what we do not know

WORDS = st.text("abc/.-", min_size=1, max_size=6).map(str.encode)


def newer(known: set[int]) -> st.SearchStrategy[list[Field]]:
    """Fields of a newer API, of every wire type and of any size."""
    numbers = st.integers(1, 2**29 - 1).filter(lambda number: number not in known and not 19000 <= number < 20000)
    value = st.one_of(
        st.tuples(st.just(VARINT), st.integers(0, 2**64 - 1).map(varint)),
        st.tuples(st.just(FIXED64), st.binary(min_size=8, max_size=8)),
        st.tuples(st.just(LENGTH), st.binary(max_size=200)),
        st.tuples(st.just(FIXED32), st.binary(min_size=4, max_size=4)),
    )
    return st.lists(st.builds(lambda number, rest: (number, *rest), numbers, value), max_size=4)


def of(name: str, *also: int) -> set[int]:
    return {*declared(name).values(), *also}


def message(own: st.SearchStrategy[list[bytes]], known: set[int]) -> st.SearchStrategy[bytes]:
    """These fields and unknown ones, in any order."""
    return st.tuples(own, newer(known)).flatmap(
        lambda both: st.permutations([*both[0], *(several(new) for new in both[1])]).map(b"".join)
    )


entries = message(
    st.tuples(WORDS, WORDS).map(lambda pair: [field(1, pair[0]), field(2, pair[1])]), of("Entry")
)  # Kubernetes never adds to an entry; nor would it matter
taints = message(
    st.tuples(WORDS, st.sampled_from([b"", b"v"]), st.sampled_from([b"NoSchedule", b"NoExecute"])).map(
        lambda parts: [field(1, parts[0]), field(2, parts[1]), field(3, parts[2])]
    ),
    of("Taint"),
)
metadatas = message(
    st.tuples(
        st.lists(entries, max_size=4), st.lists(entries, max_size=3), st.lists(st.binary(max_size=30), max_size=2)
    ).map(
        lambda parts: [
            field(1, b"n1"),
            field(UID_FIELD, UID.encode()),
            field(VERSION_FIELD, b"7"),
            *(field(LABELS, label) for label in parts[0]),
            *(field(ANNOTATIONS, annotation) for annotation in parts[1]),
            *(field(MANAGED_FIELDS, one) for one in parts[2]),
        ]
    ),
    of("ObjectMeta", 1),
)
specs = message(
    st.lists(taints, max_size=4).map(lambda found: [field(1, b"10.0.0.0/24"), *(field(TAINTS, t) for t in found)]),
    of("NodeSpec", 1),
)
nodes = message(
    st.tuples(metadatas, specs, st.binary(max_size=100)).map(
        lambda parts: [field(METADATA, parts[0]), field(SPEC, parts[1]), field(STATUS, parts[2])]
    ),
    of("Node"),
)


def text_of(taint: bytes) -> dict[str, str]:
    """A taint as the model of the official client has it: without what that does not know."""
    known = {number: value.decode() for number, _, value in fields(taint) if number <= 3}
    found = {"key": known[1], "value": known[2], "effect": known[3]}
    return {name: value for name, value in found.items() if value or name != "value"}


def as_fields(messages: list[bytes]) -> list[Any]:
    return [counted(one) for one in messages]


@given(nodes, st.data())
def test_what_is_unknown_or_not_ours_stays_byte_for_byte(node: bytes, data: st.DataObject) -> None:
    metadata, spec = one(node, METADATA), one(node, SPEC)
    labels = {one(label, 1).decode(): label for label in values(metadata, LABELS)}
    present = values(spec, TAINTS)
    known = [text_of(taint) for taint in present]
    gone = data.draw(st.sampled_from(known)) if known else None
    touched = data.draw(st.sampled_from(sorted(labels))) if labels else "fresh"
    removed = data.draw(st.booleans())
    left = [taint for taint in known if taint != gone]
    patch = {
        "metadata": {"labels": {touched: None if removed else "x"}, "annotations": {"ours/record": "{}"}},
        "spec": {"providerID": "fake://1", "taints": left or None},
    }
    after = sent(node, patch)
    assert counted(after, METADATA, SPEC) == counted(node, METADATA, SPEC, STATUS)
    new_metadata, new_spec = one(after, METADATA), one(after, SPEC)
    ours = (VERSION_FIELD, LABELS, ANNOTATIONS, MANAGED_FIELDS)
    assert counted(new_metadata, *ours) == counted(metadata, *ours)
    assert one(new_metadata, VERSION_FIELD) == VERSION.encode()
    assert values(new_metadata, MANAGED_FIELDS) == []
    assert counted(new_spec, PROVIDER_ID, TAINTS) == counted(spec, PROVIDER_ID, TAINTS)
    assert one(new_spec, PROVIDER_ID) == b"fake://1"
    # Entries that are not touched, in their order, then ours.
    others = [label for label in values(metadata, LABELS) if one(label, 1).decode() != touched]
    found = values(new_metadata, LABELS)
    assert as_fields([label for label in found if one(label, 1).decode() != touched]) == as_fields(others)
    mine = {one(label, 2) for label in found if one(label, 1).decode() == touched}
    assert mine == set() if removed else b"x" in mine
    assert as_fields(values(new_metadata, ANNOTATIONS)[: len(values(metadata, ANNOTATIONS))]) == as_fields(
        values(metadata, ANNOTATIONS)
    )
    # The other taints with all that they hold. Of two with the same key, value and effect, which
    # the API server refuses, the last one counts.
    last = {tuple(text_of(taint).items()): taint for taint in present}
    assert as_fields(values(new_spec, TAINTS)) == as_fields([last[tuple(taint.items())] for taint in left])


@given(st.binary(max_size=60))
def test_bytes_that_are_no_node_are_not_kept_or_not_sent(data: bytes) -> None:
    small = kept(data)
    assert small is None or replacement(small, {"spec": {"taints": None}}, uid=UID, version=VERSION) is None


# ---- what is not possible

NODE = field(METADATA, field(UID_FIELD, UID.encode()) + field(VERSION_FIELD, b"7")) + field(
    SPEC, field(TAINTS, encoded("Taint", OURS))
)


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"unschedulable": True}},
        {"spec": {"providerID": None}},
        {"spec": None},
        {"metadata": {"finalizers": ["a"]}},
        {"metadata": {"labels": None}},
        {"metadata": {"labels": {"a": 1}}},
        {"status": {"addresses": []}},
        {"spec": {"taints": [{**OURS, "value": "other", "timeAdded": "2026-01-02T03:04:05Z"}]}},
        {"spec": {"taints": ["ours"]}},
    ],
    ids=str,
)
def test_another_change_has_to_be_sent_as_a_patch(patch: dict[str, Any]) -> None:
    assert replacement(NODE, patch, uid=UID, version=VERSION) is None


@pytest.mark.parametrize(("uid", "version"), [("u-2", VERSION), ("", VERSION), (UID, "")])
def test_never_without_both_preconditions_nor_for_another_node(uid: str, version: str) -> None:
    assert replacement(NODE, {"spec": {"taints": None}}, uid=uid, version=version) is None


def test_a_new_taint_and_a_new_value_are_written() -> None:
    changed = {**OURS, "value": "no"}
    spec = one(sent(NODE, {"spec": {"taints": [changed, THEIRS]}}), SPEC)
    assert [read_object("Taint", taint) for taint in values(spec, TAINTS)] == [changed, THEIRS]
