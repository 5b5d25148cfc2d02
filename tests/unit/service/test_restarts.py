"""What a new process believes of what the former one wrote on a Service: rows S7 and S8."""

from __future__ import annotations

import pytest
from kubernetes.client.models.v1_service import V1Service

from cloudprovider import CloudProviderError, RetryError, Throttled
from controllers.cloudcalls import CallsClosed
from controllers.runtime.api import ServerError
from controllers.service.changes import APPLIED
from tests.support.controllers import Fault, Raw
from tests.unit.service.bench import Bench
from tests.unit.service.objects import FINALIZER, raw_node


def _web(bench: Bench) -> Raw:
    return bench.server.services["default/web"]


@pytest.fixture
def bench() -> Bench:
    return Bench("n1")


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


@pytest.mark.row("S7", "S13")
@pytest.mark.parametrize("error", [CloudProviderError("bang"), RetryError("busy", 60.0), Throttled()])
@pytest.mark.parametrize("looking", [True, False])
def test_after_an_update_that_failed_halfway_a_new_process_trusts_nothing(
    bench: Bench, error: Exception, looking: bool
) -> None:
    bench.serve()
    bench.server.put(raw_node("n2", "10.0.0.2"))
    bench.cloud.faults.append(Fault(error, after=True))
    if not looking:
        bench.cloud.fail["get"] = CloudProviderError("down")
    bench.settle(rounds=2)
    assert bench.cloud.count("update") == 1
    bench.server.delete("n2")  # the targets are again those that the note told of
    bench.cloud.fail.clear()
    bench.start()
    bench.settle()
    assert [balancer.nodes for balancer in bench.cloud.balancers.values()] == [bench.wanted_nodes()]


@pytest.mark.row("S7", "S13")
def test_so_it_is_after_a_check_for_drift_that_brought_other_targets_and_failed(bench: Bench) -> None:
    bench.serve()
    bench.clock.advance(43200.0)
    bench.server.put(raw_node("n2", "10.0.0.2"))
    bench.see()

    def fail_ensure(method: str, _: V1Service) -> None:
        if method == "ensure":
            bench.cloud.faults.append(Fault(CloudProviderError("bang"), after=True))

    bench.cloud.during = fail_ensure
    bench.work()
    assert bench.cloud.methods() == ["get", "ensure"]
    bench.cloud.during = lambda *_: None
    bench.server.delete("n2")
    bench.start()
    bench.settle()
    assert [balancer.nodes for balancer in bench.cloud.balancers.values()] == [bench.wanted_nodes()]


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
