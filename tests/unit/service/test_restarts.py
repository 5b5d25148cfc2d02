"""What a new process believes of what the former one wrote on a Service: rows S7 and S8."""

from __future__ import annotations

import pytest

from controllers.cloudcalls import CallsClosed
from controllers.runtime.api import ServerError
from controllers.service.changes import APPLIED
from tests.support.controllers import Fault, Raw
from tests.unit.service.bench import Bench
from tests.unit.service.objects import FINALIZER, raw_node


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
