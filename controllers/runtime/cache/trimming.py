"""What of an object is kept in memory (between stages 1 and 2): raw JSON is cut down before it is
parsed, and the parsed model is compacted before it is cached.

Dropped is what no controller of ours reads and a provider has no use for: `metadata.managedFields`,
kubectl's copy of the whole object, and of nodes the fields of `_NODE_LEFT_OUT`. Nothing is lost on
the server by this, as objects are only ever patched.

Measured (a node of 11.6 KB with 50 images; Python 3.11): 20.6 KB per cached node after trimming
alone, 4.3 KB once compacted. Cutting the images out of the bytes before `json.loads` cost what the
decoder saved; a second set of models without these fields made no difference in whole runs
(docs/reference/benchmarks.md)."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, TypeVar

from cloudprovider.internal.readonly import ReadOnlyDict, ReadOnlyList, fields_of, small_model

T = TypeVar("T")

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

_NODE_LEFT_OUT: Final = {
    "status": (
        "images",
        "volumesInUse",
        "volumesAttached",
        "config",
        "runtimeHandlers",
        "features",
        "declaredFeatures",
    ),
    "spec": ("configSource",),
}

_LONGEST_SHARED: Final = 128
_MOST_SHARED: Final = 2048
"""Most strings come once (versions, UIDs, times), few in many objects. A small table is emptied
often, which costs a copy of those few; a large one keeps what nothing else does any more."""
_MOST_FIELD_SETS: Final = 8
_PLAIN: Final = frozenset({type(None), bool, int, float, datetime})


def trim_metadata(raw: dict[str, Any]) -> None:
    """Drop managedFields and kubectl's copy of the object, in place. The default for every kind."""
    metadata = raw["metadata"]
    metadata.pop("managedFields", None)
    trim_annotations(metadata.get("annotations"))


def trim_annotations(annotations: dict[str, str] | None) -> None:
    """Drop kubectl's copy of the object, in place."""
    if annotations:
        dict.pop(annotations, LAST_APPLIED, None)  # read-only already, but nobody has it yet


def trim_node(raw: dict[str, Any]) -> None:
    """Drop what is most of a Node's size and read by no controller, in place."""
    trim_metadata(raw)
    for part, left_out in _NODE_LEFT_OUT.items():
        fields = raw.get(part)
        if fields:
            for field in left_out:
                fields.pop(field, None)


class Compactor:
    """Makes parsed models small by sharing what is equal in many of them. One per informer.

    Shared are equal strings (label keys and values, condition reasons, versions), the sets in which
    pydantic records for each model which fields were given, of which few differ and which take more
    room than the values, and the names of the fields (`internal/readonly.py`). The tables are
    bounded: a full one is emptied and fills again with what is common."""

    def __init__(self) -> None:
        self._strings: dict[str, str] = {}
        self._field_sets: dict[type, list[set[str]]] = {}

    def compact(self, model: T) -> T:
        """A small, read-only model that looks and compares like this one; what this one holds goes
        into it."""
        self.begin()
        small: T = self._small(model)
        return small

    def begin(self) -> None:
        """Another object's strings come: empty a table that is full."""
        if len(self._strings) > _MOST_SHARED:
            self._strings.clear()

    def share(self, text: str) -> str:
        """The string to keep in place of this one, which is equal."""
        return self._strings.setdefault(text, text) if len(text) <= _LONGEST_SHARED else text

    def _small(self, model: Any) -> Any:
        values = model.__dict__
        share = self._strings.setdefault
        for name, value in values.items():
            kind = value.__class__
            if kind in _PLAIN:
                continue
            if kind is str:
                if len(value) <= _LONGEST_SHARED:
                    values[name] = share(value, value)
            elif kind is dict:
                values[name] = ReadOnlyDict({share(key, key): self._compacted(item) for key, item in value.items()})
            elif kind is list:
                values[name] = ReadOnlyList([self._compacted(item) for item in value])
            else:
                values[name] = self._compacted(value)
        return small_model(model.__class__, values.items(), self._shared_fields(model))

    def _shared_fields(self, model: Any) -> set[str]:
        given: set[str] = model.__pydantic_fields_set__
        known = self._field_sets.setdefault(model.__class__, [])
        for same in known:
            if same == given:
                return same
        if len(known) >= _MOST_FIELD_SETS:
            known.clear()
        known.append(given)
        return given

    def _compacted(self, item: Any) -> Any:
        if item.__class__ is str:
            return self.share(item)
        return self._small(item) if fields_of(item.__class__) else item
