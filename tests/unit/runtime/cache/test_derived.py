"""What is worked out of cached objects: once for each revision."""

from __future__ import annotations

from controllers.runtime.cache import Derived


class Thing:
    def __init__(self, name: str) -> None:
        self.name = name


def test_each_object_is_worked_out_once() -> None:
    made: list[str] = []

    def make(thing: Thing) -> str:
        made.append(thing.name)
        return thing.name.upper()

    derived = Derived(make)
    a, b = Thing("a"), Thing("b")
    assert list(derived.of([a, b])) == ["A", "B"]
    assert list(derived.of([a, b])) == ["A", "B"]
    assert list(derived.of([b, a])) == ["B", "A"], "in the order of the objects"
    assert made == ["a", "b"]
    newer = Thing("a")
    assert list(derived.of([newer, b])) == ["A", "B"]
    assert made == ["a", "b", "a"]


def test_what_is_gone_is_forgotten() -> None:
    derived: Derived[Thing, list[str]] = Derived(lambda thing: [thing.name])
    a = Thing("a")
    first = derived.of([a])[0]
    assert not derived.of([])
    assert derived.of([a])[0] is not first


def test_what_is_made_of_nothing_is_remembered_too() -> None:
    made: list[Thing] = []
    derived = Derived(made.append)
    a = Thing("a")
    assert list(derived.of([a])) == [None]
    assert list(derived.of([a, Thing("b")])) == [None, None]
    assert len(made) == 2
