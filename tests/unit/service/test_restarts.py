"""What a new process believes of what the former one wrote on a Service: rows S7, S8 and S26."""

from __future__ import annotations

import pytest
from kubernetes.client.models.v1_service import V1Service

from cloudprovider import CloudProviderError, InvalidService, NotImplementedByProvider, RetryError
from cloudprovider.helpers import annotations_of, ports_of
from controllers.cloudcalls import CallsClosed
from controllers.runtime.api import ServerError
from controllers.service.changes import APPLIED, ingress, status_of
from tests.support.controllers import Fault, Raw
from tests.support.there import there
from tests.unit.service.bench import Bench
from tests.unit.service.objects import FINALIZER, raw_node, raw_service


def _web(bench: Bench) -> Raw:
    return bench.server.services["default/web"]


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


WAYS = {
    "spec": lambda raw: raw["spec"].update(ports=[{"port": 81}]),
    "annotation": lambda raw: raw["metadata"]["annotations"].update({"example.com/size": "xxl"}),
    "our note": lambda raw: raw["metadata"]["annotations"].update({APPLIED: "v0"}),
    "no note": lambda raw: raw["metadata"].update(annotations={}),
    "finalizer": lambda raw: raw["metadata"].update(finalizers=[]),
    "status": lambda raw: raw.update(status={"loadBalancer": {}}),
    "our note and finalizer": lambda raw: raw["metadata"].update(annotations={APPLIED: "v0"}, finalizers=[]),
    "nothing": lambda raw: None,
}


@pytest.mark.row("S26")
@pytest.mark.parametrize("error", [InvalidService("no"), CloudProviderError("no"), RetryError("busy", 5.0)])
@pytest.mark.parametrize("change", [*WAYS, "revision", "identity"])
def test_targets_follow_the_nodes_while_a_new_process_cannot_ensure(
    bench: Bench, change: str, error: Exception
) -> None:
    bench.serve()
    if change == "revision":
        bench.cloud.revisions.append("r2")
    elif change == "identity":
        bench.identity.append("another cluster")
    else:
        bench.server.edit("default/web", WAYS[change])
    bench.cloud.fail["ensure"] = error
    bench.start()
    bench.settle()
    bench.server.put(raw_node("n2", "10.0.0.2"))
    bench.settle()
    bench.server.delete("n1")
    bench.settle()
    (balancer,) = bench.cloud.balancers.values()
    assert balancer.nodes == bench.wanted_nodes()
    assert bench.cloud.count("get") == 1, "it was asked once whether there is one"


@pytest.mark.row("S26")
def test_one_that_another_process_built_and_that_is_missing_gets_no_update(bench: Bench) -> None:
    bench.serve()
    bench.cloud.balancers.clear()
    bench.cloud.fail["ensure"] = InvalidService("no")
    bench.cloud.revisions.append("r2")
    bench.start()
    bench.settle()
    bench.server.put(raw_node("n2", "10.0.0.2"))
    bench.settle(rounds=70)
    assert bench.cloud.count("update") == 0
    assert bench.cloud.count("get") == 1


@pytest.mark.row("S26")
def test_a_look_that_fails_is_repeated_at_the_next_try(bench: Bench) -> None:
    bench.serve()
    bench.cloud.revisions.append("r2")
    bench.cloud.fail |= {"ensure": CloudProviderError("no"), "get": CloudProviderError("down")}
    bench.start()
    bench.server.put(raw_node("n2", "10.0.0.2"))
    bench.settle()
    assert bench.cloud.count("update") == 0
    del bench.cloud.fail["get"]
    bench.settle(rounds=70)
    (balancer,) = bench.cloud.balancers.values()
    assert balancer.nodes == bench.wanted_nodes()


@pytest.mark.row("S26")
def test_of_a_provider_that_cannot_be_asked_the_service_s_own_word_counts(bench: Bench) -> None:
    bench.serve()
    bench.cloud.revisions.append("r2")
    bench.cloud.fail |= {"ensure": CloudProviderError("no"), "get": NotImplementedByProvider()}
    bench.start()
    bench.server.put(raw_node("n2", "10.0.0.2"))
    bench.settle()
    (balancer,) = bench.cloud.balancers.values()
    assert balancer.nodes == bench.wanted_nodes()


@pytest.mark.row("S30")
def test_targets_are_set_with_the_status_of_now_while_a_change_waits(served: Bench) -> None:
    served.server.edit("default/web", lambda raw: raw["metadata"]["annotations"].update({"example.com/size": "xxl"}))
    served.server.edit("default/web", lambda raw: raw["metadata"].update(labels={"team": "blue"}))
    served.cloud.fail["ensure"] = InvalidService("no such size")
    served.settle()
    served.server.put(raw_node("n2", "10.0.0.2"))
    served.forget()
    served.settle()
    assert served.cloud.methods() == ["update"]
    (given,) = served.cloud.given
    assert "example.com/size" not in annotations_of(given)
    assert ingress(status_of(given)), "providers find the load balancer by it"
    assert there(given.metadata).labels == {"team": "blue"}


@pytest.mark.row("S7")
def test_a_new_process_that_finds_all_in_order_asks_once_and_writes_nothing(bench: Bench) -> None:
    bench.serve()
    bench.start()
    bench.settle()
    assert bench.cloud.methods() == ["get"]
    assert bench.server.patches == []
    assert bench.recorder.events == []


def test_a_stopping_gateway_leaves_the_note_as_the_call_was_not_made(bench: Bench) -> None:
    bench.serve()
    bench.server.put(raw_node("n2", "10.0.0.2"))
    bench.cloud.fail["update"] = CallsClosed("stopping")
    bench.settle(rounds=2)
    assert bench.cloud.methods() == ["update"]
    assert bench.server.patches == []


def test_what_was_deleted_is_built_anew_whatever_the_cloud_still_shows(bench: Bench) -> None:
    bench.serve()
    bench.cloud.outdated = next(iter(bench.cloud.balancers.values())).status
    bench.server.edit("default/web", lambda raw: raw["spec"].update(type="ClusterIP"))
    bench.see()
    bench.cloud.during = lambda *_: bench.server.faults.append(Fault(ServerError("down", status=500)))
    bench.work()
    assert bench.cloud.methods() == ["delete"]
    bench.cloud.during = lambda *_: None
    bench.server.set_type("default/web", "LoadBalancer")
    bench.settle()
    assert bench.cloud.methods() == ["delete", "ensure"]


@pytest.mark.row("S8")
def test_a_service_that_was_given_a_class_is_cleaned_up_also_by_a_new_process(bench: Bench) -> None:
    bench.serve()
    bench.server.edit("default/web", lambda raw: raw["spec"].update(loadBalancerClass="example.com/other"))
    bench.start()
    bench.settle()
    assert bench.cloud.methods() == ["delete"]
    assert FINALIZER not in _web(bench)["metadata"]["finalizers"]
    assert APPLIED not in _web(bench)["metadata"]["annotations"]


@pytest.mark.row("S3")
def test_a_cache_that_is_behind_our_own_write_has_no_older_service_built(bench: Bench) -> None:
    """Once it had: the cache still showed our note without digest, so nothing was written before
    the cloud was asked to build the former ports, and the next process trusted the note for the
    latter."""
    bench.server.put(raw_service())
    bench.cloud.fail["ensure"] = CloudProviderError("not now")
    bench.see()
    bench.work()
    bench.see()  # our note, without digest: from here on the watch is silent
    bench.cloud.fail.clear()
    bench.clock.advance(2.0)
    bench.work()
    bench.server.edit("default/web", lambda raw: raw["spec"].update(ports=[{"port": 99}]))
    _show_a_new_node(bench)
    assert _ports(bench) == [99]
    bench.cloud.faults.append(Fault(CloudProviderError("it is built all the same"), after=True))
    bench.queue.add("default/web")
    bench.work()
    bench.cloud.faults.clear()
    bench.start()
    bench.settle()
    assert _ports(bench) == [99]


def _show_a_new_node(bench: Bench) -> None:
    """Of all changes since, the cache gets a new node alone."""
    bench.server.log.clear()
    bench.server.put(raw_node("n2", "10.0.0.2"))
    for _ in range(4):
        while bench.server.log and bench.server.log[0][0] == "nodes":
            bench.see(1)
        bench.work()
        bench.clock.advance(1.0)
    bench.server.log.clear()


def _ports(bench: Bench) -> list[int]:
    (balancer,) = bench.cloud.balancers.values()
    return [port["port"] for port in balancer.content["ports"]]


@pytest.mark.row("S3")
def test_a_new_process_whose_cache_is_behind_asks_the_server_before_it_builds(bench: Bench) -> None:
    """The former process failed half-way, so there is nothing to be written before the call. The
    cache is behind what the former one wrote and the owner changed afterwards."""
    bench.server.put(raw_service())
    bench.cloud.fail["ensure"] = CloudProviderError("not now")
    bench.see()
    bench.work()
    bench.start()  # its cache: the note without digest
    bench.cloud.fail.clear()
    bench.server.edit("default/web", lambda raw: raw["spec"].update(ports=[{"port": 99}]))
    bench.work()
    assert [_port(one) for one in bench.cloud.given[-1:]] == [99]
    bench.settle()
    assert _ports(bench) == [99]


@pytest.mark.row("S3")
@pytest.mark.parametrize("gone", ["deleted", "another one"])
def test_a_service_that_went_meanwhile_is_not_built(bench: Bench, gone: str) -> None:
    bench.server.put(raw_service())
    bench.cloud.fail["ensure"] = CloudProviderError("not now")
    bench.see()
    bench.work()
    bench.start()
    bench.cloud.fail.clear()
    bench.cloud.calls.clear()
    del bench.server.services["default/web"]
    if gone == "another one":
        bench.server.put({**raw_service(), "metadata": {**raw_service()["metadata"], "uid": "uid-other"}})
    bench.server.log.clear()
    bench.work()
    assert bench.cloud.methods() == []


@pytest.mark.row("S3")
def test_a_new_process_whose_cache_is_behind_deletes_nothing_that_is_wanted_again(bench: Bench) -> None:
    bench.serve()
    bench.server.set_type("default/web", "ClusterIP")
    bench.start()  # from here on the watch is silent
    bench.server.set_type("default/web", "LoadBalancer")
    bench.work()
    assert bench.cloud.methods() == []
    bench.settle()
    assert bench.cloud.methods() == ["ensure"]
    assert bench.server.services["default/web"]["status"]["loadBalancer"]["ingress"]


@pytest.mark.row("S29")
def test_a_provider_that_builds_no_more_still_deletes_what_it_built(bench: Bench) -> None:
    bench.serve()
    bench.cloud.elsewhere.add("default/web")  # it raises ImplementedElsewhere, as its setting asks
    bench.start()
    bench.server.put(raw_node("n2", "10.0.0.2"))
    bench.settle()
    assert bench.cloud.balancers
    bench.server.delete("default/web")
    bench.settle()
    assert bench.cloud.balancers == {}
    assert "default/web" not in bench.server.services


def _port(service: V1Service) -> int:
    (port,) = ports_of(service)
    return port.port
