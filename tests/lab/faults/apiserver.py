"""Faults of the API server, F1 to F10: most of them are networks of the proxy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from tests.lab.faults.field import Field, Stand
from tests.lab.faults.networks import (
    Bad,
    Cutting,
    EmptyLists,
    Expiring,
    Holding,
    LosingAnswers,
    Refusing,
    Replaying,
    about,
)
from tests.support.failover.stage import GO_RIGHTS
from tests.support.rights import BINDINGS

BUSIEST: Final = 1.5
"""Requests a second for one object, or one list, to a server that does nothing: the back-offs
hold."""


def standing(make: Callable[[], Bad], what: str) -> Stand:
    """The fault in which the network is this one."""
    return lambda field: field.network(make(), what)


lost_answers = standing(lambda: LosingAnswers(about("nodes", "services")), "answers lost")
expired_watches = standing(Expiring, "watches ended")
cut_lines = standing(Cutting, "cuts")
conflicts = standing(lambda: Refusing(409, matches=about("nodes", "services")), "conflicts")
replayed_events = standing(Replaying, "events repeated")


@contextmanager
def too_many_requests(field: Field) -> Iterator[None]:
    with field.network(Refusing(429, headers={"Retry-After": "1"}), "requests refused") as bad:
        yield
    _paced(field, bad)


@contextmanager
def server_errors(field: Field) -> Iterator[None]:
    with field.network(Refusing(503, 500), "requests refused") as bad:
        field.proxy.cut()
        yield
    _paced(field, bad)


def _paced(field: Field, bad: Refusing) -> None:
    """No object is asked for or written all the time; Events are many objects of one path."""
    paths = {path: count for path, count in bad.paths.items() if not path.endswith("/events")}
    busiest = max(paths, key=lambda path: paths[path], default="")
    field.check(
        field.kind == "go" or not paths or paths[busiest] <= BUSIEST * field.seconds + 3,
        f"{paths.get(busiest)} times in {field.seconds:.0f} s: {busiest}",
    )


@contextmanager
def half_open(field: Field) -> Iterator[None]:
    field.proxy.swallow()
    yield


@contextmanager
def stale(field: Field) -> Iterator[None]:
    with field.network(Holding(), "watches held back") as bad:
        yield
        bad.release()


@contextmanager
def forbidden(field: Field) -> Iterator[None]:
    """The bindings are deleted on the server itself."""
    ours = [
        one for one in field.api.items(BINDINGS) if "cloud-controller-manager" in one["metadata"]["name"]
    ]  # Go's too
    for one in ours:
        field.api.delete(f"{BINDINGS}/{one['metadata']['name']}")
    field.proxy.cut()
    yield
    for one in ours:
        fresh = {key: one[key] for key in ("roleRef", "subjects")}
        field.api.create(BINDINGS, {**GO_RIGHTS, "metadata": {"name": one["metadata"]["name"]}, **fresh})


@contextmanager
def empty_lists(field: Field) -> Iterator[None]:
    with field.network(EmptyLists("nodes", "services"), "empty lists"):
        field.proxy.cut()
        yield
    field.proxy.cut()
