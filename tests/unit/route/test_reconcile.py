"""One key at a time, over stubs and a clock that stands still."""

from __future__ import annotations

import gc
import weakref
from contextlib import suppress
from typing import Any

import pytest
from attrs import evolve
from kubernetes.client.models.v1_node import V1Node

from cloudprovider import CloudProviderError, InstanceNotFound, Route
from controllers.cloudcalls import CallsClosed, InvalidAnswer
from controllers.route.changes import network
from controllers.route.controller import RouteTriggers
from controllers.route.planning import LIST
from controllers.route.reconcile import RouteConflict, RouteRefused
from controllers.runtime.api import NotFound
from controllers.runtime.queue import TerminalError
from tests.unit.route.objects import (
    CREATED,
    MISSING,
    PREFIX,
    Bench,
    Cloud,
    addressed,
    raw_node,
    route,
    with_n1,
)


@pytest.mark.row("R1")
def test_one_listing_serves_all_nodes_and_those_that_join_later() -> None:
    bench = Bench()
    for number in range(50):
        bench.add(f"n{number}", f"10.244.{number}.0/24")
        bench.queue.add(f"n{number}")
    bench.start()
    assert bench.cloud.count("create") == 50
    for number in range(50, 90):
        bench.add(f"n{number}", f"10.244.{number}.0/24")
        bench.queue.add(f"n{number}")
    bench.later(60)
    assert bench.cloud.count("create") == 90
    assert bench.cloud.count("list") == 1
    assert bench.conditions() == [(f"n{number}", *CREATED) for number in range(90)]


@pytest.mark.row("R1")
def test_nodes_that_leave_together_cost_one_listing() -> None:
    bench = Bench(*(route(f"10.244.{number}.0/24", f"n{number}") for number in range(20)))
    for number in range(20):
        bench.add(f"n{number}", f"10.244.{number}.0/24", condition=CREATED)
    bench.start()
    assert bench.cloud.calls == [("list", "kubernetes")]
    bench.clock.advance(60)
    for number in range(1, 20):
        bench.remove(f"n{number}")
        bench.queue.add(f"n{number}")
    bench.work()
    assert [kept.target_node for kept in bench.cloud.routes] == ["n0"]
    assert bench.cloud.count("list") == 2


@pytest.mark.row("R1")
def test_the_slow_check_comes_by_itself_and_idleness_costs_nothing_else() -> None:
    bench = with_n1(period=300.0)
    bench.start()
    bench.cloud.routes.clear()
    assert bench.later(299) == []
    assert bench.later(1) == [LIST, "n1"]
    assert bench.cloud.count("list") == 2
    assert [made.destination_cidr for made in bench.cloud.routes] == ["10.244.1.0/24"]
    assert bench.server.patches == []


def test_a_second_request_for_the_same_listing_is_not_another_listing() -> None:
    bench = Bench()
    bench.start()
    bench.work(LIST)
    assert bench.cloud.count("list") == 1
    bench.later(300)
    assert bench.cloud.count("list") == 2


@pytest.mark.row("R2")
def test_what_fails_is_this_nodes_own_failure_and_is_told() -> None:
    bench = Bench()
    bench.add("n1", "10.244.1.0/24", "fd00:10:244:1::/64")
    bench.cloud.fail[("create", "10.244.1.0/24")] = CloudProviderError("quota")
    with pytest.raises(CloudProviderError, match="quota"):
        bench.work(LIST)
    assert bench.cloud.calls[1:] == [("create", "10.244.1.0/24"), ("create", "fd00:10:244:1::/64")]
    assert bench.conditions() == [("n1", *MISSING)]
    ((_, kind, reason, message),) = bench.recorder.events
    assert (kind, reason) == ("Warning", "FailedToCreateRoute")
    assert "10.244.1.0/24" in message
    assert "quota" in message
    bench.cloud.fail.clear()
    bench.work("n1")
    assert bench.cloud.calls[3:] == [("create", "10.244.1.0/24")]
    assert bench.conditions()[1:] == [("n1", *CREATED)]
    assert bench.cloud.hints == ["uid-n1", "uid-n1"]


@pytest.mark.row("R2")
def test_a_listing_does_not_break_a_failing_nodes_back_off() -> None:
    bench = Bench()
    bench.add("sick", "10.244.1.0/24")
    bench.add("well", "10.244.2.0/24")
    bench.queue.add_rate_limited("sick")
    assert bench.work(LIST) == [LIST, "well"]


def test_the_managers_end_is_no_failure_of_the_route() -> None:
    bench = Bench()
    bench.add("n1", "10.244.1.0/24")
    bench.cloud.fail["create"] = CallsClosed("the end")
    with pytest.raises(CallsClosed):
        bench.start()
    assert bench.recorder.events == []
    assert bench.server.patches == []


def _orphan() -> Bench:
    """n1 with its route, and the route of a node that nobody has seen, which the provider calls
    ours."""
    return with_n1(route("10.244.1.0/24", "n1"), route("10.244.2.0/24", "gone", owned=True))


@pytest.mark.row("R3")
def test_a_route_is_deleted_after_a_quorum_read_and_not_before() -> None:
    bench = _orphan()
    assert bench.start() == [LIST, "gone"]
    assert bench.server.gets == [(f"{PREFIX}gone", {})]  # no resourceVersion: a quorum read
    assert [kept.target_node for kept in bench.cloud.routes] == ["n1"]


@pytest.mark.row("R3")
def test_a_recreated_node_with_another_range_loses_the_old_one() -> None:
    bench = _orphan()
    bench.add("gone", "10.244.3.0/24", uid="another")
    bench.start()
    assert {(kept.target_node, kept.destination_cidr) for kept in bench.cloud.routes} == {
        ("n1", "10.244.1.0/24"),
        ("gone", "10.244.3.0/24"),
    }


@pytest.mark.row("R3")
def test_a_proxys_404_proves_nothing() -> None:
    bench = _orphan()
    bench.server.proxy_404 = True
    with pytest.raises(NotFound):
        bench.start()
    assert bench.cloud.count("delete") == 0


@pytest.mark.row("R3")
@pytest.mark.parametrize("junk", [{"metadata": "no object"}, raw_node("gone", "nonsense")], ids=["no-node", "no-range"])
def test_an_answer_that_cannot_be_read_proves_nothing(junk: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    bench = _orphan()
    bench.server.nodes["gone"] = junk
    bench.start()
    assert bench.cloud.count("delete") == 0
    assert "node gone cannot be read, so its routes are kept" in caplog.text


@pytest.mark.row("R3")
def test_nothing_is_deleted_on_an_old_listing() -> None:
    bench = with_n1(route("10.244.1.0/24", "n1"))
    bench.start()
    bench.clock.advance(11)
    bench.remove("n1")
    bench.cloud.routes = [route("10.244.1.0/24", "vpn", name="vpn")]  # somebody else has it now
    assert bench.work("n1") == ["n1", LIST]
    assert bench.cloud.count("delete") == 0
    assert bench.metrics.value("route_controller_routes_left_alone") == 1


@pytest.mark.row("R3")
def test_a_listing_that_takes_longer_than_the_interval_is_fresh_when_it_ends() -> None:
    def slow() -> None:
        assert bench.cloud.count("list") <= 2
        bench.clock.advance(15)

    bench = with_n1(route("10.244.1.0/24", "n1"))
    bench.cloud.while_listing = slow
    bench.start()
    bench.clock.advance(60)
    bench.remove("n1")
    bench.add("n2", "10.244.1.0/24")
    bench.work("n2")
    assert [call for call, _ in bench.cloud.calls] == ["list", "list", "delete", "create"]
    assert bench.conditions() == [("n2", *CREATED)]


@pytest.mark.row("R3")
def test_the_same_range_passes_on_only_when_its_holder_is_gone_for_good() -> None:
    bench = Bench(route("10.244.1.0/24", "old"))
    bench.add("old", "10.244.1.0/24")
    del bench.lister.objects["old"]
    bench.add("new", "10.244.1.0/24")
    with pytest.raises(RouteConflict, match="old"):
        bench.start()
    assert bench.cloud.count("delete") == bench.cloud.count("create") == 0
    bench.remove("old")
    bench.work("new")
    assert [call for call, _ in bench.cloud.calls[1:]] == ["delete", "create"]
    assert [kept.target_node for kept in bench.cloud.routes] == ["new"]


def test_our_own_creation_is_listed_before_it_is_deleted() -> None:
    bench = Bench()
    bench.add("n1", "10.244.1.0/24")
    bench.start()
    bench.remove("n1")
    bench.queue.add("n1")
    assert bench.later(1) == ["n1"]
    assert bench.cloud.count("delete") == 0  # its name is not known yet
    assert bench.later(9) == [LIST, "n1"]
    assert bench.cloud.routes == []


def test_blackholes_inside_are_removed() -> None:
    bench = Bench(
        route("10.244.7.0/24", blackhole=True, name="dead"), route("192.168.7.0/24", blackhole=True, name="theirs")
    )
    bench.add("n1", "10.244.1.0/24")
    bench.start()
    assert [kept.name for kept in bench.cloud.routes] == ["theirs", "kubernetes-uid-n1-10.244.1.0/24"]


def test_changed_addresses_delete_before_they_create() -> None:
    old = addressed("10.244.1.0/24", "n1", "10.0.0.1")
    bench = Bench(old)
    bench.add("n1", "10.244.1.0/24", addresses=["10.0.0.2"], condition=CREATED)
    bench.start()
    assert [call for call, _ in bench.cloud.calls] == ["list", "delete", "create"]
    assert bench.server.gets == []


def _outdated() -> Bench:
    """n1, whose addresses have changed since the last listing, long ago; its condition is not
    written yet."""
    old = addressed("10.244.1.0/24", "n1", "10.0.0.1")
    bench = Bench(old)
    bench.add("n1", "10.244.1.0/24", addresses=["10.0.0.1"], condition=CREATED)
    bench.start()
    bench.clock.advance(60)
    bench.add("n1", "10.244.1.0/24", addresses=["10.0.0.2"])
    bench.queue.add("n1")
    return bench


def test_nothing_is_said_of_a_route_before_a_listing_has_shown_it() -> None:
    bench = _outdated()
    bench.cloud.fail["list"] = CloudProviderError("away")
    with pytest.raises(CloudProviderError):
        bench.work()
    assert bench.conditions() == []
    bench.cloud.fail.clear()
    bench.work(LIST)
    assert bench.conditions() == [("n1", *CREATED)]


def test_nothing_is_said_of_a_route_that_another_key_works_on() -> None:
    bench = _outdated()
    with bench.table.claim(network("10.244.1.0/24")):
        bench.work()
        assert bench.conditions() == []
    bench.later(0.1)
    assert bench.conditions() == [("n1", *CREATED)]


def test_a_failed_deletion_is_repeated_without_another_listing() -> None:
    bench = _orphan()
    bench.cloud.fail["delete"] = CloudProviderError("later")
    with pytest.raises(CloudProviderError):
        bench.start()
    bench.queue.add_rate_limited("gone")
    bench.clock.advance(60)
    bench.cloud.fail.clear()
    bench.work()
    assert bench.cloud.count("list") == 1
    assert [kept.target_node for kept in bench.cloud.routes] == ["n1"]


def test_a_destination_under_work_is_left_to_whoever_works_there() -> None:
    bench = _orphan()
    bench.queue.add(LIST)
    with bench.table.claim(network("10.244.2.0/24")) as mine:
        assert mine
        bench.work()
        assert bench.cloud.count("delete") == 0
    assert bench.later(0.1) == ["gone"]
    assert bench.cloud.count("delete") == 1


def test_a_pod_cidr_that_is_none_ends_that_node_alone() -> None:
    bench = Bench()
    bench.add("junk", "nonsense")
    bench.add("n1", "10.244.1.0/24")
    bench.start()
    assert [made.target_node for made in bench.cloud.routes] == ["n1"]
    with pytest.raises(TerminalError, match="junk"):
        bench.work("junk")


def test_a_node_without_ranges_is_marked_only_when_routes_lead_to_it() -> None:
    bench = with_n1(route("10.244.9.0/24", "bare-1"))
    bench.add("bare-1")
    bench.add("bare-2")
    bench.queue.add("bare-2")
    bench.start()
    assert bench.conditions() == [("bare-1", *MISSING)]
    assert [kept.target_node for kept in bench.cloud.routes] == ["n1"]


def test_two_nodes_with_one_range_are_a_conflict() -> None:
    bench = Bench(route("10.244.1.0/24", "first"))
    bench.add("first", "10.244.1.0/24", condition=CREATED)
    bench.add("second", "10.244.1.0/24")
    with pytest.raises(RouteConflict, match="same pod CIDR"):
        bench.start()
    assert bench.cloud.calls == [("list", "kubernetes")]
    assert bench.conditions() == [("second", *MISSING)]
    assert bench.server.gets == []


def test_a_blackhole_on_a_nodes_range_is_that_nodes_work() -> None:
    bench = Bench(route("10.244.1.0/24", blackhole=True))
    bench.add("n1", "10.244.1.0/24")
    assert bench.start() == [LIST, "n1"]
    assert [call for call, _ in bench.cloud.calls] == ["list", "delete", "create"]


def test_of_a_node_that_was_created_anew_the_routes_are_looked_at_soon() -> None:
    bench = with_n1(route("10.244.1.0/24", "n1"))
    bench.start()
    assert bench.work("n1") == ["n1"], "the same Node as when the routes were listed"
    bench.cloud.routes = [route("10.244.1.0/24", blackhole=True)]  # its machine is gone
    bench.add("n1", "10.244.1.0/24", uid="another")
    bench.work("n1")
    assert bench.later(10) == [LIST, "n1"]
    assert [found.target_node for found in bench.cloud.routes] == ["n1"]
    bench.queue.add("n1")
    bench.later(20)
    assert bench.cloud.count("list") == 2, "once for each Node"


@pytest.mark.row("R13")
def test_a_listing_during_a_deletion_costs_the_new_route_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a cloud that knows a route by its destination, as one that is deleted twice shows."""
    bench = with_n1(route("10.244.1.0/24", blackhole=True))

    def delete(cloud: Cloud, cluster_name: str, one: Route, *, priority: int = 0) -> None:
        cloud.enter("delete", one.destination_cidr)
        if cloud.count("delete") == 1:
            bench.clock.advance(6)  # it takes its time, and another worker lists meanwhile
            bench.listing.run()
        cloud.routes = [known for known in cloud.routes if known.destination_cidr != one.destination_cidr]

    monkeypatch.setattr(Cloud, "delete", delete)
    bench.start()
    assert [call for call, _ in bench.cloud.calls] == ["list", "delete", "list", "create"]
    bench.later(600)
    assert [found.target_node for found in bench.cloud.routes] == ["n1"]
    assert bench.cloud.count("delete") == 1


def test_a_blackhole_under_work_is_left_for_a_moment() -> None:
    bench = with_n1(route("10.244.7.0/24", blackhole=True))
    with bench.table.claim(network("10.244.7.0/24")):
        bench.start()
        assert bench.cloud.count("delete") == 0
    assert bench.later(0.1) == ["blackhole/10.244.7.0/24"]
    assert bench.cloud.count("delete") == 1


@pytest.mark.row("R3")
def test_a_node_long_gone_makes_no_new_route_ours() -> None:
    bench = with_n1()
    bench.add("gone")
    bench.start()
    bench.remove("gone")
    bench.later(300)
    bench.cloud.routes.append(route("10.244.9.0/24", "gone", name="by-hand"))
    bench.later(300)
    assert bench.cloud.count("list") == 3
    assert bench.cloud.count("delete") == 0


def test_a_route_whose_deletion_failed_is_not_believed_in_any_more() -> None:
    old = addressed("10.244.1.0/24", "n1", "10.0.0.1")
    bench = Bench(old)
    bench.add("n1", "10.244.1.0/24", addresses=["10.0.0.2"], condition=CREATED)
    bench.cloud.fail["delete"] = CloudProviderError("no answer, yet deleted")
    with pytest.raises(CloudProviderError):
        bench.start()
    assert bench.conditions() == [("n1", *MISSING)]
    bench.cloud.fail.clear()
    bench.add("n1", "10.244.1.0/24", addresses=["10.0.0.1"])  # as the old route had it
    bench.work("n1")
    assert bench.cloud.calls[-2:] == [("delete", "10.244.1.0/24"), ("create", "10.244.1.0/24")]
    assert bench.conditions()[-1] == ("n1", *CREATED)


@pytest.mark.row("R1")
def test_a_listing_under_way_is_not_asked_for_again() -> None:
    bench = Bench(*(route(f"10.244.{number}.0/24", f"n{number}") for number in range(3)))
    for number in range(3):
        bench.add(f"n{number}", f"10.244.{number}.0/24", condition=CREATED)
    bench.start()
    bench.clock.advance(60)
    bench.remove("n1")
    bench.remove("n2")
    bench.cloud.while_listing = lambda: bench.reconciler.reconcile("n2")
    bench.work("n1")
    bench.cloud.while_listing = lambda: None
    bench.later(60)
    assert bench.cloud.count("list") == 2
    assert [kept.target_node for kept in bench.cloud.routes] == ["n0"]


@pytest.mark.row("R11")
def test_a_node_recreated_while_a_listing_is_under_way_is_looked_up_by_the_next_one() -> None:
    """That listing may be older than the node's new machine, and show the route to the former one
    as alive."""
    bench = with_n1(route("10.244.1.0/24", "n1"))
    bench.start()

    def recreated() -> None:
        bench.cloud.while_listing = lambda: None
        bench.cloud.routes = [route("10.244.1.0/24", "", blackhole=True)]
        bench.add("n1", "10.244.1.0/24", uid="another")
        bench.reconciler.reconcile("n1")

    bench.cloud.while_listing = recreated
    bench.later(300)
    assert bench.cloud.calls[-1] == ("list", "kubernetes")
    bench.later(10)
    assert bench.cloud.calls[-3:] == [
        ("list", "kubernetes"),
        ("delete", "10.244.1.0/24"),
        ("create", "10.244.1.0/24"),
    ]
    before = bench.cloud.count("list")
    bench.later(60)
    assert bench.cloud.count("list") == before


@pytest.mark.row("R2")
def test_a_failing_listings_back_off_is_not_broken_by_nodes() -> None:
    bench = with_n1(route("10.244.1.0/24", "n1"))
    bench.start()
    bench.clock.advance(60)
    for _ in range(10):
        bench.queue.add_rate_limited(LIST)
    bench.remove("n1")
    bench.queue.add("n1")
    assert bench.later(0.05) == ["n1"]
    assert bench.cloud.count("list") == 1


@pytest.mark.row("R10")
def test_beside_a_list_that_cannot_be_read_nothing_is_done() -> None:
    bench = Bench()
    bench.add("n1", "10.244.1.0/24")
    unusable = InvalidAnswer("list_routes", ["item 0, the route 'x' to node 'n1', has ..."])
    bench.cloud.fail["list"] = unusable
    bench.queue.add("n1")
    with pytest.raises(InvalidAnswer):
        bench.start()
    assert bench.work() == ["n1"]
    assert bench.cloud.count("create") == 0
    assert bench.listing.refused == str(unusable)
    bench.cloud.fail.clear()
    bench.start()
    assert bench.cloud.count("create") == 1
    assert bench.listing.refused == ""
    bench.cloud.fail["list"] = CloudProviderError("away")  # the table that there is will do for creating
    with pytest.raises(CloudProviderError):
        bench.later(300)
    assert bench.listing.refused == ""
    bench.cloud.fail["list"] = unusable
    with pytest.raises(InvalidAnswer):
        bench.work(LIST)
    bench.add("n2", "10.244.2.0/24")
    assert bench.work("n2") == ["n2"]
    assert bench.cloud.count("create") == 1
    bench.cloud.fail["list"] = CloudProviderError("away")
    with pytest.raises(CloudProviderError):
        bench.work(LIST)
    assert bench.listing.refused == str(unusable)  # it is not known to be well again


@pytest.mark.row("R11")
def test_a_node_whose_machine_is_gone_has_no_route_until_it_is_back() -> None:
    bench = with_n1(route("10.244.1.0/24", blackhole=True))
    bench.cloud.fail["create"] = InstanceNotFound("no machine n1")
    for _ in range(5):
        with pytest.raises(InstanceNotFound):
            bench.work(LIST)
        bench.clock.advance(300)
    assert bench.cloud.count("delete") == 1
    assert bench.cloud.routes == []
    assert bench.conditions()[0] == ("n1", *MISSING)
    bench.cloud.fail.clear()
    bench.work("n1")
    assert [made.target_node for made in bench.cloud.routes] == ["n1"]


def _swallowed(bench: Bench) -> None:
    """The machine is gone, and the cloud takes routes to it all the same: each is a blackhole at
    once."""
    bench.cloud.routes = [evolve(one, blackhole=True, target_node="") for one in bench.cloud.routes]


@pytest.mark.row("R11")
def test_a_blackhole_that_comes_back_is_left_ever_longer() -> None:
    bench = with_n1(route("10.244.1.0/24", blackhole=True))
    for _ in range(48):  # four hours
        with suppress(RouteRefused):
            bench.work(LIST)
        bench.work()
        _swallowed(bench)
        bench.clock.advance(300)
    assert bench.cloud.count("delete") == bench.cloud.count("create") == 6  # after 0, 10, 30, 70, 130, 190 minutes
    assert ("n1", *MISSING) in bench.conditions()
    assert "it was made anew and leads nowhere again" in bench.recorder.messages()[-1]


@pytest.mark.row("R11")
@pytest.mark.parametrize(("back", "again"), [("Ready since", True), ("recreated", True), ("not Ready", False)])
def test_it_is_made_again_at_once_when_the_node_is_back(back: str, again: bool) -> None:
    bench = with_n1(route("10.244.1.0/24", blackhole=True))
    bench.start()
    _swallowed(bench)
    with pytest.raises(RouteRefused, match="after 300 s"):
        bench.later(300)
    before = bench.lister.objects["n1"]
    if back == "recreated":
        bench.add("n1", "10.244.1.0/24", uid="another", condition=MISSING)
    else:
        raw = raw_node("n1", "10.244.1.0/24", condition=MISSING, ready="True" if again else "Unknown")
        raw["status"]["conditions"][0]["lastTransitionTime"] = "2026-01-02T03:04:05Z"
        bench.server.nodes["n1"] = raw
        found = V1Node.from_dict(raw)
        assert found is not None
        bench.lister.objects["n1"] = found
        before.status.conditions[0].status = "False"  # type: ignore[union-attr,index]  # as built above
    RouteTriggers(bench.queue).on_update(before, bench.lister.objects["n1"])
    assert len(bench.queue) == again
    bench.queue.add("n1")
    if again:
        bench.work()
    else:
        with pytest.raises(RouteRefused):
            bench.work()
    assert bench.cloud.count("create") == 1 + again


@pytest.mark.row("R11")
def test_a_blackhole_whose_deletion_failed_is_tried_again_at_once() -> None:
    bench = with_n1(route("10.244.1.0/24", blackhole=True))
    bench.cloud.fail["delete"] = CloudProviderError("later")
    with pytest.raises(CloudProviderError):
        bench.start()
    bench.cloud.fail.clear()
    bench.work("n1")
    assert [made.target_node for made in bench.cloud.routes] == ["n1"]


@pytest.mark.row("O7")
def test_one_line_for_each_route_created_and_each_deleted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "controllers.route")
    bench = Bench(route("10.244.7.0/24", blackhole=True, name="dead"), route("10.244.8.0/24", "gone", owned=True))
    bench.add("n1", "10.244.1.0/24")
    bench.start()
    assert [record.message for record in caplog.records if record.levelname == "INFO"] == [
        "created route: 10.244.1.0/24 to node n1",
        "deleted route: 10.244.7.0/24 to nowhere (a blackhole), named 'dead'",
        "deleted route: 10.244.8.0/24 to node gone, named 'kubernetes-10.244.8.0/24'",
    ]


def _syncs(bench: Bench) -> dict[tuple[str, str], float]:
    """Comparisons by outcome and trigger."""
    found = {}
    for outcome in ("changed", "noop", "error"):
        for trigger in ("periodic", "node_change"):
            value = bench.metrics.value("route_controller_route_sync_total", outcome=outcome, trigger=trigger)
            if value:
                found[outcome, trigger] = value
    return found


def test_comparisons_are_counted_by_outcome_and_trigger() -> None:
    bench = with_n1(route("10.244.1.0/24", "n1"))
    bench.start()
    assert _syncs(bench) == {("noop", "periodic"): 1}
    bench.work("n1")
    assert _syncs(bench) == {("noop", "periodic"): 1, ("noop", "node_change"): 1}
    bench.add("n2", "10.244.2.0/24")
    bench.work("n2")
    assert _syncs(bench)["changed", "node_change"] == 1
    bench.cloud.routes.clear()
    bench.cloud.fail["create"] = CloudProviderError("quota")
    with pytest.raises(CloudProviderError):
        bench.later(300)
    assert _syncs(bench)["error", "periodic"] == 1
    bench.cloud.fail.clear()
    bench.queue.add("n1")
    bench.work("n2")
    assert _syncs(bench) == {
        ("noop", "periodic"): 1,
        ("noop", "node_change"): 1,
        ("changed", "node_change"): 1,
        ("error", "periodic"): 1,
        ("changed", "periodic"): 2,
    }


def test_a_listing_that_a_node_asked_for_is_the_nodes() -> None:
    bench = with_n1(route("10.244.1.0/24", "n1"))
    bench.start()
    bench.clock.advance(60)
    bench.remove("n1")
    bench.queue.add("n1")
    bench.cloud.fail["list"] = CloudProviderError("away")
    with pytest.raises(CloudProviderError):
        bench.work()
    assert _syncs(bench)["error", "node_change"] == 1
    bench.cloud.fail.clear()
    bench.work(LIST)
    assert _syncs(bench)["changed", "node_change"] == 1


def test_what_failed_is_free_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all that its stack holds would stay until the garbage collector comes."""
    bench = Bench()
    bench.add("n1", "10.244.1.0/24")
    raised: list[weakref.ref[Exception]] = []

    def failure() -> Exception:
        made = CloudProviderError("quota")
        raised.append(weakref.ref(made))
        return made

    def create(*_: object, **__: object) -> None:
        raise failure()

    monkeypatch.setattr(Cloud, "create", create)
    bench.queue.add(LIST)
    gc.disable()
    try:
        with suppress(CloudProviderError):
            bench.work()
        assert [one() for one in raised] == [None]
    finally:
        gc.enable()
