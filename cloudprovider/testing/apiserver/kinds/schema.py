"""What the API's types look like, and how an object is brought into the form that the real server
would store: unknown fields dropped (and reported), types checked, zero values left out or filled in
as Go's JSON tags have it, times made canonical. Pure.

The table is `schema.json`, generated from the Go types of k8s.io/api 0.36 (field, type, `omit` for
omitempty, patch strategy and merge key). A subtree that is the very same Python object as in the
old revision is taken over without a look."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any, Final

from cloudprovider.internal.patching import BUILT_IN, FieldMerging
from cloudprovider.testing.apiserver.errors import JSON

Clean = Callable[[Any, Any, str, list[str]], Any]
"""(value, value before, path, unknown) -> value in stored form; adds the paths of fields that are
dropped to `unknown`. Raises DecodeError."""


class DecodeError(ValueError):
    """The JSON does not fit the type."""


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
        # Two threads may build them at once: both find the same, and the last one stays.
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

    def clean(self, value: Any, before: Any, path: str, unknown: list[str]) -> JSON:
        """`value` in stored form; a new dict unless `value` is `before`. Raises DecodeError."""
        # Most of a patched object is the former one's own, by identity.
        if value is before and value is not None:
            return value  # type: ignore[no-any-return]  # it was cleaned when it was stored
        fields = self.fields
        if value is None:
            value = {}
        elif not isinstance(value, dict):
            raise _unfit(value, path, f"v1.{self.name}")
        old = before if isinstance(before, dict) else {}
        out: JSON = {}
        for key, item in value.items():
            field = fields.get(key)
            if field is None and self._is_open:
                out[key] = item
                continue
            if field is None:
                unknown.append(f"{path}.{key}" if path else key)
                continue
            cleaned = field.clean(item, old.get(key), f"{path}.{key}" if path else key, unknown)
            # Go leaves out an empty value; behind a pointer 0 and "" were said on purpose, and
            # stay.
            if field.omit and (cleaned is None if field.is_pointer else not cleaned):
                continue
            out[key] = cleaned
        for field in self._always:
            if field.name not in out:
                out[field.name] = field.zero()
        return out


_RFC3339: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,](\d+))?(?:Z|[+-]\d\d:\d\d)")
_QUANTITY: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]+)?")


def _unfit(value: Any, path: str, wanted: str) -> DecodeError:
    return DecodeError(f"{path or 'the object'}: {json.dumps(value)[:80]} is no {wanted}")


def parse_time(text: str) -> datetime:
    """An RFC 3339 time as an aware datetime in UTC. Raises DecodeError."""
    if not _RFC3339.fullmatch(text):
        raise DecodeError(f'parsing time "{text}": it has not the form 2006-01-02T15:04:05Z')
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise DecodeError(f'parsing time "{text}": {error}') from error


def format_time(moment: datetime) -> str:
    """Seconds precision, as metav1.Time prints."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(moment: datetime) -> str:
    """Six fractional digits, as metav1.MicroTime prints."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _time(show: Callable[[datetime], str], *, micro: bool = False) -> Clean:
    def clean(value: Any, before: Any, path: str, unknown: list[str]) -> Any:
        if value is None or (value == before and before is not None):
            return value
        if not isinstance(value, str):
            raise _unfit(value, path, "time")
        moment, match = parse_time(value), _RFC3339.fullmatch(value)
        # Go's MicroTime, which Leases have, takes exactly six digits.
        if micro and (match is None or len(match[1] or "") != 6):
            raise DecodeError(f'parsing time "{value}": it has not the form 2006-01-02T15:04:05.000000Z')
        return show(moment)

    return clean


def _clean_quantity(value: Any, before: Any, path: str, unknown: list[str]) -> Any:
    if value is None:
        return "0"
    text = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    if not isinstance(text, str):
        raise DecodeError("quantities must be a string or a number")
    if not _QUANTITY.fullmatch(text):
        raise DecodeError("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
    return text


def _clean_intstr(value: Any, before: Any, path: str, unknown: list[str]) -> Any:
    if value is None:
        return 0
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise _unfit(value, path, "int32")


def _clean_bytes(value: Any, before: Any, path: str, unknown: list[str]) -> Any:
    if value is None or value is before:
        return value
    if not isinstance(value, str):
        raise _unfit(value, path, "bytes")
    try:
        return base64.b64encode(base64.b64decode(value, validate=True)).decode()
    except ValueError as error:
        raise DecodeError(f"illegal base64 data at input byte 0: {error}") from error


def _clean_any(value: Any, before: Any, path: str, unknown: list[str]) -> Any:
    return value


def _scalar(kind: type, zero: Any) -> tuple[Clean, Callable[[], Any]]:
    def clean(value: Any, before: Any, path: str, unknown: list[str]) -> Any:
        # Not isinstance: True is an int in Python, and no number in JSON.
        if value.__class__ is kind:
            return value
        if value is None:
            return zero
        raise _unfit(value, path, kind.__name__)

    return clean, lambda: zero


def _integer(bits: int) -> tuple[Clean, Callable[[], Any]]:
    limit = 1 << (bits - 1)

    def clean(value: Any, before: Any, path: str, unknown: list[str]) -> Any:
        if value.__class__ is int and -limit <= value < limit:
            return value
        if value is None:
            return 0
        raise _unfit(value, path, f"int{bits}")

    return clean, lambda: 0


def _pointer(inner: Clean) -> tuple[Clean, Callable[[], Any]]:
    def clean(value: Any, before: Any, path: str, unknown: list[str]) -> Any:
        return None if value is None else inner(value, before, path, unknown)

    return clean, lambda: None


def _list(inner: Clean) -> tuple[Clean, Callable[[], Any]]:
    def clean(value: Any, before: Any, path: str, unknown: list[str]) -> Any:
        if value is None or value is before:
            return value
        if not isinstance(value, list):
            raise _unfit(value, path, "array")
        old: Sequence[Any] = before if isinstance(before, list) else ()
        known = len(old)
        return [inner(item, old[at] if at < known else None, f"{path}[{at}]", unknown) for at, item in enumerate(value)]

    return clean, lambda: None


def _map(inner: Clean) -> tuple[Clean, Callable[[], Any]]:
    def clean(value: Any, before: Any, path: str, unknown: list[str]) -> Any:
        if value is None or value is before:
            return value
        if not isinstance(value, dict):
            raise _unfit(value, path, "object")
        old = before if isinstance(before, dict) else {}
        return {key: inner(item, old.get(key), path, unknown) for key, item in value.items()}

    return clean, lambda: None


def _cleaner(text: str) -> tuple[Clean, Callable[[], Any]]:
    if text.startswith("*"):
        return _pointer(_cleaner(text[1:])[0])
    if text.startswith("[]"):
        return _list(_cleaner(text[2:])[0])
    if text.startswith("{}"):
        return _map(_cleaner(text[2:])[0])
    if text[0].isupper():
        described = struct(text)
        return described.clean, lambda: described.clean(None, None, "", [])
    if text in ("int", "int32", "int64"):
        return _integer(32 if text == "int32" else 64)
    simple: dict[str, tuple[Clean, Callable[[], Any]]] = {
        "string": _scalar(str, ""),
        "bool": _scalar(bool, False),
        "time": (_time(format_time), lambda: None),
        "microtime": (_time(format_micro_time, micro=True), lambda: None),
        "quantity": (_clean_quantity, lambda: "0"),
        "intstr": (_clean_intstr, lambda: 0),
        "bytes": (_clean_bytes, lambda: None),
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
