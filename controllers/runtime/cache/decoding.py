"""From the bytes of lists and watches (stage 1) to the small models that are cached (stage 2).

`Encoding` says whether a list-watch loop asks for JSON or Protobuf. JSON becomes raw objects here,
and `Parser` makes models of those, by pydantic; Protobuf is read in `protodecoding.py`, straight
into small models. Bytes that cannot be decoded are a `DecodeError`: the reader asks the server
again from the last version that it is sure of. An object that does not fit its model is a
`MalformedObject`."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final, Generic, NamedTuple

from cloudprovider.internal.readonly import ReadOnlyDict, ReadOnlyList, fields_of, small_model
from controllers.runtime.api import ApiError, Response, RestClient
from controllers.runtime.cache.resources import (
    DecodeError,
    ListMeta,
    MalformedObject,
    ProtobufDecodeError,
    Raw,
    Resource,
    T,
    WireObject,
    list_meta,
    trim_annotations,
)
from controllers.runtime.protobuf import ACCEPT, JSON, is_protobuf

log = logging.getLogger(__name__)

_DECODER: Final = json.JSONDecoder()
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_NOT_ACCEPTABLE: Final = 406
_UNREADABLE_LIMIT: Final = 3
_LONGEST_SHARED: Final = 128
_MOST_SHARED: Final = 2048
"""Most strings come once (versions, UIDs, times), few in many objects. A small table is emptied
often, which costs a copy of those few; a large one keeps what nothing else does any more."""
_MOST_FIELD_SETS: Final = 8
_PLAIN: Final = frozenset({type(None), bool, int, float, datetime})


class Encoding:
    """JSON or Protobuf: what one loop asks for. For the loop's thread.

    Protobuf costs the API server less: docs/reports/benchmarks.md says how much. The server says
    in each answer what it sends. After a 406, or after three answers in a row that could not be
    read, a kind is asked for in JSON as long as the process lives."""

    def __init__(self, rest: RestClient, resource: Resource[Any]) -> None:
        self._rest = rest
        self._resource = resource
        self._given_up = False
        self._unreadable = 0  # answers in a row

    @property
    def accept(self) -> str:
        """The Accept header of the next request."""
        wanted = self._resource.in_protobuf and self._rest.protobuf and not self._given_up
        return ACCEPT if wanted else JSON

    def read_event(self, data: bytes, protobuf: bool) -> tuple[str, WireObject | dict[str, Any]]:
        """Decode one event of a watch into (type, object); an error's is raw. Raises
        DecodeError."""
        if not protobuf:
            return read_watch_line(data)
        # Loaded with the first Protobuf: it takes google.protobuf, which JSON does without.
        from controllers.runtime.cache.protodecoding import read_watch_frame

        event = read_watch_frame(data, self._resource.kind)
        self._unreadable = 0
        return event

    def failed(self, error: Exception) -> bool:
        """A request failed; returns whether another encoding is asked for from now on."""
        # There is nothing else to ask for: what is wrong is not the encoding.
        if self._given_up or self.accept == JSON:
            return False
        if isinstance(error, ProtobufDecodeError):
            self._unreadable += 1
        # An aggregated or a very old API server may know no Protobuf for this kind.
        refused = isinstance(error, ApiError) and error.status == _NOT_ACCEPTABLE
        self._given_up = refused or self._unreadable >= _UNREADABLE_LIMIT
        if self._given_up:
            log.warning(
                "%s: the API server's Protobuf cannot be read, asking for JSON from now on: %s. If a proxy stands "
                "before the server, --kube-api-content-type=application/json avoids these tries",
                self._resource.plural, error,
            )  # fmt: skip
        return self._given_up


def read_page(page: Response, kind: str, each: Callable[[Any], None], meta: Callable[[ListMeta], None]) -> None:
    """Read a list page of items of `kind`, whatever its encoding; see `read_list`. `meta`
    is called once, with the page's metadata: before the items where it can be read first."""
    # What the answer says counts, not what was asked for: a proxy may have changed either.
    if not is_protobuf(page.headers.get("content-type", "")):
        return meta(read_list(page.data, kind, each))
    from controllers.runtime.cache.protodecoding import read_protobuf_list

    return read_protobuf_list(page.data, kind, each, meta)


def read_list(data: bytes, kind: str, each: Callable[[Any], None]) -> ListMeta:
    """Call `each` with every raw item of a list page, in order, then return the page's metadata.

    `kind` is the items' ("Node"). Raises DecodeError for what is no complete list of that kind with
    a resourceVersion: an empty object from a proxy must never pass for an empty list. Items before
    the damage have then been handed out already, to be dropped with the page."""
    try:
        fields = _read_fields(data.decode(), each)
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"list page of {len(data)} bytes: {_shape(error)}") from error
    metadata = fields.get("metadata") if "items" in fields else None
    found = metadata if isinstance(metadata, dict) else {}
    return list_meta(kind, fields.get("kind"), found.get("resourceVersion"), found.get("continue"))


def read_watch_line(line: bytes) -> tuple[str, dict[str, Any]]:
    """Decode one line of a watch into (type, raw object). Raises DecodeError; any type passes."""
    try:
        event = _DECODER.decode(line.decode())
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"watch line of {len(line)} bytes: {_shape(error)}") from error
    if isinstance(event, dict):
        kind, raw = event.get("type"), event.get("object")
        if isinstance(kind, str) and isinstance(raw, dict):
            return kind, raw
    raise DecodeError("a watch line without type and object")


class Metadata(NamedTuple):
    """Which object it is. "" where a field is none, or no text."""

    name: str
    namespace: str
    uid: str
    version: str


def metadata_of(raw: object) -> Metadata | None:
    """The metadata of a raw object, or of one in Protobuf; None for what has none."""
    values: Iterable[object]
    if isinstance(raw, WireObject):
        head = raw.message.metadata
        values = (head.name, head.namespace, head.uid, head.resourceVersion)
    else:
        found = raw.get("metadata") if isinstance(raw, dict) else None
        if not isinstance(found, dict):
            return None
        values = map(found.get, ("name", "namespace", "uid", "resourceVersion"))
    # JSON may hold anything here, and what is no UTF-8 in Protobuf is bytes.
    return Metadata(*[value if isinstance(value, str) else "" for value in values])


class Parser(Generic[T]):
    """Parses the objects of one kind, and makes them small and read-only. For one thread.

    Shared are equal strings (label keys and values, condition reasons, versions), the sets in which
    pydantic records for each model which fields were given, of which few differ and which take more
    room than the values, and the names of the fields (`internal/readonly.py`): a node of 11.6 KB
    with 50 images takes 20.6 KB in the cache after trimming alone, 4.3 KB then. The tables are
    bounded: a full one is emptied and fills again with what is common."""

    def __init__(self, resource: Resource[T]) -> None:
        self._resource = resource
        self._strings: dict[str, str] = {}
        self._field_sets: dict[type, list[set[str]]] = {}
        self._direct: Callable[[Any], T] | None = None

    def parse(self, raw: Raw | WireObject) -> T:
        """The model of this object, small and trimmed. Consumes `raw`. Raises MalformedObject and
        nothing else."""
        if len(self._strings) > _MOST_SHARED:
            self._strings.clear()
        if isinstance(raw, WireObject):
            return self._from_protobuf(raw.message)
        small: T = self._small(self._resource.parse(raw))
        return small

    def share(self, text: str) -> str:
        """The string to keep in place of this one, which is equal."""
        return self._strings.setdefault(text, text) if len(text) <= _LONGEST_SHARED else text

    def _small(self, model: Any) -> Any:
        """A small, read-only model that looks and compares like this one; what this one holds goes
        into it."""
        values = model.__dict__
        share = self._strings.setdefault
        # Text and plain values are handled in place: most fields are such, and a call for each
        # would add a tenth to the time of a list of 20,000 nodes.
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

    def _compacted(self, item: Any) -> Any:
        if item.__class__ is str:
            return self.share(item)
        return self._small(item) if fields_of(item.__class__) else item

    def _shared_fields(self, model: Any) -> set[str]:
        given: set[str] = model.__pydantic_fields_set__
        known = self._field_sets.setdefault(model.__class__, [])
        for same in known:
            if same == given:
                return same
        # Objects of all shapes: to compare with ever more sets would cost more than sharing saves.
        if len(known) >= _MOST_FIELD_SETS:
            known.clear()
        known.append(given)
        return given

    def _from_protobuf(self, message: Any) -> T:
        if self._direct is None:
            self._direct = self._reader()
        # Without one it is malformed; the long way says so in the model's own words.
        if message.metadata.resourceVersion:
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
        return self.parse(raw)

    def _reader(self) -> Callable[[Any], T]:
        from controllers.runtime.cache.protodecoding import model_reader  # not loaded where all is JSON

        resource = self._resource
        top = {"kind": resource.kind, "api_version": resource.api_version}
        return model_reader(resource.kind, resource.model, top, self.share)


def _read_fields(text: str, each: Callable[[Any], None]) -> dict[str, Any]:
    """Read one JSON object; the elements of its array `items` go to `each`, all else is
    returned."""
    fields: dict[str, Any] = {}
    at = _expect(text, 0, "{")
    if text.startswith("}", at):
        at += 1
    else:
        while True:
            name, at = _DECODER.raw_decode(text, at)
            if not isinstance(name, str):
                raise ValueError("an object's key is not a string")
            at = _expect(text, at, ":")
            # Item by item: a page of 500 nodes as one tree of dicts takes many times its bytes.
            if name == "items" and text.startswith("[", at):
                at = _read_items(text, at + 1, each)
                fields[name] = True
            else:
                fields[name], at = _DECODER.raw_decode(text, at)
                if name == "items" and fields[name] is not None:
                    raise ValueError("items is no array")
            at, done = _next(text, at, "}")
            if done:
                break
    # A second object behind the first is no list of ours; half of it may be another answer.
    if _skip(text, at) != len(text):
        raise ValueError("more after the end of the object")
    return fields


def _read_items(text: str, at: int, each: Callable[[Any], None]) -> int:
    at = _skip(text, at)
    if text.startswith("]", at):
        return at + 1
    while True:
        item, at = _DECODER.raw_decode(text, at)
        each(item)
        at, done = _next(text, at, "]")
        if done:
            return at


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match is not None else at


def _expect(text: str, at: int, sign: str) -> int:
    at = _skip(text, at)
    if not text.startswith(sign, at):
        raise ValueError(f"no {sign!r} at {at}")
    return _skip(text, at + 1)


def _next(text: str, at: int, end: str) -> tuple[int, bool]:
    """Step over a comma (then there is more) or over `end`."""
    at = _skip(text, at)
    if text.startswith(end, at):
        return at + 1, True
    return _expect(text, at, ","), False


def _shape(error: Exception) -> str:
    # The text of a UnicodeDecodeError or JSONDecodeError holds positions, never contents.
    return f"{type(error).__name__}: {error}"[:200]
