"""What all controllers have in common: a client, handlers, workers, periodic actions, and one
life."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest
from attrs import define, field, frozen

from controllers.runtime.base import ControllerBase
from controllers.runtime.queue import Batching, FailureHandling, TerminalError
from tests.support.clock import FakeClock

BATCHING = Batching(max_batch=8, linger=0.0, fetchers=1)


@frozen
class Options:
    drain_timeout: float = 7.0


@define
class Informer:
    """Stands in for an informer, and for the registrations that it gives."""

    handlers: list[tuple[Any, Any, Any]] = field(factory=list)
    removed: int = 0
    broken: bool = False

    def add_handler(self, on_add: Any, on_update: Any, on_delete: Any) -> Informer:
        if self.broken:
            raise RuntimeError("the informer was stopped")
        self.handlers.append((on_add, on_update, on_delete))
        return self

    def has_synced(self) -> bool:
        return True

    def remove(self) -> None:
        self.removed += 1


class Triggers:
    """Has no on_add and no on_delete."""

    def on_update(self, old: Any, new: Any) -> None:
        """What it does is not tested here."""


class Toy(ControllerBase):
    """Works off two keys, one of which fails for good, and then stops itself."""

    NAME = "toy-controller"
    CLIENT = "toy-client"
    EVENT_SOURCE = "toy"

    def __init__(self, clients: Any, *informers: Informer) -> None:
        super().__init__(clients, Options(), None, FakeClock())
        self.did: list[str] = []
        self.stop, self.looked, self.failed = threading.Event(), threading.Event(), list[str]()
        self.triggers = Triggers()
        self.keys = self._queue("Toy", min_interval=0.0)
        for informer in informers:
            self._watch(cast(Any, informer), self.triggers)
        failures: FailureHandling[str] = FailureHandling(
            on_error=lambda key, error: self.failed.append(key), noun="toy"
        )
        self._add_worker(self.keys, self._reconcile, threads=1, failures=failures)
        self._add_batch_worker(
            self._queue("Batch"), lambda keys, deliver: None, lambda key, answer: None, batching=BATCHING, threads=1
        )
        self._every(60.0, "look", self.looked.set)

    def _begin(self) -> None:
        self.did.append("begin")
        for key in ("bad", "good"):
            self.keys.add(key)

    def _reconcile(self, key: str) -> None:
        self.did.append(key)
        if key == "bad":
            raise TerminalError("never")
        assert self.looked.wait(60)
        self.stop.set()


class Clients:
    def __init__(self) -> None:
        self.names: list[str] = []

    def rest(self, name: str) -> Any:
        self.names.append(name)
        return None


def test_a_controller_begins_works_looks_and_ends() -> None:
    clients, informer = Clients(), Informer()
    toy = Toy(clients, informer)
    assert clients.names == ["toy-client"]
    assert [(name, healthy) for name, healthy, _ in toy.health()] == [("Toy", True), ("Batch", True)]
    assert informer.handlers == [], "nothing is registered before it runs"
    before = toy.begun
    toy.run(cast(Any, toy.stop))
    assert (before, toy.begun) == (False, True)
    assert toy.did == ["begin", "bad", "good"]
    assert toy.failed == ["bad"]
    assert informer.handlers == [(None, toy.triggers.on_update, None)]
    assert informer.removed == 1


def test_handlers_that_were_added_are_removed_when_a_later_one_cannot_be() -> None:
    first = Informer()
    toy = Toy(Clients(), first, Informer(broken=True))
    with pytest.raises(RuntimeError, match="the informer was stopped"):
        toy.run(cast(Any, toy.stop))
    assert (toy.did, first.removed) == ([], 1)
