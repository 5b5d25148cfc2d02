"""What is worked out of each cached object once for each of its revisions (between stages 2 and 4).

Sweeps and comparisons look at all objects again and again, and few have changed since the last
time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Derived(Generic[T, R]):
    """Remembers what `make` returned for each object of the last call. For one thread at a time.

    Objects are told apart by their identity: a cache never changes one, it replaces it.
    """

    def __init__(self, make: Callable[[T], R]) -> None:
        self._make = make
        self._places: list[int] = []
        self._known: dict[int, tuple[T, R]] = {}  # by the object's address; the object is kept alive here
        self._made: list[R] = []

    def of(self, objects: Sequence[T]) -> Sequence[R]:
        """What is made of each of these objects, in their order; others are forgotten."""
        places = list(map(id, objects))
        if places != self._places:
            known, make = self._known, self._make
            found = [known.get(place) or (one, make(one)) for place, one in zip(places, objects, strict=True)]
            self._places, self._known = places, dict(zip(places, found, strict=True))
            self._made = [made for _, made in found]
        return self._made
