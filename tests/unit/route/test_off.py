"""Conditions of a former run keep no node unusable where the route controller is off: row R12."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest

from cloudprovider.testing.fake import FakeCloud, FakeConfig
from controllers.route.condition import RoutesOff
from controllers.route.registration import ENTRY, RouteOptions
from controllers.runtime.cache import NODES
from controllers.runtime.metrics import Metrics
from tests.support.clock import FakeClock
from tests.support.controllers import Lister, Server, clone, take_all
from tests.unit.route.objects import CREATED, MISSING, raw_node
from tests.unit.route.test_registration import context

pytestmark = pytest.mark.row("R12")


class Desk:
    """The controller without threads; `see` brings the API server's nodes into its cache."""

    provider_id_prefixes = ("fake://",)

    begun = False

    def __init__(self, removes: bool = True) -> None:
        self.server, self.lister = Server(), Lister[Any]()
        self.off = RoutesOff(
            cast(Any, self), cast(Any, self), cast(Any, self), RouteOptions(), Metrics(), FakeClock(), why="flag",
            removes=removes,
        )  # fmt: skip

    def rest(self, name: str) -> Server:
        assert name == "route-controller"
        return self.server

    def informer(self, _resource: object) -> Any:
        return self

    def add(self, name: str, condition: tuple[str, str] | None, provider_id: str = "fake://x") -> None:
        raw = raw_node(name, condition=condition)
        raw["spec"]["providerID"] = provider_id
        self.server.put(raw)
        self.see(name)

    def see(self, name: str) -> None:
        new = NODES.parse(clone(self.server.nodes[name]))
        old = self.lister.objects.get(name)
        self.lister.objects[name] = new
        if old is not None:
            self.off.on_update(old, new)
        else:
            self.off.on_add(new, initial=not self.begun)

    def work(self) -> list[str]:
        names = take_all(self.off._stale)
        for name in names:
            self.off.remove(name)
        return names

    def condition(self, name: str) -> tuple[str, str] | None:
        found = [one for one in self.server.nodes[name]["status"]["conditions"] if one["type"] == "NetworkUnavailable"]
        return (found[0]["status"], found[0]["reason"]) if found else None


def test_our_condition_is_taken_away_once_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    desk.add("a", MISSING)
    desk.add("b", MISSING)
    desk.add("made", CREATED)  # keeps no pod away
    desk.add("plugin", ("True", "CiliumIsDown"))
    desk.add("foreign", MISSING, "other://x")
    desk.add("young", MISSING, "")
    desk.off._begin()
    assert desk.work() == ["a", "b"]
    [line] = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert line.startswith("2 nodes have the condition NetworkUnavailable=True with our reason NoRouteCreated")
    assert line.endswith("off: flag. Removing the condition: no routes are wanted: a, b")
    names = ("a", "b", "made", "plugin", "foreign", "young")
    assert {name: desk.condition(name) for name in names} == {
        "a": None, "b": None, "made": CREATED, "plugin": ("True", "CiliumIsDown"), "foreign": MISSING, "young": MISSING,
    }  # fmt: skip
    desk.add("a", MISSING)  # another manager means it
    assert desk.work() == []
    desk.add("young", MISSING)  # it has its provider ID now
    assert desk.work() == ["young"]


def test_a_heartbeat_does_not_bypass_the_back_off_of_a_write_that_failed() -> None:
    desk = Desk()
    desk.add("a", MISSING)
    desk.off._begin()
    assert take_all(desk.off._stale) == ["a"], "and the write fails"
    for _ in range(5):
        desk.see("a")
    assert take_all(desk.off._stale) == []


def test_a_node_that_comes_later_with_our_condition_counts_too() -> None:
    desk = Desk()
    desk.off._begin()
    desk.begun = True
    desk.add("a", MISSING)
    assert desk.work() == ["a"]
    assert desk.condition("a") is None


def test_a_condition_that_another_program_replaced_meanwhile_stays() -> None:
    desk = Desk()
    desk.add("a", MISSING)
    desk.off._begin()
    raw = raw_node("a", condition=("False", "CiliumIsUp"))
    desk.server.edit("a", lambda node: node.update(status=raw["status"]))
    assert desk.work() == ["a"]
    assert desk.condition("a") == ("False", "CiliumIsUp")


def test_a_node_that_is_gone_is_no_failure() -> None:
    desk = Desk()
    desk.add("a", MISSING)
    desk.off._begin()
    del desk.server.nodes["a"]
    assert desk.work() == ["a"]
    desk.lister.objects.clear()
    desk.off.remove("a")


def test_where_routes_may_be_wanted_nothing_is_written(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk(removes=False)
    for number in range(12):
        desk.add(f"n{number:02}", MISSING)
    desk.off._begin()
    desk.see("n00")
    assert desk.work() == []
    assert "Fix: where no program makes routes, --configure-cloud-routes=false" in caplog.text
    assert "and 2 more" in caplog.text
    caplog.clear()
    Desk().off._begin()
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("flags", "capabilities", "enabled", "wanted"),
    [
        (("--configure-cloud-routes=false",), None, True, ("--configure-cloud-routes=false", True)),
        ((), ["instances_v2"], True, ("provider fake offers no routes", False)),
        ((), None, True, ("--allocate-node-cidrs is not given", False)),
        (("--configure-cloud-routes=false",), None, False, None),  # another manager may make them
    ],
)
def test_when_it_runs(
    flags: tuple[str, ...], capabilities: list[str] | None, enabled: bool, wanted: tuple[str, bool] | None
) -> None:
    settings = {} if capabilities is None else {"capabilities": capabilities}
    with FakeCloud(FakeConfig.model_validate(settings)) as cloud:
        given = context(cloud, *flags)
        try:
            made = ENTRY.stand_in(given, enabled)
        finally:
            given.cloud.close()
    assert made is None or isinstance(made, RoutesOff)
    assert wanted == (None if made is None else (made._why, made._removes))
