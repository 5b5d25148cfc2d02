"""The rounds of a teardown, with a clock of the test's own: what is tried again, in which order,
and when it ends."""

from __future__ import annotations

import pytest
from attrs import evolve

from cloudprovider import CloudProviderError, LoadBalancerKept, NotImplementedByProvider, Pending, RetryError
from cloudprovider.threads import NoThreadLeft, ThreadPool
from controllers.teardown.deleting import Deletion
from controllers.teardown.items import THEN, Inventory, Item
from controllers.teardown.run import after, before
from tests.support.clock import FakeClock


class Desk:
    """A cloud of items, by name; `answers` are what the next deletions of one raise."""

    def __init__(self, *names: str, later: str = "") -> None:
        self.clock = FakeClock()
        self.items = {name: self._item(name, THEN if name == later else 0) for name in names}
        self.answers: dict[str, list[Exception]] = {}
        self.lags: dict[str, int] = {}
        """So many lists still have it after its deletion."""
        self.lists: list[Exception | None] = []
        self.asked: list[str] = []
        self.waited: list[float] = []
        self.stopped = False
        self.deletion = Deletion(self.find, self.clock, self)

    def _item(self, name: str, stage: int) -> Item:
        return Item("load balancer", name, f"Service default/{name}", stage=stage, delete=lambda: self.delete(name))

    def delete(self, name: str) -> None:
        self.asked.append(name)
        if answers := self.answers.get(name):
            raise answers.pop(0)
        if not self.lags.get(name):
            self.items.pop(name, None)

    def find(self) -> Inventory:
        if self.lists and (error := self.lists.pop(0)) is not None:
            raise error
        found = Inventory(tuple(self.items.values()), ())
        for name in [name for name, left in self.lags.items() if name in self.asked and left]:
            self.lags[name] -= 1
        return found

    # the stop signal, whose waits pass the time

    def is_set(self) -> bool:
        return self.stopped

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waited.append(timeout)
        self.clock.advance(timeout)
        return self.stopped

    def run(self, seconds: float = 100.0) -> Inventory:
        return self.deletion.run(self.deletion.first(), seconds)


def test_all_is_deleted_in_one_round() -> None:
    desk = Desk("a", "b", "c")
    assert desk.run().items == ()
    assert sorted(desk.asked) == ["a", "b", "c"]
    assert desk.waited == []


def test_the_clouds_own_delay_is_kept_and_others_back_off() -> None:
    desk = Desk("a", "b")
    desk.answers["a"] = [Pending("deleting", 7.0), RetryError("in use", 3.0)]
    assert desk.run().items == ()
    assert desk.asked.count("a") == 3
    assert sum(desk.waited) == 10.0
    desk = Desk("a")
    desk.answers["a"] = [CloudProviderError("no")] * 4
    assert desk.run().items == ()
    assert desk.waited == [1.0, 2.0, 4.0, 8.0]


def test_what_comes_later_waits_for_what_uses_it() -> None:
    desk = Desk("group", "lb", later="group")
    desk.answers["lb"] = [Pending("deleting", 5.0)]
    assert desk.run().items == ()
    assert desk.asked == ["lb", "lb", "group"]


def test_what_can_never_go_holds_up_nothing_and_is_left() -> None:
    desk = Desk("kept", "unable", "group", later="group")
    desk.answers |= {"kept": [LoadBalancerKept("it is protected")], "unable": [NotImplementedByProvider("cannot")]}
    left = desk.run()
    assert [one.name for one in left.left] == ["kept", "unable"]
    assert desk.asked[-1] == "group"
    text = after(left, desk.deletion.trials)
    assert "not deleted: it is protected" in text
    assert "not deleted: cannot" in text


def test_the_time_bounds_all_of_it() -> None:
    desk = Desk("a")
    desk.answers["a"] = [Pending("deleting", 6.0) for _ in range(99)]
    left = desk.run(20.0)
    assert [one.name for one in left.items] == ["a"]
    assert sum(desk.waited) <= 20.0
    assert "not deleted: deleting" in after(left, desk.deletion.trials)


def test_what_is_listed_still_is_deleted_again() -> None:
    desk = Desk("a")
    desk.lags["a"] = 2
    desk.run()
    assert desk.asked == ["a", "a", "a"]
    desk = Desk("a")
    desk.lags["a"] = 99
    assert "deleted, and the cloud still lists it" in after(desk.run(9.0), desk.deletion.trials)


def test_a_list_that_fails_is_asked_again_and_proves_nothing() -> None:
    desk = Desk("a")
    desk.lists = [CloudProviderError("503"), CloudProviderError("503"), None, CloudProviderError("503")]
    assert desk.run().items == ()
    assert desk.asked == ["a"], "the failed list after the deletion was repeated, not the deletion"
    desk.lists = [CloudProviderError("401") for _ in range(9)]
    with pytest.raises(CloudProviderError, match="401"):
        desk.run()


def test_a_signal_ends_it_after_the_calls_under_way() -> None:
    desk = Desk("a")
    desk.answers["a"] = [Pending("deleting", 5.0)]
    desk.deletion.first()
    desk.stopped = True
    assert [one.name for one in desk.run().items] == ["a"]
    assert desk.asked == []


def test_what_stays_is_shown_and_never_deleted() -> None:
    desk = Desk("a", "kept")
    desk.items["kept"] = evolve(desk.items["kept"], stays="kept on purpose", wanted=True)
    shown = before(desk.deletion.first())
    assert shown.splitlines() == [
        "KIND           NAME  FOR                   WHAT HAPPENS",
        "load balancer  a     Service default/a     is deleted",
        "load balancer  kept  Service default/kept  stays: kept on purpose",
    ]
    left = desk.run()
    assert [one.name for one in left.items] == ["kept"]
    assert left.left == ()
    assert desk.asked == ["a"]


def test_without_threads_it_waits_before_the_next_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine at its limit of processes: the cloud is not asked in a loop meanwhile."""
    desk = Desk("a", "b")

    def none(*_: object) -> None:
        raise NoThreadLeft("no thread can be started")

    monkeypatch.setattr(ThreadPool, "run", none)
    left = desk.run(seconds=10.0)
    assert len(left.items) == 2
    assert desk.waited == [1.0, 2.0, 4.0]
    assert "not deleted: no thread can be started" in after(left, desk.deletion.trials)
