"""What the API's types look like, and how an object is brought into the form that the real server
would store: unknown fields dropped (and reported), types checked, zero values left out or filled in
as Go's JSON tags have it, times made canonical. Pure.

The table is `schema.json`, generated from the Go types of k8s.io/api 0.36 (field, type, `omit` for
omitempty, patch strategy and merge key). A subtree that is the very same Python object as in the
old revision is taken over without a look."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Any, Final

from cloudprovider.internal.patching import BUILT_IN, FieldMerging
from cloudprovider.testing.apiserver.errors import JSON

Clean = Callable[[Any, Any, str, "Context"], Any]
"""(value, value before, path, context) -> value in stored form; raises DecodeError."""


class DecodeError(ValueError):
    """The JSON does not fit the type; the message is Go's."""


class Context:
    """Collects what was dropped while one object is normalised."""

    __slots__ = ("unknown",)

    def __init__(self) -> None:
        self.unknown: list[str] = []


class Field:
    """One field of a struct: its type's cleaner, whether an empty value is left out, and how
    patches merge it.
    """

    __slots__ = ("clean", "merge_key", "name", "omit", "strategy", "struct", "type", "zero")

    def __init__(self, name: str, text: str) -> None:
        type_text, *flags = text.split(" ")
        options = dict(flag.partition("=")[::2] for flag in flags)
        self.name = name
        self.type = type_text
        self.omit = "omit" in options
        self.strategy = options.get("patch", "")
        self.merge_key = options.get("key", "")
        base = type_text.lstrip("*[]{}")
        self.struct: Struct | None = struct(base) if base[0].isupper() else None
        self.clean: Clean
        self.clean, self.zero = _cleaner(type_text)

    @property
    def is_pointer(self) -> bool:
        """Pointers are left out only when null; values also when empty."""
        return self.type.startswith("*")


class Struct:
    """One Go struct: fields by JSON name, and those that are always present. One that `is_open`
    takes unknown fields as they come.
    """

    def __init__(self, name: str, table: dict[str, str], *, is_open: bool = False) -> None:
        self.name = name
        self._is_open = is_open
        self._table = table
        self._fields: dict[str, Field] | None = None
        self._always: list[Field] = []

    @property
    def fields(self) -> dict[str, Field]:
        """The fields; built late, as types may nest in themselves."""
        if self._fields is None:
            fields = {name: Field(name, text) for name, text in self._table.items()}
            self._always = [field for field in fields.values() if not field.omit]
            self._fields = fields
        return self._fields

    def field_merging(self, name: str, /) -> FieldMerging:
        """How a strategic merge patch treats a field; an unknown one is merged as a plain map."""
        field = self.fields.get(name)
        if field is None:
            return BUILT_IN.field_merging(name) if self._is_open else FieldMerging()
        return FieldMerging(field.strategy.removesuffix(",retainKeys"), field.merge_key, field.struct)

    def clean(self, value: Any, before: Any, path: str, context: Context) -> JSON:
        """`value` in stored form; a new dictionary unless `value` is `before`. Raises
        DecodeError."""
        if value is before and value is not None:
            return value  # type: ignore[no-any-return]  # it was cleaned when it was stored
        fields = self.fields
        if value is None:
            value = {}
        elif not isinstance(value, dict):
            raise _mismatch(value, path, f"v1.{self.name}")
        old = before if isinstance(before, dict) else {}
        out: JSON = {}
        for key, item in value.items():
            field = fields.get(key)
            if field is None and self._is_open:
                out[key] = item
                continue
            if field is None:
                context.unknown.append(f"{path}.{key}" if path else key)
                continue
            try:
                cleaned = field.clean(item, old.get(key), f"{path}.{key}" if path else key, context)
            except Mismatch as error:
                raise error.within(self.name) from None
            if field.omit and (cleaned is None if field.is_pointer else not cleaned):
                continue
            out[key] = cleaned
        for field in self._always:
            if field.name not in out:
                out[field.name] = field.zero()
        return out


class Mismatch(DecodeError):
    """A value of the wrong JSON type; gets the name of the innermost struct on its way up."""

    def __init__(self, shown: str, path: str, go_type: str, owner: str = "") -> None:
        where = f"Go struct field {owner}.{_INDEX.sub('', path)}" if owner else "Go value"
        super().__init__(f"json: cannot unmarshal {shown} into {where} of type {go_type}")
        self.parts = (shown, path, go_type)
        self.owner = owner

    def within(self, owner: str) -> Mismatch:
        """The same error, naming the struct unless one is named already."""
        return self if self.owner else Mismatch(*self.parts, owner)


_INDEX: Final = re.compile(r"\[\d+\]")
_RFC3339: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,}))?(?:(Z)|([+-])(\d\d):(\d\d))")
_QUANTITY: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]+)?")
_GO_TYPES: Final = {
    "time": "v1.Time", "microtime": "v1.MicroTime", "quantity": "resource.Quantity", "intstr": "intstr.IntOrString"
}  # fmt: skip


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int):
        return "number"
    if isinstance(value, float):
        return f"number {value}"
    return "array" if isinstance(value, list) else "object"


def _go_type(text: str) -> str:
    if text.startswith("*"):
        return _go_type(text[1:])
    if text.startswith("[]"):
        return "[]" + _go_type(text[2:])
    if text.startswith("{}"):
        return "map[string]" + _go_type(text[2:])
    if text[0].isupper():
        return f"v1.{text}"
    return _GO_TYPES.get(text, text)


def _mismatch(value: Any, path: str, go_type: str) -> Mismatch:
    return Mismatch(_shown(value), path, go_type)


def parse_time(text: str) -> datetime:
    """An RFC 3339 time as an aware datetime in UTC. Raises DecodeError with Go's message."""
    match = _RFC3339.fullmatch(text)
    layout = '"2006-01-02T15:04:05Z07:00"'
    if match is None:
        raise DecodeError(f'parsing time "{text}" as {layout}: cannot parse "{text}" as "2006"')
    year, month, day, hour, minute, second, fraction, zulu, sign, off_h, off_m = match.groups()
    micro = int(((fraction or "") + "000000")[:6])
    try:
        moment = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second), micro, UTC)
    except ValueError as error:
        raise DecodeError(f'parsing time "{text}": {error}') from error
    if zulu:
        return moment
    offset = timedelta(hours=int(off_h), minutes=int(off_m))
    return moment - offset if sign == "+" else moment + offset


def format_time(moment: datetime) -> str:
    """Seconds precision, as metav1.Time prints."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(moment: datetime) -> str:
    """Six fractional digits, as metav1.MicroTime prints."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _clean_time(value: Any, before: Any, path: str, context: Context) -> Any:
    if value is None or (value == before and before is not None):
        return value
    if not isinstance(value, str):
        raise DecodeError(f"json: cannot unmarshal {_shown(value)} into Go value of type string")
    return format_time(parse_time(value))


def _clean_micro_time(value: Any, before: Any, path: str, context: Context) -> Any:
    if value is None or (value == before and before is not None):
        return value
    if not isinstance(value, str):
        raise DecodeError(f"json: cannot unmarshal {_shown(value)} into Go value of type string")
    layout = '"2006-01-02T15:04:05.000000Z07:00"'
    match = _RFC3339.fullmatch(value)
    if match is None:
        raise DecodeError(f'parsing time "{value}" as {layout}: cannot parse "{value}" as "2006"')
    if len(match[7] or "") != 6:
        rest = value[19:]
        raise DecodeError(f'parsing time "{value}" as {layout}: cannot parse "{rest}" as ".000000"')
    return format_micro_time(parse_time(value))


def _clean_quantity(value: Any, before: Any, path: str, context: Context) -> Any:
    if value is None:
        return "0"
    text = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    if not isinstance(text, str):
        raise DecodeError("quantities must be a string or a number")
    if not _QUANTITY.fullmatch(text):
        raise DecodeError("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
    return text


def _clean_intstr(value: Any, before: Any, path: str, context: Context) -> Any:
    if value is None:
        return 0
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise _mismatch(value, path, "int32")


def _clean_any(value: Any, before: Any, path: str, context: Context) -> Any:
    return value


def _scalar(kind: type, go_type: str, zero: Any) -> tuple[Clean, Callable[[], Any]]:
    def clean(value: Any, before: Any, path: str, context: Context) -> Any:
        if value.__class__ is kind:
            return value
        if value is None:
            return zero
        raise _mismatch(value, path, go_type)

    return clean, lambda: zero


def _integer(go_type: str, bits: int) -> tuple[Clean, Callable[[], Any]]:
    limit = 1 << (bits - 1)

    def clean(value: Any, before: Any, path: str, context: Context) -> Any:
        if value.__class__ is int:
            if -limit <= value < limit:
                return value
            raise Mismatch(f"number {value}", path, go_type)
        if value is None:
            return 0
        raise _mismatch(value, path, go_type)

    return clean, lambda: 0


def _pointer(inner: Clean) -> tuple[Clean, Callable[[], Any]]:
    def clean(value: Any, before: Any, path: str, context: Context) -> Any:
        return None if value is None else inner(value, before, path, context)

    return clean, lambda: None


def _list(inner: Clean, go_type: str) -> tuple[Clean, Callable[[], Any]]:
    def clean(value: Any, before: Any, path: str, context: Context) -> Any:
        if value is None or value is before:
            return value
        if not isinstance(value, list):
            raise _mismatch(value, path, go_type)
        old: Sequence[Any] = before if isinstance(before, list) else ()
        known = len(old)
        return [inner(item, old[at] if at < known else None, f"{path}[{at}]", context) for at, item in enumerate(value)]

    return clean, lambda: None


def _map(inner: Clean, go_type: str) -> tuple[Clean, Callable[[], Any]]:
    def clean(value: Any, before: Any, path: str, context: Context) -> Any:
        if value is None or value is before:
            return value
        if not isinstance(value, dict):
            raise _mismatch(value, path, go_type)
        old = before if isinstance(before, dict) else {}
        return {key: inner(item, old.get(key), path, context) for key, item in value.items()}

    return clean, lambda: None


def _cleaner(text: str) -> tuple[Clean, Callable[[], Any]]:
    if text.startswith("*"):
        return _pointer(_cleaner(text[1:])[0])
    if text.startswith("[]"):
        return _list(_cleaner(text[2:])[0], _go_type(text))
    if text.startswith("{}"):
        return _map(_cleaner(text[2:])[0], _go_type(text))
    if text[0].isupper():
        described = struct(text)
        return described.clean, lambda: described.clean(None, None, "", Context())
    if text in ("int", "int32", "int64"):
        return _integer(text, 32 if text == "int32" else 64)
    simple: dict[str, tuple[Clean, Callable[[], Any]]] = {
        "string": _scalar(str, "string", ""),
        "bool": _scalar(bool, "bool", False),
        "time": (_clean_time, lambda: None),
        "microtime": (_clean_micro_time, lambda: None),
        "quantity": (_clean_quantity, lambda: "0"),
        "intstr": (_clean_intstr, lambda: 0),
        "any": (_clean_any, lambda: None),
    }
    return simple[text]


@cache
def _table() -> dict[str, dict[str, str]]:
    text = files("cloudprovider.testing.apiserver.kinds").joinpath("schema.json").read_text("utf-8")
    loaded: dict[str, dict[str, str]] = json.loads(text)
    return loaded


@cache
def struct(name: str) -> Struct:
    """The struct of that name, for example "Node". Raises KeyError."""
    return Struct(name, _table()[name])


_HEAD: Final = {"apiVersion": "string omit", "kind": "string omit", "metadata": "ObjectMeta"}
OPEN: Final = Struct("Object", _HEAD, is_open=True)
"""Any object: only its metadata is known."""
