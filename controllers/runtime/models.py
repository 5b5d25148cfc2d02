"""Small models: the official client's objects without a dict of their own. No I/O.

pydantic gives each model a dict. One that is built attribute by attribute shares its keys with all
others of its class, and has no dict before somebody asks for `__dict__`: a trimmed node takes
2.8 KB instead of 4.1. So fields are read here without asking. Models look and compare as before.

CPython learns the shared keys from the first 30 objects of a class. Where a program made 30 in
other ways before, they are not shared, and that is all. From 3.13 on only classes without slots
share keys in less room than a dict takes, and pydantic's have some: there each model keeps one."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Final, NamedTuple

SHARED: Final = sys.version_info < (3, 13)
"""Whether models share the names of their fields."""

_new, _set = object.__new__, object.__setattr__  # past pydantic's __setattr__, which would validate


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


def small_model(kind: type, values: Iterable[tuple[str, Any]], given: set[str]) -> Any:
    """A model of that class with all its fields, in their order. `given` are those that were given;
    the set is shared. Nothing is validated."""
    model: Any = _new(kind)
    if SHARED:
        for name, value in values:
            _set(model, name, value)
    else:
        _set(model, "__dict__", dict(values))
    _set(model, "__pydantic_fields_set__", given)
    _set(model, "__pydantic_extra__", None)
    _set(model, "__pydantic_private__", None)
    return model
