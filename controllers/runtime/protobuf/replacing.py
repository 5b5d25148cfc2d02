"""A Node as it is sent back whole, in a PUT: the bytes that the API server sent, with our changes
in them and nothing else changed (for stage 6). Pure functions.

This is no typed model, which would lose what it does not know. The messages for it (WholeNode and
below it, in kubernetes.proto) declare only what we change or leave out; all else is an unknown
field to them, kept byte for byte. Maps are declared as the lists that they are on the wire, so that
their entries stay as they are too.

Two parts are left out of the body: managedFields, as the server then goes on with those that it
has, and the status, which a PUT to the object itself never changes. That is nine tenths of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from google.protobuf.message import DecodeError

from controllers.runtime.protobuf.reading import message_in, reader_of
from controllers.runtime.protobuf.schema import message_class, seal

_API_VERSION: Final = "v1"
_KIND: Final = "Node"
_WHOLE: Final = "WholeNode"
_TAINT: Final = ("key", "value", "effect")
_OF_OTHERS: Final = ("labels", "annotations", "finalizers", "ownerReferences")


class _NotPossible(Exception):
    """A change that cannot be made here: it has to be sent as a patch."""


def kept(data: bytes) -> bytes | None:
    """What of a Node's bytes (without envelope) `replacement` needs; None for no Node."""
    try:
        node = message_class(_WHOLE).FromString(data)
    except DecodeError:
        return None
    node.ClearField("status")
    node.metadata.ClearField("managedFields")
    found: bytes = node.SerializeToString()
    return found


def is_current(data: bytes, metadata: Mapping[str, Any]) -> bool:
    """Whether the Node with this metadata in JSON still has the labels and so on of these bytes.
    Raises ValueError for bytes that are no Node."""
    before = reader_of("ObjectMeta")(message_in(_KIND, data).metadata)
    return all((before.get(name) or None) == (metadata.get(name) or None) for name in _OF_OTHERS)


def replacement(data: bytes, patch: Mapping[str, Any], *, uid: str, version: str) -> bytes | None:
    """The body of the PUT that does what this JSON merge patch does, in its envelope.

    `data` is what was `kept` of the Node with that UID. `version` is the precondition: the
    resourceVersion onto which the patch is to be written. None where it cannot be done: the patch
    changes something else than labels, annotations, provider ID and taints, or another's `data`."""
    try:
        node = message_class(_WHOLE).FromString(data)
        if node.metadata.uid != uid.encode() or not uid or not version:
            return None
        _change(node, patch)
    except (DecodeError, _NotPossible):
        return None
    node.metadata.resourceVersion = version.encode()
    return seal(_API_VERSION, _KIND, node)


def _change(node: Any, patch: Mapping[str, Any]) -> None:
    for part, fields in patch.items():
        for field, value in _known(fields):
            match part, field:
                case "metadata", "labels":
                    _change_entries(node.metadata.labels, value)
                case "metadata", "annotations":
                    _change_entries(node.metadata.annotations, value)
                case "spec", "providerID" if isinstance(value, str):
                    node.spec.providerID = value.encode()
                case "spec", "taints":
                    _change_taints(node.spec.taints, value or ())
                case _:
                    raise _NotPossible


def _known(fields: object) -> Iterable[tuple[str, Any]]:
    if not isinstance(fields, Mapping):
        raise _NotPossible
    return fields.items()


def _change_entries(entries: Any, wanted: object) -> None:
    """Set and remove (None) entries of a map."""
    for key, value in _known(wanted):
        name = key.encode()
        places = [place for place, entry in enumerate(entries) if entry.key == name]
        if value is None:
            for place in reversed(places):
                del entries[place]
        elif not isinstance(value, str):
            raise _NotPossible
        elif places:
            entries[places[-1]].value = value.encode()  # the last one counts
        else:
            entries.add(key=name, value=value.encode())


def _change_taints(taints: Any, wanted: Iterable[Any]) -> None:
    """Make the list as wanted. A taint that is there already stays as it is on the wire, with its
    time and what we do not know of it."""
    present = {_taint_of(taint): taint.SerializeToString() for taint in taints}
    after = []
    for one in wanted:
        if not isinstance(one, Mapping):
            raise _NotPossible
        same = tuple(str(one.get(name) or "").encode() for name in _TAINT)
        if same not in present and one.keys() - set(_TAINT):
            raise _NotPossible  # a new one with a time, say
        after.append(
            present.get(same) or message_class("WholeTaint")(**dict(zip(_TAINT, same, strict=True))).SerializeToString()
        )
    del taints[:]
    for data in after:
        taints.add().MergeFromString(data)


def _taint_of(taint: Any) -> tuple[bytes, ...]:
    return tuple(getattr(taint, name) for name in _TAINT)
