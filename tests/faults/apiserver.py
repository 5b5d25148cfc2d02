"""Faults of the API server, F1 to F10: most of them are networks of the proxy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.faults.field import Field
from tests.faults.networks import (
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


@contextmanager
def too_many_requests(field: Field) -> Iterator[None]:
    with field.network(Refusing(429, headers={"Retry-After": "1"})) as bad:
        yield
    _paced(field, bad)


@contextmanager
def server_errors(field: Field) -> Iterator[None]:
    with field.network(Refusing(503, 500)) as bad:
        field.proxy.cut()
        yield
    _paced(field, bad)


def _paced(field: Field, bad: Refusing) -> None:
    """No object is asked for or written all the time; Events are many objects of one path."""
    field.check(bad.refused > 0, "no request met the fault")
    paths = {path: count for path, count in bad.paths.items() if not path.endswith("/events")}
    busiest = max(paths, key=lambda path: paths[path], default="")
    field.notes.append(f"{bad.refused / field.seconds:.1f} requests a second meanwhile")
    field.check(
        field.kind == "go" or not paths or paths[busiest] <= BUSIEST * field.seconds + 3,
        f"{paths.get(busiest)} times in {field.seconds:.0f} s: {busiest}",
    )


@contextmanager
def lost_answers(field: Field) -> Iterator[None]:
    with field.network(LosingAnswers(about("nodes", "services"))) as bad:
        yield
    field.notes.append(f"{bad.lost} answers lost")
    field.check(bad.lost > 0, "no answer was lost")


@contextmanager
def expired_watches(field: Field) -> Iterator[None]:
    with field.network(Expiring()) as bad:
        yield
    field.notes.append(f"{bad.ended} watches ended")
    field.check(bad.ended > 0, "no watch was ended")


@contextmanager
def cut_lines(field: Field) -> Iterator[None]:
    with field.network(Cutting()) as bad:
        yield
    field.notes.append(f"{bad.cut} cuts")
    field.check(bad.cut > 0, "nothing was cut")


@contextmanager
def half_open(field: Field) -> Iterator[None]:
    field.proxy.swallow()
    yield


@contextmanager
def stale(field: Field) -> Iterator[None]:
    with field.network(Holding()) as bad:
        yield
        bad.release()
    field.notes.append(f"{bad.held} watches held back")
    field.check(bad.held > 0, "no event was held back")


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
    with field.network(EmptyLists("nodes", "services")) as bad:
        field.proxy.cut()
        yield
    field.proxy.cut()
    field.notes.append(f"{bad.emptied} empty lists")
    field.check(bad.emptied > 0, "no list was empty")


@contextmanager
def conflicts(field: Field) -> Iterator[None]:
    with field.network(Refusing(409, matches=about("nodes", "services"))) as bad:
        yield
    field.notes.append(f"{bad.refused} conflicts")
    field.check(bad.refused > 0, "no write met the fault")


@contextmanager
def replayed_events(field: Field) -> Iterator[None]:
    with field.network(Replaying()) as bad:
        yield
    field.notes.append(f"{bad.repeated} events repeated")
    field.check(bad.repeated > 0, "no event was repeated")
