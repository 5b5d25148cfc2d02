"""What vendors get to hold instead of the controllers' objects (stage 5, cloud call).

Objects come from the caches (stage 2), shared by everyone and never to be changed. The gateway lends the provider
copies, one per object revision, shared between its calls, and compares copy and original after each call. A provider
that changed its copy is reported, and the copy replaced; the cache never notices.

Copying and comparing are written for the official client's models: a node takes about 18 us to copy (copy.deepcopy: 90)
and 16 us to compare (``==``: 120). So every call is checked; of the thousands of nodes that a load balancer's call may
carry, a part each time, and all of them once the method has been caught.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import attrs
from pydantic import BaseModel

__all__ = ["Loan", "Snapshots", "private_copy", "same"]

_new = object.__new__
_set = object.__setattr__
_PLAIN = frozenset({str, type(None), bool, int, float, datetime})
"""Immutable, and most of what models hold: told apart first, by class."""
_CHECKED = 32


def private_copy(value: Any) -> Any:
    """A copy that shares nothing mutable with `value`: models, attrs classes, dicts, lists, tuples and sets of them.

    Anything else is taken to be immutable (numbers, text, dates) or meant to be shared (a stop signal) and returned as
    it is. Every mapping becomes a dict and every set a set.
    """
    kind = value.__class__
    if kind in _PLAIN:
        return value
    if isinstance(value, BaseModel):
        new = _new(kind)
        # What BaseModel.model_copy does, without its detours.
        fields = value.__dict__.copy()
        for k, v in fields.items():
            if v.__class__ not in _PLAIN:
                fields[k] = private_copy(v)
        _set(new, "__dict__", fields)
        _set(new, "__pydantic_fields_set__", value.__pydantic_fields_set__.copy())
        _set(new, "__pydantic_extra__", private_copy(value.__pydantic_extra__))
        _set(new, "__pydantic_private__", private_copy(value.__pydantic_private__))
        return new
    if kind is list:
        return [v if v.__class__ is str else private_copy(v) for v in value]
    if isinstance(value, Mapping):
        return {k: v if v.__class__ is str else private_copy(v) for k, v in value.items()}
    if kind is tuple:
        return tuple(private_copy(v) for v in value)
    if isinstance(value, set):
        return set(value)
    if isinstance(value, type):
        return value
    if attrs.has(kind):
        new = kind.__new__(kind)
        for field in attrs.fields(kind):
            _set(new, field.name, private_copy(getattr(value, field.name)))
        return new
    return value


def same(a: Any, b: Any) -> bool:
    """Whether a copy still equals its original. Fast because untouched parts are identical, not just equal."""
    if a is b:
        return True
    kind = a.__class__
    if kind is not b.__class__:
        return False
    if isinstance(a, BaseModel):
        return _same_items(a.__dict__, b.__dict__) and same(a.__pydantic_extra__, b.__pydantic_extra__)
    if isinstance(a, dict):
        return _same_items(a, b)
    if kind is list or kind is tuple:
        return len(a) == len(b) and all(x is y or same(x, y) for x, y in zip(a, b, strict=True))
    if attrs.has(kind):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in attrs.fields(kind))
    return bool(a == b)


_ABSENT = object()


def _same_items(a: Mapping[Any, Any], b: Mapping[Any, Any]) -> bool:
    if len(a) != len(b):
        return False
    for key, value in a.items():
        other = b.get(key, _ABSENT)
        if other is not value and not same(value, other):
            return False
    return True


class Loan:
    """The arguments of one call as the provider sees them. Used by one thread."""

    __slots__ = ("args", "pairs")

    def __init__(self, args: tuple[Any, ...], pairs: list[tuple[Any, Any]]) -> None:
        self.args = args
        """What to pass to the provider."""
        self.pairs = pairs
        """(original, copy) of everything that was copied."""


class _Kept:
    """The copy of one object revision, for as long as someone else holds the original."""

    __slots__ = ("copy", "original", "revision")

    def __init__(self, revision: str, original: weakref.ref[Any], copy: Any) -> None:
        self.revision = revision
        self.original = original
        self.copy = copy


class Snapshots:
    """Lends copies and takes them back. Thread-safe.

    At most `limit` copies are kept besides those of the longest list lent (which would otherwise be copied anew for
    each call), the least recently used one goes first; one is also freed as soon as a newer revision of its object is
    lent, or the original leaves the caches. Objects without UID and resourceVersion are copied anew for each call.
    `on_mutation(method, what)` is called for each object found changed.
    """

    def __init__(self, limit: int, on_mutation: Callable[[str, str], None]) -> None:
        self._limit = limit
        self._on_mutation = on_mutation
        self._lock = threading.Lock()
        self._list_lock = threading.RLock()  # lists may hold lists
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._longest = 0  # of the lists lent
        self._next = 0  # where the next part of a long list to be compared begins
        self._lent: dict[int, _Kept] = {}  # of the last list, by the identity of the originals
        self._caught: set[str] = set()  # methods that changed an argument before

    def __len__(self) -> int:
        return len(self._kept)

    def lend(self, args: Sequence[Any]) -> Loan:
        """Copies of the arguments. Lists are fresh for each call, so a provider may sort and cut its own."""
        pairs: list[tuple[Any, Any]] = []
        return Loan(tuple([self._lend_one(arg, pairs) for arg in args]), pairs)

    def settle(self, method: str, loan: Loan) -> None:
        """Compare what was lent with the originals; report and drop what the provider changed.

        A copy is shared by the calls under way, so a change is reported for each method that was running meanwhile.
        """
        pairs = loan.pairs
        if len(pairs) > _CHECKED and method not in self._caught:
            start = self._next % len(pairs)
            self._next = start + _CHECKED
            pairs = [*pairs, *pairs[:_CHECKED]][start : start + _CHECKED]
        for original, copy in pairs:
            if same(original, copy):
                continue
            self._caught.add(method)
            metadata = getattr(original, "metadata", None)
            uid = getattr(metadata, "uid", None) or ""
            with self._lock:
                kept = self._kept.get(uid)
                if kept is not None and kept.copy is copy:
                    self._kept.pop(uid, None)
            with self._list_lock:  # after a list that is being lent, which may hold the copy
                self._lent = {}
            name = getattr(metadata, "name", None)
            self._on_mutation(method, f"{type(original).__name__} {name}" if name else type(original).__name__)

    def _lend_one(self, arg: Any, pairs: list[tuple[Any, Any]]) -> Any:
        kind = arg.__class__
        if kind is str or arg is None or kind is bytes:
            return arg
        if kind is list or kind is tuple:
            return self._lend_list(arg, pairs)
        with self._lock:
            found = self._find(arg)
        return self._lend_copy(arg, found, pairs)

    def _lend_list(self, items: Sequence[Any], pairs: list[tuple[Any, Any]]) -> list[Any]:
        """Copies of thousands of nodes, of which few have changed since the last call.

        One thread at a time: thirty calls that build load balancers come together, and need the same copies.
        """
        copies = []
        with self._list_lock:
            self._longest = max(self._longest, len(items))
            known, lent = self._lent, {}
            for item in items:
                kept = known.get(id(item))
                if kept is not None and kept.original() is item:
                    copy = kept.copy
                    pairs.append((item, copy))
                else:
                    copy = self._lend_one(item, pairs)
                    kept = self._kept.get(getattr(getattr(item, "metadata", None), "uid", None) or "")
                if kept is not None and kept.copy is copy:
                    lent[id(item)] = kept
                copies.append(copy)
            if len(items) > 1:
                self._lent = lent
        return copies

    def _find(self, arg: Any) -> tuple[Any, Any] | None:
        """(original, copy), where a copy of this revision is kept. With the lock held."""
        metadata: Any = getattr(arg, "metadata", None)
        uid: str = getattr(metadata, "uid", None) or ""
        kept = self._kept.get(uid)
        if kept is None or kept.revision != metadata.resource_version:
            return None
        original = kept.original()
        if original is None:
            return None
        self._kept.move_to_end(uid)
        return original, kept.copy

    def _lend_copy(self, arg: Any, found: tuple[Any, Any] | None, pairs: list[tuple[Any, Any]]) -> Any:
        if found is None:
            copy = private_copy(arg)  # without the lock; two threads may both do it, and the later copy is kept
            if copy is arg:
                return arg
            found = arg, copy
            if isinstance(arg, BaseModel):
                self._keep(arg, copy)
        pairs.append(found)
        return found[1]

    def _keep(self, arg: Any, copy: Any) -> None:
        metadata = getattr(arg, "metadata", None)
        uid, revision = getattr(metadata, "uid", None), getattr(metadata, "resource_version", None)
        if not uid or not revision:
            return
        made = _Kept(revision, weakref.ref(arg, lambda ref: self._forget(uid, ref)), copy)
        with self._lock:
            self._kept[uid] = made
            self._kept.move_to_end(uid)
            if len(self._kept) > self._limit + self._longest:
                self._kept.popitem(last=False)

    def _forget(self, uid: str, original: weakref.ref[Any]) -> None:
        # Called by the garbage collector, in whatever thread it runs, perhaps one that holds the lock: no locking here.
        kept = self._kept.get(uid)
        if kept is not None and kept.original is original:
            self._kept.pop(uid, None)
