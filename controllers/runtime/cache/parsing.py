"""From what came over the wire to the small model that is cached (between stages 1 and 2), for one
kind. No I/O.

JSON goes by pydantic and is compacted then: a node of 11.6 KB with 50 images takes 20.6 KB in the
cache after trimming alone, 4.3 KB once compacted. Protobuf is read straight into small models, and
goes the long way where those would not be sure of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, Generic, NamedTuple

from cloudprovider.internal.readonly import ReadOnlyDict, ReadOnlyList, fields_of, small_model
from controllers.runtime.cache.resources import MalformedObject, Raw, Resource, T, WireObject, trim_annotations

_LONGEST_SHARED: Final = 128
_MOST_SHARED: Final = 2048
"""Most strings come once (versions, UIDs, times), few in many objects. A small table is emptied
often, which costs a copy of those few; a large one keeps what nothing else does any more."""
_MOST_FIELD_SETS: Final = 8
_PLAIN: Final = frozenset({type(None), bool, int, float, datetime})


class Metadata(NamedTuple):
    """Which object it is. "" where a field is none, or no text."""

    name: str
    namespace: str
    uid: str
    version: str


def metadata_of(raw: object) -> Metadata | None:
    """The metadata of a raw object, or of one in Protobuf; None for what has none."""
    if isinstance(raw, WireObject):
        head = raw.message.metadata
        return Metadata(*map(_text, (head.name, head.namespace, head.uid, head.resourceVersion)))
    found = raw.get("metadata") if isinstance(raw, dict) else None
    if not isinstance(found, dict):
        return None
    fields = map(found.get, ("name", "namespace", "uid", "resourceVersion"))
    return Metadata(*map(_text, fields))


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


class Parser(Generic[T]):
    """Parses the objects of one kind. For one thread."""

    def __init__(self, resource: Resource[T]) -> None:
        self._resource = resource
        self._compactor = Compactor()
        self._direct: Callable[[Any], T] | None = None

    def parse(self, raw: Raw | WireObject) -> T:
        """The model of this object, small and trimmed. Consumes `raw`. Raises MalformedObject and
        nothing else."""
        if isinstance(raw, WireObject):
            return self._from_protobuf(raw.message)
        return self._compactor.compact(self._resource.parse(raw))

    def _from_protobuf(self, message: Any) -> T:
        if self._direct is None:
            self._direct = self._reader()
        if message.metadata.resourceVersion:
            self._compactor.begin()
            try:
                found = self._direct(message)
            except ValueError:
                pass  # a time beyond all calendars, say: the long way tells what is wrong
            else:
                if found.metadata is not None:
                    trim_annotations(found.metadata.annotations)
                return found
        from controllers.runtime.protobuf.reading import reader_of

        try:
            raw = reader_of(self._resource.kind)(message)
        except ValueError as error:
            raise MalformedObject(str(error)) from error
        return self._compactor.compact(self._resource.parse(raw))

    def _reader(self) -> Callable[[Any], T]:
        from controllers.runtime.cache.protodecoding import model_reader  # not loaded where all is JSON

        resource = self._resource
        top = {"kind": resource.kind, "api_version": resource.api_version}
        return model_reader(resource.kind, resource.model, top, self._compactor.share)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
