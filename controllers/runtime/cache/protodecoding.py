"""The bytes of lists and watches in Protobuf (stage 1): to messages, and from those straight into
the small models that the cache holds. Imported when the first Protobuf comes.

pydantic's validators have no part in it: what a message holds has the right types already. The few
things that a model would refuse are `Unsure`; the caller then goes by the raw object
(`protobuf/reading.py`) and the model's own check, which says what is wrong. That takes half as long
again, and the validators have to be built first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, get_args

from google.protobuf.message import DecodeError as NoProtobuf

from cloudprovider.internal.readonly import ReadOnlyDict, ReadOnlyList, read_only_class, small_model
from controllers.runtime.cache.resources import DecodeError, ListMeta, ProtobufDecodeError, WireObject, list_meta
from controllers.runtime.protobuf.reading import VALUES, Reader, message_in, object_in, read_enveloped, shaped_reader
from controllers.runtime.protobuf.schema import message_class, unwrap

_TIMES: Final = ("Time", "MicroTime")
_MOST_FIELD_SETS: Final = 32  # of a class; few occur


def read_protobuf_list(data: bytes, kind: str, each: Callable[[Any], None], meta: Callable[[ListMeta], None]) -> None:
    """Call `meta` with the metadata of a list page, and then `each` with every item, in order.

    As `decoding.read_list`, but the items are WireObjects. Raises ProtobufDecodeError.
    """
    try:
        envelope = unwrap(data, "ListEnvelope")
        page, head = envelope.raw, envelope.raw.metadata
        found = list_meta(kind, envelope.typeMeta.kind, head.resourceVersion, getattr(head, "continue"))
    except (ValueError, DecodeError) as error:
        raise ProtobufDecodeError(f"list page: {error}") from error
    meta(found)
    for item in page.items:
        try:
            message = message_in(kind, item)
        except ValueError as error:
            # The whole page: this object's name cannot be known, and the cache must not take it
            # for deleted.
            raise ProtobufDecodeError(f"list page of {len(data)} bytes: {error}") from error
        each(WireObject(message))


def read_watch_frame(frame: bytes, kind: str) -> tuple[str, WireObject | dict[str, Any]]:
    """Decode one frame of a watch of that kind into (type, object), the object raw where it is an
    error; any type is let through. Raises ProtobufDecodeError."""
    try:
        event = message_class("WatchEvent").FromString(frame)
        if event.type == "ERROR":
            return event.type, read_enveloped(event.object.raw, "Status")
        return event.type, WireObject(message_in(kind, object_in(event.object.raw, kind)))
    except (ValueError, NoProtobuf) as error:
        raise ProtobufDecodeError(f"watch frame of {len(frame)} bytes: {error}") from error


class Unsure(ValueError):
    """A message that a model might refuse."""


def model_reader(kind: str, model: type, top: Mapping[str, str], share: Callable[[str], str]) -> Reader:
    """What turns messages of that kind ("Node") into such models, and raises Unsure.

    `top` are fields that the outermost model gets besides (kind and apiVersion). `share` gives the
    string that is kept in place of an equal one. For one thread at a time, as far as `share` is.
    """
    return shaped_reader(kind, _Models(model, share, top))


class _Models:
    """The shape: a message becomes a model of that class, and those in it of the classes of its
    fields."""

    def __init__(self, model: Any, share: Callable[[str], str], top: Mapping[str, str] | None = None) -> None:
        self._model = model
        self._top = dict(top or {})
        self.text = share
        self._names = {field.serialization_alias or name: name for name, field in model.model_fields.items()}

    listed, mapped = ReadOnlyList, ReadOnlyDict

    def shown(self, field: str) -> str:
        name: str = self._names.get(field, field)
        return name

    def inner(self, field: str, message: str) -> Reader:
        if (read := VALUES.get(message)) is not None:
            return _time(read) if message in _TIMES else read
        annotation = self._model.model_fields[self.shown(field)].annotation
        (model, *_) = _models_in(annotation)
        return shaped_reader(message, _Models(model, self.text))

    def made(self, message: str, empty: Mapping[str, Any]) -> Callable[[dict[str, Any]], Any]:
        model, fields = read_only_class(self._model), self._model.model_fields
        blank = dict.fromkeys(fields) | self._top
        top = self._top.keys()
        needed = tuple(name for name, field in fields.items() if field.is_required() and empty.get(name) is None)
        given_sets: dict[tuple[str, ...], set[str]] = {}

        def make(found: dict[str, Any]) -> Any:
            for name in needed:
                # proto3 cannot tell an empty field from a missing one; the model's own check
                # decides.
                if found.get(name) is None:
                    raise Unsure(f"{message}: {name} is required")
            names = tuple(found)
            given = given_sets.get(names)
            if given is None:
                if len(given_sets) >= _MOST_FIELD_SETS:
                    given_sets.clear()
                given = given_sets[names] = {*names, *top}
            return small_model(model, (blank | found).items(), given)

        return make


def _time(read: Reader) -> Reader:
    def read_time(message: Any) -> Any:
        moment = read(message)
        # A year beyond 9999 fits in Protobuf, and in no datetime.
        if moment.__class__ is str:
            raise Unsure(f"a time beyond all calendars: {moment}")
        return moment

    return read_time


def _models_in(annotation: Any) -> Iterator[Any]:
    if hasattr(annotation, "model_fields"):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)
