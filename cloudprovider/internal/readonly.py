"""Objects that cannot be changed: what the host caches and hands to providers.

A read-only object is of a subclass of its model ("V1Node") and looks, compares and serialises like
an ordinary one. Assignment raises `ReadOnlyObject`, and so does what changes a list or a dict in
it. `copy.deepcopy` gives an ordinary object. The models are small, too: without a dict of their own
where Python allows it."""

from __future__ import annotations

import functools
import sys
from abc import ABCMeta
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

import attrs

V = TypeVar("V")

SHARED: Final = sys.version_info < (3, 13)
"""Whether models share the names of their fields. pydantic gives each model a dict. One that is
built attribute by attribute shares its keys with all others of its class, and has no dict before
somebody asks for `__dict__`: a trimmed node takes 2.8 KB instead of 4.1. CPython learns the shared
keys from the first 30 objects of a class. From 3.13 on only classes without slots share keys in
less room than a dict takes, and pydantic's have some."""

_new, _set = object.__new__, object.__setattr__  # past what raises, and past pydantic's validation


class ReadOnlyObject(TypeError):
    """An object that belongs to the host's cache was about to be changed."""


def _refuse(what: str) -> NoReturn:
    raise ReadOnlyObject(
        f"{what}: objects of the host are read-only, as all controllers share them. Change a copy: "
        "copy.deepcopy(...) gives an ordinary object"
    )


def _refusing(what: str) -> Callable[..., NoReturn]:
    """A method of a container that raises."""
    return lambda *args, **kwargs: _refuse(what)


class ReadOnlyDict(dict[str, Any]):
    """A dict that refuses changes. Copies are ordinary dicts."""

    __slots__ = ()

    def __copy__(self) -> dict[str, Any]:
        return dict(self)

    def __deepcopy__(self, memo: Any = None) -> dict[str, Any]:
        return {key: ordinary(each) for key, each in self.items()}

    def __reduce_ex__(self, protocol: Any) -> Any:
        return dict, (dict(self),)


class ReadOnlyList(list[Any]):
    """A list that refuses changes. Copies and slices are ordinary lists."""

    __slots__ = ()

    def __copy__(self) -> list[Any]:
        return list(self)

    def __deepcopy__(self, memo: Any = None) -> list[Any]:
        return [ordinary(each) for each in self]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return list, (list(self),)


_CHANGES_A_DICT = ("__setitem__", "__delitem__", "__ior__", "clear", "pop", "popitem", "setdefault", "update")
_CHANGES_A_LIST = (
    *("__setitem__", "__delitem__", "__iadd__", "__imul__", "append", "clear", "extend", "insert"),
    *("pop", "remove", "reverse", "sort"),
)
for _name in _CHANGES_A_DICT:
    setattr(ReadOnlyDict, _name, _refusing(f"dict.{_name}"))
for _name in _CHANGES_A_LIST:
    setattr(ReadOnlyList, _name, _refusing(f"list.{_name}"))


class _ReadOnly:
    """What makes a class of models read-only."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        _refuse(f"{type(self).__name__}.{name} = ...")

    def __delattr__(self, name: str) -> NoReturn:
        _refuse(f"del {type(self).__name__}.{name}")

    def __eq__(self, other: object) -> bool:
        kind = ordinary_class(type(self))
        if ordinary_class(type(other)) is not kind:
            return NotImplemented
        fields = fields_of(kind)
        return self is other or (fields is not None and fields.values(self) == fields.values(other))

    __hash__ = None  # type: ignore[assignment]  # as pydantic's

    def __copy__(self) -> Any:
        return self._ordinary(lambda value: value)

    def __deepcopy__(self, memo: Any = None) -> Any:  # model_copy gives no memo
        return self._ordinary(ordinary)

    def __reduce_ex__(self, protocol: Any) -> Any:
        copy = self.__deepcopy__()
        return _made, (type(copy), copy.__dict__, copy.__pydantic_fields_set__, copy.__pydantic_extra__)

    def _ordinary(self: Any, copied: Callable[[Any], Any]) -> Any:
        kind = ordinary_class(type(self))
        fields = fields_of(kind)
        assert fields is not None
        values = dict(zip(fields.names, map(copied, fields.values(self)), strict=True))
        return _made(kind, values, set(self.__pydantic_fields_set__), copied(self.__pydantic_extra__))


_classes: set[type] = {str, ReadOnlyDict, ReadOnlyList}
"""Of what is known to be read-only."""


class Fields(NamedTuple):
    """The fields of a class of models."""

    names: tuple[str, ...]
    values: Callable[[Any], tuple[Any, ...]]
    """Those of a model, in the same order."""


@functools.cache
def fields_of(kind: type) -> Fields | None:
    """The fields of such models; None for every other class."""
    known = getattr(kind, "__pydantic_fields__", None)
    if known is None:
        return None
    names = tuple(known)
    if len(names) > 1:
        return Fields(names, attrgetter(*names))
    return Fields(names, lambda model: tuple(getattr(model, name) for name in names))


@functools.cache
def read_only_class(kind: type) -> type:
    """The read-only class of these models."""
    if issubclass(kind, _ReadOnly):
        return kind
    space = {"__slots__": (), "__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    # Past pydantic's metaclass, which would build a validator for each; those of `kind` serve.
    made: type = ABCMeta.__new__(type(kind), kind.__name__, (_ReadOnly, kind), space)
    _classes.add(made)
    return made


def ordinary_class(kind: type) -> type:
    """The class whose read-only class this is; any other class itself."""
    return kind.__mro__[2] if issubclass(kind, _ReadOnly) else kind


def small_model(kind: type, values: Iterable[tuple[str, Any]], given: set[str]) -> Any:
    """A read-only model of that class with all its fields, in their order. `given` are those that
    were given; the set is shared. Nothing is validated, and containers are to be read-only."""
    model: Any = _new(read_only_class(kind))
    if SHARED:
        for name, value in values:
            _set(model, name, value)
    else:
        _set(model, "__dict__", dict(values))
    _set(model, "__pydantic_fields_set__", given)
    _set(model, "__pydantic_extra__", None)
    _set(model, "__pydantic_private__", None)
    return model


def read_only(value: V) -> V:
    """The same, read-only. What is read-only already, and what cannot be changed, is returned as it
    is: an object of the cache is never copied."""
    found: Any = value
    kind = found.__class__
    if kind in _classes:
        return value
    if (fields := fields_of(kind)) is not None:
        model = small_model(
            kind,
            zip(fields.names, map(read_only, fields.values(found)), strict=True),
            set(found.__pydantic_fields_set__),
        )
        _set(model, "__pydantic_extra__", read_only(found.__pydantic_extra__))
        return model  # type: ignore[no-any-return]  # of the same class
    if kind is list:
        return ReadOnlyList(map(read_only, found))  # type: ignore[return-value]  # a list
    if kind is tuple:
        return tuple(map(read_only, found))  # type: ignore[return-value]  # a tuple
    if kind is dict:
        return ReadOnlyDict(zip(found, map(read_only, found.values()), strict=True))  # type: ignore[return-value]  # a dict
    if attrs.has(kind):
        parts = {field.name: read_only(getattr(found, field.name)) for field in attrs.fields(kind)}
        if any(parts[name] is not getattr(found, name) for name in parts):
            return _rebuilt(kind, parts)  # type: ignore[no-any-return]  # of the same class
    return value


def ordinary(value: Any) -> Any:
    """A copy that shares nothing that can change with `value`: models, attrs classes, dicts, lists,
    tuples and sets of them. Every mapping becomes a dict, text a str.

    Anything else is taken to be immutable (numbers, dates) or meant to be shared (a stop signal, an
    exception) and returned as it is.
    """
    kind = value.__class__
    if kind is str or value is None:
        return value
    if fields_of(kind) is not None:
        if value.__pydantic_private__ is not None:
            return value.model_copy(deep=True)
        return _ReadOnly._ordinary(value, ordinary)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, list):
        return list(map(ordinary, value))
    if isinstance(value, tuple):
        return tuple(map(ordinary, value)) if kind is tuple else value
    if isinstance(value, Mapping):
        return {key: ordinary(each) for key, each in value.items()}
    if isinstance(value, set):
        return set(value)
    if isinstance(value, type) or not attrs.has(kind):
        return value
    return _rebuilt(kind, {field.name: ordinary(getattr(value, field.name)) for field in attrs.fields(kind)})


def _made(kind: type, values: dict[str, Any], given: set[str], extra: Any) -> Any:
    """An ordinary model, past its validation."""
    model: Any = _new(kind)
    _set(model, "__dict__", values)
    _set(model, "__pydantic_fields_set__", given)
    _set(model, "__pydantic_extra__", extra)
    _set(model, "__pydantic_private__", None)
    return model


def _rebuilt(kind: type, parts: Mapping[str, Any]) -> Any:
    """An object of an attrs class, past its validation."""
    new: Any = _new(kind)
    for name, part in parts.items():
        _set(new, name, part)
    return new
