"""What vendors get to hold instead of the controllers' objects (stage 5, cloud call).

The gateway lends the provider copies, one per cached object, shared between its calls, and compares
copy and original after each call. A changed copy is reported and replaced; the cache never notices.
A copy is found by the identity of its original and by nothing that the object says: what a client
of the webhook port sends has whatever UID the client likes.

Copying and comparing go field by field: `model_copy(deep=True)` and `==` would make a sweep over
nodes two to three times as dear. Of a load balancer's thousands of nodes a part is compared each
time, and all of them once the method has been caught. The same tuple of nodes goes with the calls
of all load balancers: its copies are found as a whole, and only the list around them is new for
each call. Calls that hold the same copies at once share the work of comparing them, and the next
tuple takes from the last one all but what has changed since."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import attrs
from attrs import define

from controllers.runtime.models import fields_of, small_model

_PLAIN = frozenset({str, type(None), bool, int, float, datetime})  # immutable, and most of what models hold
_CHECKED = 32
_CHECKED_AT_LEAST = 8  # where other calls compare the same copies at the same time


def private_copy(value: Any) -> Any:
    """A copy that shares nothing mutable with `value`: models, attrs classes, dicts, lists, tuples
    and sets of them. Every mapping becomes a dict, a set a set.

    Anything else is taken to be immutable (numbers, text, dates) or meant to be shared (a stop
    signal, an exception) and returned as it is.
    """
    kind = value.__class__
    if kind in _PLAIN:
        return value
    if (fields := fields_of(kind)) is not None:
        if value.__pydantic_extra__ is not None or value.__pydantic_private__ is not None:
            return value.model_copy(deep=True)
        copies = map(private_copy, fields.values(value))
        return small_model(kind, zip(fields.names, copies, strict=True), set(value.__pydantic_fields_set__))
    if kind is list or kind is tuple:
        return kind(map(private_copy, value))
    if isinstance(value, Mapping):
        return {key: private_copy(each) for key, each in value.items()}
    if isinstance(value, set):
        return set(value)
    if isinstance(value, type) or not attrs.has(kind):
        return value
    new = kind.__new__(kind)
    for field in attrs.fields(kind):
        object.__setattr__(new, field.name, private_copy(getattr(value, field.name)))
    return new


def same(one: Any, other: Any) -> bool:
    """Whether a copy still equals its original. Untouched parts are identical, so most of it is
    done without a call of `==`."""
    if one is other:
        return True
    kind = one.__class__
    if kind is not other.__class__:
        return False
    if (fields := fields_of(kind)) is not None:
        try:
            pairs = zip(fields.values(one), fields.values(other), strict=True)
        except AttributeError:  # a field was deleted
            return False
        return all(mine is each or same(mine, each) for mine, each in pairs)
    if isinstance(one, dict):
        return len(one) == len(other) and all(
            key in other and ((mine := other[key]) is each or same(each, mine)) for key, each in one.items()
        )
    if kind is list or kind is tuple:
        return len(one) == len(other) and all(map(same, one, other))
    if attrs.has(kind):
        return all(same(getattr(one, field.name), getattr(other, field.name)) for field in attrs.fields(kind))
    return bool(one == other)


@define(eq=False)
class _Lent:
    """Objects of the cache, and what they are lent as."""

    originals: Sequence[Any]
    copies: Sequence[Any]
    calls: int = 0
    """So many calls have them now."""
    places: dict[int, Any] = attrs.field(factory=dict)
    """The copies by the identity of their originals, which this keeps."""


class Loan(NamedTuple):
    """The arguments of one call as the provider sees them. Used by one thread."""

    args: tuple[Any, ...]
    """What to pass to the provider."""
    pairs: list[tuple[Any, Any]]
    """(original, copy) of everything that was copied, but for the members of `lists`."""
    lists: tuple[_Lent, ...] = ()
    """The lists that are lent again and again."""


class Snapshots:
    """Lends copies and takes them back. Thread-safe.

    Kept are the copies of the last long tuple, and of all else at most `limit` besides those of the
    longest list lent (which would otherwise be copied anew for each call): there the least recently
    used one goes first; one is also freed as soon as the original leaves the caches. Objects
    without UID and resourceVersion are in no cache and may change: they are copied anew for each
    call. `on_mutation(method, what)` is called for each object found changed.
    """

    def __init__(self, limit: int, on_mutation: Callable[[str, str], None]) -> None:
        self._limit = limit
        self._on_mutation = on_mutation
        # One lock for a whole loan: thirty calls that build load balancers come together, and need
        # the same copies. Lists may hold lists.
        self._lock = threading.RLock()
        # By the identity of the originals. Weak references end without the lock, so an entry counts
        # only while its reference still leads to the very object.
        self._kept: OrderedDict[int, tuple[weakref.ref[Any], Any]] = OrderedDict()
        self._longest = 0  # of the lists lent
        # By the identity of the originals: the long tuples of calls under way, and the last one. It
        # is lent to all load balancers, while calls that had to wait still bring the one before.
        # Its copies are not among those above: more Services than `limit` would push them out.
        self._lists: weakref.WeakValueDictionary[int, _Lent] = weakref.WeakValueDictionary()
        self._last: _Lent | None = None
        self._next = 0  # where the next part of a long list to be compared begins
        self._caught: set[str] = set()  # methods that changed an argument before

    def __len__(self) -> int:
        return len(self._kept)

    def lend(self, args: Sequence[Any]) -> Loan:
        """Copies of the arguments. Lists are fresh for each call, to be sorted and cut."""
        pairs: list[tuple[Any, Any]] = []
        lists: list[_Lent] = []
        with self._lock:
            return Loan(tuple([self._lend_arg(arg, pairs, lists) for arg in args]), pairs, tuple(lists))

    def settle(self, method: str, loan: Loan) -> None:
        """Compare what was lent with the originals; report and drop what the provider changed.

        A copy is shared by the calls under way, so a change is reported for each method that was
        running meanwhile.
        """
        single = _Lent([one for one, _ in loan.pairs], [lent for _, lent in loan.pairs], 1)
        for one in (single, *loan.lists):
            for number in self._part(method, one):
                if not same(one.originals[number], one.copies[number]):
                    self._changed(method, one.originals[number], one.copies[number])

    def _part(self, method: str, one: _Lent) -> Iterable[int]:
        """Which of these are compared as a call gives them back. Forty load balancers that get the
        same nodes would compare each node many times over."""
        count = len(one.originals)
        with self._lock:
            calls, one.calls = one.calls, one.calls - 1
            if count <= _CHECKED or method in self._caught:
                return range(count)
            start = self._next % count
            self._next = start + max(_CHECKED_AT_LEAST, _CHECKED // calls)
            return [number % count for number in range(start, self._next)]

    def _changed(self, method: str, original: Any, lent: Any) -> None:
        self._caught.add(method)
        with self._lock:
            self._lists.clear()
            kept = self._kept.get(id(original))
            if kept is not None and kept[1] is lent:
                self._kept.pop(id(original), None)
            if self._last is not None and self._last.places.get(id(original)) is lent:
                del self._last.places[id(original)]
        name = getattr(getattr(original, "metadata", None), "name", None)
        self._on_mutation(method, f"{type(original).__name__} {name}" if name else type(original).__name__)

    # ---- inside, with the lock held

    def _lend_arg(self, arg: Any, pairs: list[tuple[Any, Any]], lists: list[_Lent]) -> Any:
        if arg.__class__ is not tuple or len(arg) <= _CHECKED:  # a list may be another one the next time
            return self._lend_one(arg, pairs)
        found = self._lists.get(id(arg))  # it keeps its originals: no other tuple has that address
        if found is None:
            found = self._lend_tuple(arg)
        found.calls += 1
        lists.append(found)
        return list(found.copies)

    def _lend_tuple(self, arg: tuple[Any, ...]) -> _Lent:
        # Of thousands of nodes a few are new since the last time.
        known: dict[int, Any] = {} if self._last is None else self._last.places
        copies: list[Any] = list(map(known.get, map(id, arg)))
        new = [number for number, lent in enumerate(copies) if lent is None]
        if not all(_is_cached(arg[number]) for number in new):
            return _Lent(arg, self._lend_one(arg, []))
        for number in new:
            copies[number] = self._find(arg[number]) or private_copy(arg[number])
        found = _Lent(arg, copies, places=dict(zip(map(id, arg), copies, strict=True)))
        self._lists[id(arg)] = self._last = found
        return found

    def _lend_one(self, arg: Any, pairs: list[tuple[Any, Any]]) -> Any:
        if isinstance(arg, list | tuple):
            self._longest = max(self._longest, len(arg))
            return [self._lend_one(each, pairs) for each in arg]
        lent = self._find(arg)
        if lent is None:
            lent = private_copy(arg)
            if lent is arg:
                return arg
            if _is_cached(arg):
                self._keep(arg, lent)
        pairs.append((arg, lent))
        return lent

    def _find(self, arg: Any) -> Any:
        """The copy of this very object, or None: a new object may have a freed one's address."""
        place = id(arg)
        if self._last is not None and (shared := self._last.places.get(place)) is not None:
            return shared
        reference, lent = self._kept.get(place, (None, None))
        if reference is None or reference() is not arg:
            return None
        try:
            self._kept.move_to_end(place)
        except KeyError:
            return None
        return lent

    def _keep(self, arg: Any, lent: Any) -> None:
        place = id(arg)
        self._kept[place] = (weakref.ref(arg, lambda ref: self._forget(place, ref)), lent)
        self._kept.move_to_end(place)
        if len(self._kept) > self._limit + self._longest:
            self._kept.popitem(last=False)

    def _forget(self, place: int, reference: weakref.ref[Any]) -> None:
        # Called by the garbage collector, in whatever thread it runs, perhaps one that holds the
        # lock: no locking here.
        if self._kept.get(place, (None,))[0] is reference:
            self._kept.pop(place, None)


def _is_cached(arg: Any) -> bool:
    """Whether this is one revision of an object, which does not change."""
    metadata = getattr(arg, "metadata", None) if fields_of(arg.__class__) else None
    return bool(getattr(metadata, "uid", None) and getattr(metadata, "resource_version", None))
