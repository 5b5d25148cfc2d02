"""The condition NetworkUnavailable, and a second writer beside ours, on a clock that the test
moves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress

import pytest

from cloudprovider import CloudProviderError
from controllers.route.condition import condition_of, network_condition
from controllers.route.controller import RouteTriggers
from controllers.route.planning import LIST, LISTING
from controllers.runtime.api import NotFound, ObjectNotFound, ServerError
from tests.support.controllers import refuse
from tests.unit.route.objects import CREATED, MISSING, Bench, node, raw_node, route

PLUGIN = ("False", "CiliumIsUp")
NOW = "2026-01-02T03:04:05Z"


@pytest.mark.parametrize(("created", "wanted"), [(True, CREATED), (False, MISSING)])
def test_the_condition_is_written_only_when_its_status_changes(created: bool, wanted: tuple[str, str]) -> None:
    assert not network_condition(node("n", condition=wanted), created, NOW)
    assert not network_condition(node("n", condition=(wanted[0], "Other")), created, NOW)
    for before in (None, MISSING if created else CREATED, ("Unknown", wanted[1])):
        patch = network_condition(node("n", condition=before), created, NOW)
        (condition,) = patch.body["status"]["conditions"]
        assert (condition["type"], condition["status"], condition["reason"]) == ("NetworkUnavailable", *wanted)
        assert patch.subresource == "status"
        assert patch.content_type == "application/strategic-merge-patch+json"
        assert condition.get("lastTransitionTime") == NOW


class _Second:
    """A node on the API server, our writes to it, and another agent that answers each of them, for
    ten minutes."""

    def __init__(self, bench: Bench, other: Callable[[tuple[str, str] | None], tuple[str, str] | None]) -> None:
        self.bench = bench
        self.other = other
        self.condition: tuple[str, str] | None = None
        self.triggers = RouteTriggers(bench.queue)
        self.writes = self.answers = 0

    def _show(self, condition: tuple[str, str] | None) -> None:
        """The node's new version reaches the cache, and its event the triggers."""
        before = self.bench.lister.objects["n1"]
        self.condition = condition
        self.bench.server.nodes["n1"] = raw_node("n1", "10.244.1.0/24", condition=condition)
        after = self.bench.lister.objects["n1"] = node("n1", "10.244.1.0/24", condition=condition)
        self.triggers.on_update(before, after)

    def run(self, minutes: int = 10) -> None:
        bench = self.bench
        bench.queue.add(LIST, LISTING)
        bench.queue.add("n1")
        for _ in range(minutes * 60):
            while bench.queue:
                try:
                    bench.work()
                except CloudProviderError:
                    bench.queue.add_rate_limited("n1")
                written = bench.conditions()
                if len(written) > self.writes:
                    self.writes = len(written)
                    self._show(written[-1][1:])
            answer = self.other(self.condition)
            if answer != self.condition:
                self.answers += 1
                self._show(answer)
            bench.clock.advance(1)


def _bench(*, failing: bool = False) -> Bench:
    bench = Bench() if failing else Bench(route("10.244.1.0/24", "n1"))
    bench.add("n1", "10.244.1.0/24")
    if failing:
        bench.cloud.fail["create"] = CloudProviderError("quota")
    return bench


def test_another_agents_false_is_as_good_as_ours() -> None:
    """Such as Calico's CalicoIsUp and Cilium's CiliumIsUp."""
    bench = _bench()
    second = _Second(bench, lambda _: PLUGIN)
    second.run()
    assert second.writes <= 1  # before the agent came
    assert second.condition == PLUGIN


@pytest.mark.parametrize(
    "other",
    [
        lambda _: ("True", "AgentIsDown"),
        lambda _: None,
        lambda now: ("True", "AgentIsDown") if now == CREATED else CREATED,
    ],
    ids=["says-the-opposite", "erases-it", "turns-it-round"],
)
def test_two_writers_do_not_fight(other: Callable[[tuple[str, str] | None], tuple[str, str] | None]) -> None:
    second = _Second(_bench(), other)
    second.run()
    assert 1 <= second.writes <= 3


def test_nor_do_they_where_the_route_is_missing() -> None:
    second = _Second(_bench(failing=True), lambda _: PLUGIN)
    second.run()
    assert 1 <= second.writes <= 3


def test_one_change_by_another_is_put_right_at_once() -> None:
    bench = _bench()
    changes = iter([("True", "ByMistake")])
    second = _Second(bench, lambda now: next(changes, now))
    second.run(1)
    assert second.condition == CREATED
    assert second.writes == 2


def test_our_own_change_is_written_when_it_happens() -> None:
    bench = _bench(failing=True)
    second = _Second(bench, lambda now: now)
    second.run(1)
    assert second.condition == MISSING
    bench.cloud.fail.clear()
    second.run(2)
    assert second.condition == CREATED
    assert second.writes == 2


def test_our_own_change_does_not_wait_for_a_fight_to_end() -> None:
    bench = _bench(failing=True)
    _Second(bench, lambda _: None).run(1)  # somebody erases the condition each time
    assert bench.conditions() == [("n1", *MISSING)] * 2
    bench.cloud.fail.clear()
    bench.work("n1")
    assert bench.conditions()[2:] == [("n1", *CREATED)]


def test_a_recreated_node_is_told_at_once() -> None:
    bench = _bench()
    bench.queue.add(LIST, LISTING)
    bench.work()
    for uid in ("second", "third", "fourth"):
        bench.add("n1", "10.244.1.0/24", uid=uid)
        bench.work("n1")
    assert bench.conditions() == [("n1", *CREATED)] * 4


@pytest.mark.parametrize("knows_it", [False, True], ids=["a proxy's", "the API server's"])
def test_a_404_ends_the_work_on_a_node_only_if_it_is_about_the_node(knows_it: bool) -> None:
    bench = _bench()
    answer = ObjectNotFound if knows_it else NotFound
    bench.server.before = refuse(answer("not found", status=404), times=1)
    with nullcontext() if knows_it else pytest.raises(NotFound):
        bench.start()
    bench.work("n1")
    assert bench.conditions() == [("n1", *CREATED)] * 2


def test_condition_of_a_node_without_one() -> None:
    assert condition_of(node("n")) is None


# ---- a cache that is behind our own write


class _Behind:
    """n1 over a cache that the test brings up to date; the API server has what was written."""

    def __init__(self, *, failing: bool = False) -> None:
        self.bench = _bench(failing=failing)
        self.bench.queue.add(LIST, LISTING)
        self.written = 0

    def work(self) -> None:
        self.bench.queue.add("n1")
        while self.bench.queue:
            with suppress(CloudProviderError, ServerError):
                self.bench.work()
        for _, *condition in self.bench.conditions()[self.written :]:
            self.server((condition[0], condition[1]))
        self.written = len(self.bench.conditions())

    def server(self, condition: tuple[str, str] | None, uid: str = "") -> None:
        self.bench.server.nodes["n1"] = raw_node("n1", "10.244.1.0/24", condition=condition, uid=uid)

    def cache(self, condition: tuple[str, str] | None) -> None:
        self.bench.lister.objects["n1"] = node("n1", "10.244.1.0/24", condition=condition)


@pytest.mark.row("R9")
def test_our_own_write_counts_until_the_cache_has_it() -> None:
    behind = _Behind(failing=True)
    behind.cache(CREATED)
    behind.server(CREATED)
    behind.work()
    assert behind.bench.conditions() == [("n1", *MISSING)]
    behind.bench.cloud.fail.clear()
    behind.work()  # the cache still has CREATED
    assert behind.bench.conditions() == [("n1", *MISSING), ("n1", *CREATED)]
    behind.work()
    assert len(behind.bench.conditions()) == 2
    behind.cache(MISSING)  # it catches up, one version after the other
    behind.work()
    assert len(behind.bench.conditions()) == 2
    assert behind.bench.server.nodes["n1"]["status"]["conditions"][1]["reason"] == "RouteCreated"


@pytest.mark.row("R9")
def test_what_somebody_else_wrote_since_is_not_written_again() -> None:
    behind = _Behind(failing=True)
    behind.work()
    assert behind.bench.conditions() == [("n1", *MISSING)]
    behind.bench.cloud.fail.clear()
    behind.server(PLUGIN)
    behind.cache(PLUGIN)
    behind.work()
    behind.work()
    assert behind.bench.conditions() == [("n1", *MISSING)]
    reads = len(behind.bench.server.gets)
    behind.work()
    assert len(behind.bench.server.gets) == reads  # the other's word has taken the place of ours


@pytest.mark.row("R9")
def test_a_write_whose_answer_was_lost_counts_as_well() -> None:
    behind = _Behind(failing=True)
    behind.cache(CREATED)
    behind.server(CREATED)
    behind.bench.server.after = refuse(ServerError("the answer is lost", status=500), times=1)
    behind.work()
    assert behind.bench.conditions() == [("n1", *MISSING)]
    behind.bench.cloud.fail.clear()
    behind.work()
    assert behind.bench.conditions() == [("n1", *MISSING), ("n1", *CREATED)]


@pytest.mark.row("R9")
def test_a_write_that_failed_is_repeated_at_once_and_is_no_fight() -> None:
    behind = _Behind()
    behind.bench.server.before = refuse(ServerError("down", status=500), times=2)
    for _ in range(3):
        behind.server(None)  # none of them was applied
        behind.work()
    assert behind.bench.conditions() == [("n1", *CREATED)] * 3
    behind.cache(("True", "ByMistake"))
    behind.server(("True", "ByMistake"))
    behind.work()
    assert len(behind.bench.conditions()) == 4


@pytest.mark.row("R9")
def test_a_node_recreated_meanwhile_is_left_to_its_own_event() -> None:
    behind = _Behind(failing=True)
    behind.cache(CREATED)
    behind.work()
    behind.bench.cloud.fail.clear()
    behind.server(None, uid="another")
    behind.work()
    del behind.bench.server.nodes["n1"]
    behind.work()
    assert behind.bench.conditions() == [("n1", *MISSING)]
