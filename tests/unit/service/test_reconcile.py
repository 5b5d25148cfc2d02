"""One unit of work for a Service: what the cloud is asked, what is written and told, and when it is
asked again.

The order of things at random is in test_sequences.py; here are the single cases.
"""

from __future__ import annotations

import pytest
from kubernetes.client.models.v1_service import V1Service

from cloudprovider import (
    CloudProviderError,
    InvalidAnnotations,
    NotImplementedByProvider,
    RetryError,
    Throttled,
)
from controllers.cloudcalls import PRIORITY_NEW, PRIORITY_NORMAL, CallsClosed
from controllers.runtime.api import ServerError
from controllers.runtime.cache import uid_of
from tests.support.controllers import Fault, Raw
from tests.unit.service.bench import Bench
from tests.unit.service.objects import FINALIZER, excluded, raw_node, raw_service, service


def _web(bench: Bench) -> Raw:
    return bench.server.services["default/web"]


def _other_port(web: V1Service, port: int) -> V1Service:
    return service(uid=uid_of(web), finalizers=[FINALIZER], port=port)


def test_a_new_service_takes_two_writes_and_one_call(bench: Bench) -> None:
    bench.server.put(raw_service())
    bench.settle()
    assert bench.cloud.methods() == ["ensure"]
    assert bench.cloud.priorities == [PRIORITY_NEW]
    assert [path for path, _ in bench.server.patches] == ["web", "web/status"]
    assert bench.recorder.reasons() == ["EnsuringLoadBalancer", "EnsuredLoadBalancer"]
    assert FINALIZER in _web(bench)["metadata"]["finalizers"]
    assert bench.server.gets == [], "nothing is asked of the API server that the cache proves"


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
    warnings = bench.recorder.reasons(type="Warning")
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
    bench.cloud.during = lambda *_: bench.server.faults.append(Fault(ServerError("down", status=500)))
    bench.work()
    assert "SyncLoadBalancerFailed" in bench.recorder.reasons()
    bench.settle()
    assert bench.cloud.methods() == ["ensure"]
    assert _web(bench)["status"]["loadBalancer"]["ingress"]


def test_a_finalizer_that_could_not_be_taken_off_is_taken_off_later_without_asking_the_cloud(bench: Bench) -> None:
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


@pytest.mark.row("K2")
def test_a_status_lost_in_a_restored_server_is_written_again_without_asking_the_cloud(bench: Bench) -> None:
    bench.serve()
    bench.server.version = 10  # as in the backup, from before our last writes
    bench.server.edit("default/web", lambda raw: raw["status"].update(loadBalancer={}))
    bench.settle()
    assert bench.cloud.methods() == []
    assert _web(bench)["status"]["loadBalancer"]["ingress"]


@pytest.mark.row("K2")
def test_nor_is_it_lost_when_the_cloud_is_looked_at_in_that_moment(bench: Bench) -> None:
    def restore(*_: object) -> None:
        bench.cloud.during = lambda *_: None
        bench.server.version = 10
        bench.server.edit("default/web", lambda raw: raw.update(status={"loadBalancer": {}}))
        bench.server.edit("default/web", lambda raw: raw["metadata"].update(finalizers=[], annotations={}))
        bench.see()

    bench.serve()
    written = _web(bench)
    bench.cloud.during = restore
    bench.clock.advance(1800.0)
    bench.settle()
    assert bench.cloud.methods() == ["get"]
    for part in ("finalizers", "annotations"):
        assert _web(bench)["metadata"][part] == written["metadata"][part]
    assert _web(bench)["status"] == written["status"]


def test_targets_that_vanish_from_the_cache_alone_are_not_taken_out(bench: Bench) -> None:
    bench.serve()
    lost = bench.nodes.objects.pop("n1")
    bench.sync.on_delete(lost)
    bench.settle()
    assert bench.cloud.calls == []
    assert [path for path, _ in bench.server.gets]
    bench.nodes.objects["n1"] = lost
    bench.sync.on_add(lost, False)
    bench.settle(rounds=70)
    assert bench.cloud.calls == [], "they are as they were"
    bench.server.put(excluded("n1"))
    bench.settle(rounds=8)
    assert bench.cloud.methods() == ["update"]
    assert (
        "There are no available nodes for LoadBalancer: 1 left out by the label "
        "node.kubernetes.io/exclude-from-external-load-balancers"
    ) in bench.recorder.messages()


def test_a_provider_without_updates_is_ensured_instead(bench: Bench) -> None:
    bench.serve()
    bench.cloud.fail["update"] = NotImplementedByProvider("no such call")
    bench.server.put(raw_node("n2", "10.0.0.2"))
    bench.settle()
    assert bench.cloud.methods() == ["update", "ensure"]
    assert [balancer.nodes for balancer in bench.cloud.balancers.values()] == [bench.wanted_nodes()]


@pytest.mark.row("S22", "S25")
def test_an_update_that_fails_is_told_and_followed_by_ensure_and_a_missing_one_is_built(bench: Bench) -> None:
    bench.serve()
    bench.cloud.faults.append(Fault(CloudProviderError("quota")))
    bench.server.put(raw_node("n2", "10.0.0.2"))
    bench.settle()
    assert bench.cloud.methods() == ["update", "get", "ensure"]
    assert bench.cloud.priorities == [PRIORITY_NORMAL] * 3
    assert bench.recorder.reasons() == ["UpdateLoadBalancerFailed", "EnsuringLoadBalancer", "EnsuredLoadBalancer"]
    assert bench.metrics.value("service_controller_nodesync_error_total") == 1
    bench.forget()
    bench.cloud.balancers.clear()
    bench.server.put(raw_node("n3", "10.0.0.3"))
    bench.settle()
    assert bench.cloud.methods() == ["update", "get", "ensure"]
    assert bench.cloud.priorities == [PRIORITY_NORMAL, PRIORITY_NORMAL, PRIORITY_NEW], "it is built, not changed"
    assert "UpdateLoadBalancerFailed" in bench.recorder.reasons()


@pytest.mark.row("S4")
@pytest.mark.parametrize("next_attempt", ["update", "delete"])
def test_a_time_named_for_one_attempt_does_not_hold_back_the_next_that_fails(bench: Bench, next_attempt: str) -> None:
    bench.serve()
    bench.server.put(raw_node("n2", "10.0.0.2"))
    bench.cloud.faults.append(Fault(RetryError("busy", 600.0)))
    bench.settle(rounds=3)
    bench.forget()
    bench.cloud.fail[next_attempt] = bench.cloud.fail["ensure"] = CloudProviderError("bang")
    if next_attempt == "delete":
        bench.server.delete("default/web")
    else:
        bench.server.put(raw_node("n3", "10.0.0.3"))
    bench.settle(rounds=6)
    assert bench.cloud.count(next_attempt) > 1, "it is tried again with backoff"


@pytest.mark.row("S3", "S6")
def test_while_a_call_runs_no_event_starts_another_for_that_service(bench: Bench) -> None:
    """A node that joins while a Service is built or deleted: measured with Go, that leaves an
    orphan."""
    bench.serve("other")
    seen: list[tuple[str, list[str]]] = []

    def meanwhile(method: str, web: V1Service) -> None:
        if uid_of(web) != "uid-web":
            return
        bench.server.put(raw_node(f"n{len(seen) + 2}", f"10.0.1.{len(seen) + 2}"))
        bench.triggers.on_update(web, _other_port(web, 81 + len(seen)))
        bench.see()
        bench.clock.advance(6.0)
        while (key := bench.node_queue.get(timeout=0)) is not None:
            bench.sync.sync(key)
            bench.node_queue.done(key)
        seen.append((method, bench.waiting()))

    bench.cloud.during = meanwhile
    bench.server.put(raw_service())
    bench.see()
    bench.work(most=1)
    bench.server.delete("default/web")
    bench.see()
    bench.clock.advance(1.0)
    bench.work(most=1)
    assert [method for method, _ in seen] == ["ensure", "delete"]
    for _, keys in seen:
        assert "default/web" not in keys, "it is being worked on"
    assert "default/other" in seen[0][1], "others go on"
    bench.cloud.during = lambda *_: None
    bench.settle()
    assert [balancer.key for balancer in bench.cloud.balancers.values()] == ["default/other"]


@pytest.mark.row("S9")
def test_a_service_under_deletion_is_never_given_a_finalizer_nor_a_load_balancer(bench: Bench) -> None:
    bench.server.put(raw_service(finalizers=["example.com/other"], deleted=True))
    bench.settle()
    assert bench.cloud.count("ensure") == 0
    assert _web(bench)["metadata"]["finalizers"] == ["example.com/other"]
    # Nor when the cache does not know yet that it is being deleted.
    bench = Bench("n1")
    bench.server.put(raw_service(finalizers=["example.com/other"]))
    bench.see()
    bench.server.delete("default/web")
    bench.work()
    bench.settle()
    assert bench.cloud.count("ensure") == 0
    assert _web(bench)["metadata"]["finalizers"] == ["example.com/other"]


def test_another_controllers_service_is_left_to_it_and_asked_about_again_in_time(bench: Bench) -> None:
    bench.cloud.elsewhere.add("default/web")
    bench.server.put(raw_service())
    bench.settle()
    bench.server.put(raw_node("n2", "10.0.0.2"))
    bench.settle()
    assert bench.cloud.methods() == ["ensure"]
    assert _web(bench)["status"]["loadBalancer"] == {}
    assert bench.recorder.reasons(type="Warning") == []
    bench.cloud.elsewhere.clear()
    bench.clock.advance(43200.0)
    bench.settle()
    assert bench.cloud.methods() == ["ensure", "ensure"]
    assert _web(bench)["status"]["loadBalancer"]["ingress"]


def test_the_former_load_balancer_goes_before_the_one_of_a_service_made_anew_is_built(bench: Bench) -> None:
    bench.serve()
    bench.server.edit("default/web", lambda raw: raw["metadata"].update(finalizers=[]))
    bench.server.delete("default/web")
    bench.server.put(raw_service(uid="second"))
    bench.server.log.clear()
    old = bench.services.objects["default/web"]
    bench.services.objects["default/web"] = new = service(uid="second")  # a relist shows both changes as one
    bench.triggers.on_update(old, new)
    bench.cloud.faults.append(Fault(CloudProviderError("not yet")))
    bench.settle()
    assert bench.cloud.methods() == ["delete", "get", "delete", "ensure"]
    assert list(bench.cloud.balancers) == ["second"]
    assert bench.recorder.reasons().count("DeleteLoadBalancerFailed") == 1


@pytest.mark.row("S11")
def test_nothing_of_a_service_that_is_gone_is_kept(bench: Bench) -> None:
    gauge = "service_controller_load_balancers"
    bench.serve()
    assert bench.metrics.value(gauge) == 1
    bench.server.set_type("default/web", "ClusterIP")
    bench.settle()
    assert bench.metrics.value(gauge) == 0
    assert "default/web" in bench.records, "a finalizer that appears now is another controller's"
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
    assert bench.server.gets, "it was asked"


def test_a_stopping_gateway_is_no_failure_of_the_service(bench: Bench) -> None:
    bench.cloud.fail["ensure"] = CallsClosed("stopping")
    bench.server.put(raw_service())
    bench.settle(rounds=2)
    assert "SyncLoadBalancerFailed" not in bench.recorder.reasons()


@pytest.mark.parametrize("method", ["ensure", "update"])
def test_a_service_that_its_owner_must_change_is_told_once_and_not_tried_again_before_that(
    bench: Bench, method: str
) -> None:
    if method == "ensure":
        bench.server.put(raw_service())
    else:
        bench.serve()
        bench.server.put(raw_node("n2", "10.0.0.2"))
    bench.recorder.events.clear()
    bench.cloud.fail["ensure"] = bench.cloud.fail["update"] = InvalidAnnotations(
        "acme.example/internal: 'yes' cannot be used", "acme.example/x: ..."
    )
    bench.settle(rounds=30, step=10.0)
    assert bench.cloud.count(method) == 1
    bench.settle(rounds=15, step=300.0)
    assert bench.cloud.count(method) == 2, "again after an hour: the provider's configuration may have changed"
    told, *_ = bench.recorder.messages("Warning")
    assert told.endswith(": acme.example/internal: 'yes' cannot be used; acme.example/x: ...")
    bench.cloud.fail.clear()
    bench.server.edit("default/web", lambda raw: raw["metadata"].setdefault("annotations", {}).update(x="y"))
    bench.settle(rounds=5, step=1.0)
    assert bench.cloud.methods()[-1] == "ensure"
    assert bench.recorder.reasons()[-1] == "EnsuredLoadBalancer"
