"""One unit of work for a Service: what the cloud is asked, what is written and told, and when it is asked again.

The order of things at random is in test_sequences.py; here are the single cases.
"""

from __future__ import annotations

import pytest

from cloudprovider import CloudProviderError, NotImplementedByProvider, RetryError, Throttled
from controllers.cloudcalls import PRIORITY_NEW, PRIORITY_NORMAL, PRIORITY_SWEEP, CallsClosed
from controllers.service.changes import APPLIED
from tests.unit.service.bench import Bench
from tests.unit.service.objects import FINALIZER, Fault, Raw, excluded, raw_node, raw_service


def _web(bench: Bench) -> Raw:
    return bench.server.services["default/web"]


def test_a_new_service_takes_two_writes_and_one_call(bench: Bench) -> None:
    bench.server.put(raw_service())
    bench.settle()
    assert bench.cloud.methods() == ["ensure"]
    assert bench.cloud.priorities == [PRIORITY_NEW]
    assert [path for path, _ in bench.server.patches] == ["web", "web/status"]
    assert bench.recorder.reasons() == ["EnsuringLoadBalancer", "EnsuredLoadBalancer"]
    assert FINALIZER in _web(bench)["metadata"]["finalizers"]
    assert bench.server.lists == [], "nothing is asked of the API server that the cache proves"


@pytest.mark.row("S4")
@pytest.mark.parametrize("error", [RetryError("building", 30.0), Throttled("slow down", 30.0)])
@pytest.mark.parametrize("method", ["ensure", "update", "delete"])
def test_the_time_that_the_cloud_names_holds_against_events(bench: Bench, method: str, error: Exception) -> None:
    if method == "ensure":
        bench.server.put(raw_service())
        bench.cloud.fail["ensure"] = error
    else:
        bench.serve()
        bench.cloud.fail[method] = error
        if method == "update":
            bench.server.put(raw_node("n2", "10.0.0.2"))
        else:
            bench.server.delete("default/web")
    bench.settle(rounds=8, step=1.0)
    assert bench.cloud.count(method) == 1
    for number in range(5):  # what has nothing to do with the load balancer must not hasten it
        bench.server.edit("default/web", lambda raw, n=number: raw["status"].update(other=n))  # type: ignore[misc]
        bench.queue.add("default/web")
        bench.settle(rounds=2, step=1.0)
    assert bench.cloud.count(method) == 1
    bench.cloud.fail.clear()
    bench.settle(rounds=20, step=1.0)
    assert bench.cloud.count(method) == 2
    warnings = [reason for kind, reason, _ in bench.recorder.events if kind == "Warning"]
    assert bool(warnings) == isinstance(error, Throttled), "a cloud that is still at work has not failed"


@pytest.mark.row("S4")
def test_another_attempt_need_not_wait_for_the_time_of_the_last(bench: Bench) -> None:
    bench.server.put(raw_service())
    bench.cloud.faults.append(Fault(RetryError("building", 600.0)))
    bench.settle()
    bench.server.edit("default/web", lambda raw: raw["spec"].update(ports=[{"port": 81}]))
    bench.settle()
    assert bench.cloud.methods() == ["ensure", "ensure"]
    bench.cloud.faults.append(Fault(RetryError("busy", 600.0)))
    bench.server.edit("default/web", lambda raw: raw["spec"].update(ports=[{"port": 82}]))
    bench.settle()
    bench.server.delete("default/web")
    bench.settle()
    assert bench.cloud.methods()[-1] == "delete"
    assert "default/web" not in bench.server.services


def test_a_status_that_could_not_be_written_is_written_later_without_asking_the_cloud(bench: Bench) -> None:
    bench.server.put(raw_service())
    bench.see()
    from controllers.runtime.apierrors import ServerError

    bench.cloud.during = lambda *_: bench.server.faults.append(Fault(ServerError("down", status=500)))
    bench.work()
    assert "SyncLoadBalancerFailed" in bench.recorder.reasons()
    bench.settle()
    assert bench.cloud.methods() == ["ensure"]
    assert _web(bench)["status"]["loadBalancer"]["ingress"]


def test_a_finalizer_that_could_not_be_taken_off_is_taken_off_later_without_asking_the_cloud(bench: Bench) -> None:
    from controllers.runtime.apierrors import ServerError

    bench.serve()
    bench.server.delete("default/web")
    bench.see()
    bench.cloud.during = lambda *_: bench.server.faults.append(Fault(ServerError("down", status=500)))
    bench.work()
    assert "default/web" in bench.server.services
    bench.cloud.during = lambda *_: None
    bench.settle()
    assert bench.cloud.methods() == ["delete"]
    assert "default/web" not in bench.server.services


def test_targets_that_vanish_from_the_cache_alone_are_not_taken_out(bench: Bench) -> None:
    bench.serve()
    lost = bench.nodes.objects.pop("n1")
    bench.node_triggers.on_delete(lost)
    bench.settle()
    assert bench.cloud.calls == []
    assert [path for path, _ in bench.server.lists]
    bench.nodes.objects["n1"] = lost
    bench.node_triggers.on_add(lost, False)
    bench.settle(rounds=70)
    assert bench.cloud.calls == [], "they are as they were"
    bench.server.put(excluded("n1"))
    bench.settle(rounds=8)
    assert bench.cloud.methods() == ["update"]
    assert "UnAvailableLoadBalancer" in bench.recorder.reasons()


@pytest.mark.row("S2")
def test_a_check_for_drift_comes_in_its_time_and_gives_way_to_all_else(bench: Bench) -> None:
    bench.serve()
    bench.clock.advance(1700.0)
    bench.settle(rounds=1)
    assert bench.cloud.calls == []
    bench.clock.advance(100.0)
    bench.settle(rounds=1)
    assert bench.cloud.methods() == ["get", "ensure"]
    assert bench.cloud.priorities == [PRIORITY_SWEEP, PRIORITY_SWEEP]
    assert bench.server.patches == []
    assert bench.recorder.events == []
    bench.forget()
    bench.cloud.balancers.clear()
    bench.clock.advance(1800.0)
    bench.settle()
    assert bench.cloud.methods() == ["get", "ensure"]
    assert bench.recorder.reasons() == ["EnsuringLoadBalancer", "EnsuredLoadBalancer"]


def test_a_load_balancer_without_an_address_is_looked_at_again_soon(bench: Bench) -> None:
    bench.cloud.unfinished = True
    bench.server.put(raw_service())
    bench.settle()
    bench.cloud.unfinished = False
    bench.clock.advance(60.0)
    bench.settle()
    assert _web(bench)["status"]["loadBalancer"]["ingress"]


def test_a_provider_without_updates_is_ensured_instead(bench: Bench) -> None:
    bench.serve()
    bench.cloud.fail["update"] = NotImplementedByProvider("no such call")
    bench.server.put(raw_node("n2", "10.0.0.2"))
    bench.settle()
    assert bench.cloud.methods() == ["update", "ensure"]
    assert [balancer.nodes for balancer in bench.cloud.balancers.values()] == [bench.wanted_nodes()]


def test_an_update_that_fails_is_told_and_tried_again_and_a_missing_one_is_built(bench: Bench) -> None:
    bench.serve()
    bench.cloud.faults.append(Fault(CloudProviderError("quota")))
    bench.server.put(raw_node("n2", "10.0.0.2"))
    bench.settle()
    assert bench.cloud.methods() == ["update", "get", "update"]
    assert "UpdateLoadBalancerFailed" in bench.recorder.reasons()
    assert bench.metrics.value("service_controller_nodesync_error_total") == 1
    bench.forget()
    bench.cloud.balancers.clear()
    bench.server.put(raw_node("n3", "10.0.0.3"))
    bench.settle()
    assert bench.cloud.methods() == ["update", "get", "ensure"]
    assert bench.cloud.priorities[0] == PRIORITY_NORMAL
    assert "UpdateLoadBalancerFailed" not in bench.recorder.reasons()


@pytest.mark.row("S7")
@pytest.mark.parametrize("change", ["revision", "identity", "spec", "note", "finalizer", "status"])
def test_a_new_process_trusts_a_note_only_as_far_as_everything_matches(bench: Bench, change: str) -> None:
    bench.serve()
    if change == "revision":
        bench.cloud.revisions.append("r2")
    elif change == "identity":
        bench.identity.append("another cluster")
    elif change == "spec":
        bench.server.edit("default/web", lambda raw: raw["spec"].update(ports=[{"port": 81}]))
    elif change == "note":
        bench.server.edit("default/web", lambda raw: raw["metadata"]["annotations"].update({APPLIED: "v0"}))
    elif change == "finalizer":
        bench.server.edit("default/web", lambda raw: raw["metadata"].update(finalizers=[]))
    else:
        bench.server.edit("default/web", lambda raw: raw.update(status={"loadBalancer": {}}))
    bench.start()
    bench.settle()
    assert bench.cloud.methods() == ["ensure"]


@pytest.mark.row("S7")
def test_a_new_process_that_finds_all_in_order_asks_once_and_writes_nothing(bench: Bench) -> None:
    bench.serve()
    bench.start()
    bench.settle()
    assert bench.cloud.methods() == ["get"]
    assert bench.server.patches == []
    assert bench.recorder.events == []


@pytest.mark.row("S11")
def test_nothing_of_a_service_that_is_gone_is_kept(bench: Bench) -> None:
    bench.serve()
    bench.server.delete("default/web")
    bench.settle()
    assert "default/web" not in bench.records
    assert len(bench.queue) == 0


@pytest.mark.row("S3")
def test_a_service_that_the_api_server_still_has_is_never_cleaned_up_for_the_caches_sake(bench: Bench) -> None:
    bench.serve()
    bench.triggers.on_delete(bench.services.objects.pop("default/web"))
    bench.settle(rounds=3)
    assert bench.cloud.calls == []
    assert bench.server.lists, "it was asked"


def test_a_stopping_gateway_is_no_failure_of_the_service(bench: Bench) -> None:
    bench.cloud.fail["ensure"] = CallsClosed("stopping")
    bench.server.put(raw_service())
    bench.settle(rounds=2)
    assert "SyncLoadBalancerFailed" not in bench.recorder.reasons()


@pytest.fixture
def bench() -> Bench:
    return Bench("n1")
