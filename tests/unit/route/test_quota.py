"""A cloud that takes no more routes, or makes them slowly."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import define, evolve

from cloudprovider import CloudProviderError, InstanceNotFound, Pending, QuotaExceeded, Route
from controllers.route.planning import LIST
from tests.unit.route.objects import CREATED, MISSING, Bench, Cloud

pytestmark = pytest.mark.row("P10")
FULL = "2 of 2 routes"


@define
class Small(Cloud):
    """It takes two routes."""

    most: int = 2
    refusing: Callable[[], object] = lambda: None

    def create(self, cluster_name: str, name_hint: str, route: Route, *, priority: int = 0) -> None:
        if len(self.routes) >= self.most:
            self.enter("create", route.destination_cidr)
            self.refusing()
            raise QuotaExceeded(FULL)
        super().create(cluster_name, name_hint, route, priority=priority)


class Table:
    """A bench over such a cloud. Keys come again as their errors ask for."""

    def __init__(self, *names: str) -> None:
        self.bench = bench = Bench(period=300.0, cloud=Small())
        for number, name in enumerate(names):
            bench.add(name, f"10.244.{number}.0/24")
        bench.queue.add(LIST)

    def work(self, seconds: float = 0.0) -> list[str]:
        """What runs when this time has passed."""
        bench, ran = self.bench, list[str]()
        bench.clock.advance(seconds)
        while (key := bench.queue.get(timeout=0)) is not None:
            ran.append(key)
            try:
                result = bench.reconciler.reconcile(key)
                after = result.requeue_after
            except QuotaExceeded as error:
                after = error.retry_after
            except InstanceNotFound:
                after = None
            except Pending as error:
                after = None
                bench.queue.add_after(key, error.retry_after, problem=str(error))
            bench.queue.done(key)
            if after is not None:
                bench.queue.add_after(key, after)
        return ran


def test_the_owner_is_told_and_the_node_gets_no_pods() -> None:
    table = Table("n1", "n2", "n3")
    table.work()
    [(name, kind, reason, message)] = [
        (one.name, one.type, one.reason, one.message) for one in table.bench.recorder.events
    ]
    assert (name, kind, reason) == ("n3", "Warning", "FailedToCreateRoute")
    assert message.endswith(FULL)
    assert table.bench.conditions() == [("n1", *CREATED), ("n2", *CREATED), ("n3", *MISSING)]


def test_it_is_asked_for_again_seldom_whatever_the_period() -> None:
    table = Table("n1", "n2", "n3")
    table.work()
    assert table.bench.cloud.count("create") == 3
    assert "n3" not in table.work(300)
    assert table.bench.cloud.count("create") == 3
    assert "n3" in table.work(300)
    assert table.bench.cloud.count("create") == 4


def test_it_takes_the_place_of_one_that_goes() -> None:
    table = Table("n1", "n2", "n3", "n4")
    table.work()
    table.bench.remove("n1")
    table.bench.queue.add("n1")
    table.work()
    table.work(10)
    assert sorted(one.target_node for one in table.bench.cloud.routes) == ["n2", "n3"]
    assert table.bench.conditions()[-1] == ("n3", *CREATED)
    assert table.bench.cloud.count("create") <= 6, "who waits does not ask for each of the others"


def test_a_node_that_waited_and_has_its_route_is_compared_like_others() -> None:
    table = Table("n1", "n2", "n3")
    table.work()
    table.bench.remove("n1")
    table.bench.cloud.routes.pop(0)
    table.work(600)
    assert [one.target_node for one in table.bench.cloud.routes] == ["n2", "n3"]
    table.bench.cloud.routes.pop()
    assert "n3" in table.work(300)


def test_room_that_is_made_while_the_cloud_answers_is_not_missed() -> None:
    table = Table("n1", "n2", "n3")
    cloud = table.bench.cloud
    assert isinstance(cloud, Small)

    def another_goes() -> None:
        cloud.routes.clear()
        table.bench.listing.room()

    cloud.refusing = another_goes
    table.work()
    assert table.bench.conditions()[-1] == ("n3", *CREATED)


def test_who_cannot_use_the_room_leaves_it_to_the_next() -> None:
    table = Table("n1", "n2", "n3", "n4")
    table.work()
    table.bench.cloud.fail[("create", "10.244.2.0/24")] = InstanceNotFound("n3 has no machine")
    table.bench.remove("n1")
    table.bench.queue.add("n1")
    table.work()
    table.work(10)
    assert table.bench.conditions()[-1] == ("n4", *CREATED)


def test_a_limit_that_is_raised_helps_all_once_one_has_found_out() -> None:
    table = Table("n1", "n2", "n3", "n4", "n5")
    table.work()
    cloud = table.bench.cloud
    assert isinstance(cloud, Small)
    cloud.most = 9
    table.bench.queue.add("n4")
    table.work()
    assert {one.target_node for one in cloud.routes} == {"n1", "n2", "n3", "n4", "n5"}


def test_who_makes_a_route_again_keeps_its_place() -> None:
    table = Table("n1", "n2", "n3")
    table.work()
    bench = table.bench
    bench.cloud.routes = [evolve(one, blackhole=one.target_node == "n1") for one in bench.cloud.routes]
    bench.queue.add(LIST)
    table.work(300)
    assert [one.target_node for one in bench.cloud.routes] == ["n2", "n1"]
    assert bench.cloud.count("create") == 4, "nobody else tries meanwhile"


def test_another_failure_of_the_node_is_not_held_up() -> None:
    bench = Bench()
    bench.add("n1", "10.244.1.0/24", "fd00:10:244:1::/64")
    bench.cloud.fail[("create", "10.244.1.0/24")] = QuotaExceeded(FULL)
    bench.cloud.fail[("create", "fd00:10:244:1::/64")] = CloudProviderError("bang")
    with pytest.raises(CloudProviderError, match="bang"):
        bench.start()


def test_a_comparison_does_not_ask_before_the_provider_said() -> None:
    table = Table("n1")
    table.bench.cloud.fail["create"] = Pending("the route is being made", 400.0)
    table.work()
    table.work(300)
    assert table.bench.cloud.count("create") == 1
    table.work(100)
    assert table.bench.cloud.count("create") == 2


def test_a_route_that_takes_long_is_no_failure() -> None:
    bench = Bench()
    bench.add("n1", "10.244.1.0/24")
    bench.cloud.fail["create"] = slow = Pending("the route is being made", 5.0)
    with pytest.raises(Pending):
        bench.start()
    assert bench.recorder.events == []
    assert bench.conditions() == [("n1", *MISSING)]
    assert not bench.metrics.value("route_controller_route_sync_total", outcome="error", trigger="periodic")
    bench.reconciler.waits("n1", slow, False)
    bench.reconciler.waits("n1", slow, True)
    bench.reconciler.waits(LIST, slow, True)
    assert [(one.type, one.reason, one.message) for one in bench.recorder.events] == [
        ("Normal", "RoutePending", "The cloud is at work on this node's route: the route is being made"),
        (
            "Warning",
            "RoutePending",
            "The cloud is at work on this node's route, for more than 15 minutes: the route is being made",
        ),
    ]
