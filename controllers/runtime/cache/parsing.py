"""From what came over the wire to the small model that is cached (between stages 1 and 2), for one
kind. No I/O.

JSON goes by pydantic and is compacted then; Protobuf is read straight into small models, and goes
the long way where those would not be sure of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple

from controllers.runtime.cache.resources import MalformedObject, Raw, Resource, T
from controllers.runtime.cache.trimming import Compactor, trim_annotations


class WireObject(NamedTuple):
    """An object that came in Protobuf."""

    message: Any
    """Read, but not yet made a model."""


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
    return Metadata(*(_text(found.get(field)) for field in ("name", "namespace", "uid", "resourceVersion")))


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
        from controllers.runtime.cache.protomodels import model_reader  # not loaded where all is JSON

        resource = self._resource
        top = {"kind": resource.kind, "api_version": resource.api_version}
        return model_reader(resource.kind, resource.model, top, self._compactor.share)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
