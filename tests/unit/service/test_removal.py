"""Deletions that fail, and what is said of them: row S18. And half a deletion, taken back."""

from __future__ import annotations

import pytest

from cloudprovider import (
    CloudProviderError,
    ImplementedElsewhere,
    LoadBalancerKept,
    NotImplementedByProvider,
    RetryError,
    Throttled,
)
from cloudprovider.helpers import has_load_balancer_finalizer
from controllers.runtime.api import Forbidden
from controllers.runtime.cache import SERVICES
from controllers.service.changes import note_of
from tests.support.controllers import Raw, Server, nothing
from tests.unit.service.bench import Bench
from tests.unit.service.objects import FINALIZER, raw_node, raw_service

pytestmark = pytest.mark.usefixtures("served")
KEY = "default/web"


@pytest.mark.row("S18")
def test_a_deletion_that_fails_as_there_is_nothing_left_is_done(bench: Bench) -> None:
    """Many a cloud's client raises where the load balancer is gone. One answer may be wrong, two
    count."""
    bench.cloud.balancers.clear()
    bench.cloud.fail["delete"] = CloudProviderError("404: no such load balancer")
    bench.server.delete(KEY)
    bench.settle(rounds=1)
    assert bench.cloud.methods() == ["delete", "get"]
    assert KEY in bench.server.services
    bench.settle(rounds=2)
    assert bench.cloud.methods() == ["delete", "get"] * 2
    assert KEY not in bench.server.services
    assert bench.recorder.reasons()[-1] == "DeletedLoadBalancer"


@pytest.mark.row("S18")
def test_one_that_fails_while_it_is_there_is_tried_again_and_told_with_gos_reason(bench: Bench) -> None:
    bench.cloud.fail["delete"] = CloudProviderError("in use")
    bench.server.delete(KEY)
    bench.settle(rounds=2)
    assert bench.cloud.methods() == ["delete", "get"] * 2
    assert bench.server.services[KEY]["metadata"]["finalizers"] == [FINALIZER]
    assert ("Warning", "SyncLoadBalancerFailed") in [(one.type, one.reason) for one in bench.recorder.events]
    assert "Error syncing load balancer: failed to delete load balancer: in use" in bench.recorder.messages()[1]
    assert "DeleteLoadBalancerFailed" not in bench.recorder.reasons()


@pytest.mark.row("S31")
def test_one_that_is_kept_is_told_and_its_service_goes(bench: Bench) -> None:
    bench.cloud.fail["delete"] = LoadBalancerKept("lb-1 has deletion protection")
    bench.server.delete(KEY)
    bench.settle(rounds=3)
    assert bench.cloud.methods() == ["delete"]
    assert KEY not in bench.server.services
    assert bench.recorder.reasons() == ["DeletingLoadBalancer", "LoadBalancerKept"]
    assert bench.recorder.messages()[1] == "The load balancer stays in the cloud: lb-1 has deletion protection"
    assert bench.recorder.reasons(type="Warning") == []


def test_nodes_that_join_do_not_hasten_one_that_fails(bench: Bench) -> None:
    bench.cloud.fail["delete"] = CloudProviderError("in use")
    bench.server.delete(KEY)
    for number in range(10, 30):
        bench.server.put(raw_node(f"n{number}", f"10.0.0.{number}"))
        bench.settle(rounds=6)
    assert bench.cloud.count("delete") <= 9, "after 1, 2, 4, 8, 16, 32 and then 60 s, in two minutes"
    bench.cloud.fail.clear()
    bench.settle(rounds=70)
    assert not bench.cloud.balancers


def test_one_that_failed_and_is_taken_back_gets_nodes_again(bench: Bench) -> None:
    bench.cloud.fail["delete"] = CloudProviderError("in use")
    bench.server.edit(KEY, lambda raw: raw["spec"].update(type="ClusterIP"))
    bench.settle()
    assert bench.cloud.count("delete")
    bench.server.edit(KEY, lambda raw: raw["spec"].update(type="LoadBalancer"))
    bench.settle(rounds=70)
    bench.server.put(raw_node("n9", "10.0.0.9"))
    bench.settle(rounds=70)
    [balancer] = bench.cloud.balancers.values()
    assert balancer.nodes == bench.wanted_nodes()


def test_one_that_fails_and_is_taken_back_is_ensured_at_once(bench: Bench) -> None:
    bench.cloud.fail["delete"] = CloudProviderError("in use")
    bench.server.set_type(KEY, "ClusterIP")
    bench.settle(rounds=40)
    bench.forget()
    bench.server.set_type(KEY, "LoadBalancer")
    bench.settle(rounds=1)
    assert bench.cloud.methods() == ["ensure"]


def test_one_for_a_service_that_vanished_has_gos_other_reason(bench: Bench) -> None:
    bench.cloud.fail["delete"] = CloudProviderError("in use")
    bench.server.edit(KEY, lambda raw: raw["metadata"].update(finalizers=[]))
    bench.server.delete(KEY)
    bench.settle(rounds=2)
    assert "DeleteLoadBalancerFailed" in bench.recorder.reasons()
    assert "SyncLoadBalancerFailed" not in bench.recorder.reasons()


@pytest.mark.parametrize("error", [RetryError("deleting", 30.0), Throttled("slow down")])
def test_a_cloud_that_asks_for_time_is_given_it_whatever_a_look_would_say(bench: Bench, error: Exception) -> None:
    bench.cloud.balancers.clear()
    bench.cloud.fail["delete"] = error
    bench.server.delete(KEY)
    bench.settle(rounds=1)
    assert bench.cloud.methods() == ["delete"]
    assert bench.server.services[KEY]["metadata"]["finalizers"] == [FINALIZER]


def test_one_whose_time_has_not_come_costs_no_question_either(bench: Bench) -> None:
    bench.cloud.fail["delete"] = RetryError("deleting", 30.0)
    bench.server.set_type(KEY, "ClusterIP")
    bench.settle(rounds=1)
    before = len(bench.server.gets)
    for _ in range(5):
        bench.queue.add(KEY)
        bench.settle(rounds=1)
    assert bench.cloud.methods() == ["delete"]
    assert len(bench.server.gets) == before > 0


@pytest.mark.row("S18")
@pytest.mark.parametrize("look", [CloudProviderError("down"), NotImplementedByProvider(), ImplementedElsewhere()])
def test_a_look_that_tells_nothing_leaves_the_deletions_error(bench: Bench, look: Exception) -> None:
    bench.cloud.balancers.clear()
    bench.cloud.fail.update(delete=CloudProviderError("quota"), get=look)
    bench.server.delete(KEY)
    bench.settle(rounds=1)
    assert bench.cloud.methods() == ["delete", "get"]
    assert bench.server.services[KEY]["metadata"]["finalizers"] == [FINALIZER]
    assert [text for text in bench.recorder.messages() if "quota" in text]
    assert [text for text in bench.recorder.messages() if "down" in text] == []


def test_a_cache_that_is_behind_our_own_write_has_nothing_deleted_twice(bench: Bench) -> None:
    bench.server.edit(KEY, lambda raw: raw["metadata"]["finalizers"].append("example.com/other"))
    bench.see()
    bench.server.delete(KEY)
    bench.see()
    bench.work()
    assert bench.cloud.methods() == ["delete"]
    for _ in range(3):
        bench.queue.add(KEY)
        bench.clock.advance(1.0)
        bench.work()
    assert bench.cloud.methods() == ["delete"]
    assert len(bench.server.patches) == 1
    bench.settle()
    assert bench.cloud.methods() == ["delete"]


@pytest.mark.parametrize("known", [True, False])
def test_a_finalizer_that_may_not_be_removed_is_told_to_the_services_owner(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """Else the Service hangs in its deletion, and only the log of the manager says why."""
    if not known:
        bench = Bench("n1")
        raw = raw_service(type="ClusterIP")
        raw["metadata"]["finalizers"] = [FINALIZER]
        bench.server.put(raw)
        bench.start()
    bench.server.delete(KEY)
    _refuse(monkeypatch)
    bench.settle(rounds=2)
    assert _warnings(bench) == {
        "Error syncing load balancer: failed to remove load balancer cleanup finalizer: 403: no rule"
    }
    assert bench.server.services[KEY]["metadata"]["finalizers"] == [FINALIZER]


def test_a_finalizer_that_may_not_be_added_is_told_and_nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench("n1")
    bench.server.put(raw_service())
    _refuse(monkeypatch)
    bench.start()
    bench.settle(rounds=2)
    assert _warnings(bench) == {
        "Error syncing load balancer: failed to add load balancer cleanup finalizer: 403: no rule"
    }
    assert bench.cloud.count("ensure") == 0


def _refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    def request(*_: object, **__: object) -> None:
        raise Forbidden("no rule", status=403)

    monkeypatch.setattr(Server, "request", request)


def _warnings(bench: Bench) -> set[str]:
    return set(bench.recorder.messages("Warning"))


def test_a_wish_that_comes_back_before_the_cache_shows_our_release_is_built_with_the_finalizer_on(bench: Bench) -> None:
    bench.server.set_type(KEY, "ClusterIP")
    bench.see()
    bench.cloud.during = lambda *_: bench.server.set_type(KEY, "LoadBalancer")  # our release comes after it
    bench.work()
    bench.cloud.during = lambda *_: None
    assert bench.cloud.methods() == ["delete"]
    assert not bench.server.services[KEY]["metadata"].get("finalizers")
    bench.see(1)  # the wish, with the finalizer as it was before our release
    bench.queue.add(KEY)
    bench.clock.advance(1.0)
    bench.work()
    bench.settle()
    assert bench.cloud.count("ensure") == 1
    (built,) = [one for method, one in zip(bench.cloud.methods(), bench.cloud.given, strict=True) if method == "ensure"]
    assert has_load_balancer_finalizer(built), "nothing would hold the Service, should it be deleted now"
    assert bench.server.services[KEY]["metadata"]["finalizers"] == ["service.kubernetes.io/load-balancer-cleanup"]


def test_one_that_is_not_wanted_any_more_as_its_finalizer_is_written_is_let_go(bench: Bench) -> None:
    bench.server.put(raw_service("late"))
    bench.see()

    def change(*_: object) -> None:
        bench.server.before = nothing
        bench.server.set_type("default/late", "ClusterIP")

    bench.server.before = change
    bench.work()
    bench.see(1)  # the owner's change, and not our write after it
    bench.clock.advance(1.0)
    assert bench.work() == ["default/late"]
    bench.settle()
    assert bench.server.services["default/late"]["metadata"]["finalizers"] == []
    assert not note_of(SERVICES.parse(bench.server.services["default/late"]))


def test_nor_does_one_stay_that_was_put_back_in_that_moment(bench: Bench) -> None:
    def strip(raw: Raw) -> None:
        raw["metadata"]["finalizers"] = []
        raw["status"] = {"loadBalancer": {}}

    def change(*_: object) -> None:
        bench.server.before = nothing
        bench.server.set_type(KEY, "ClusterIP")

    bench.server.edit(KEY, strip)
    bench.see()
    bench.server.before = change
    bench.server.refuses_status = True
    bench.work()
    bench.server.refuses_status = False
    bench.see(1)  # the owner's change, and not our finalizer after it
    bench.clock.advance(1.0)
    assert bench.work() == [KEY]
    bench.settle()
    assert bench.server.services[KEY]["metadata"]["finalizers"] == []
