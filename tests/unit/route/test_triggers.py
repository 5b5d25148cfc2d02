"""Which events ask for work."""

from __future__ import annotations

import pytest

from controllers.route.controller import RouteTriggers
from tests.unit.route.objects import CREATED, MISSING, Bench, node


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_new_and_deleted_nodes_do(bench: Bench) -> None:
    triggers = RouteTriggers(bench.queue)
    triggers.on_add(node("a"), True)
    triggers.on_delete(node("b"))
    assert bench.waiting() == ["a", "b"]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (node("n"), node("n"), []),
        (node("n"), node("n", "10.244.1.0/24"), ["n"]),
        (node("n", uid="1"), node("n", uid="2"), ["n"]),
        (node("n", addresses=["10.0.0.1"]), node("n", addresses=["10.0.0.2"]), ["n"]),
        (node("n", addresses=["10.0.0.1", "10.0.0.2"]), node("n", addresses=["10.0.0.2", "10.0.0.1"]), []),
        (node("n", condition=MISSING), node("n", condition=CREATED), []),
        (node("n"), node("n", condition=MISSING), []),
        (node("n", condition=CREATED), node("n"), ["n"]),
        (node("n", condition=CREATED), node("n", condition=("True", "Kubelet")), ["n"]),
        (node("n"), node("n", ready="Unknown"), []),
        (node("n", ready="Unknown"), node("n"), ["n"]),
        (node("n", ready=""), node("n"), []),
    ],
)
def test_updates_do_when_routes_may_depend_on_them(bench: Bench, old: object, new: object, expected: list[str]) -> None:
    RouteTriggers(bench.queue).on_update(old, new)  # type: ignore[arg-type]  # nodes
    assert bench.waiting() == expected
