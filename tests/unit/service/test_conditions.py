"""--load-balancer-conditions: the condition LoadBalancerReady says how far a load balancer is, goes
with the write that is due, and is written alone only when it says something new."""

from __future__ import annotations

from typing import Any

import pytest

from cloudprovider import (
    CloudProviderError,
    ImplementedElsewhere,
    InvalidService,
    Pending,
    QuotaExceeded,
    Throttled,
)
from controllers.runtime.api import ServerError
from controllers.service.changes import APPLIED, Classes
from controllers.service.conditions import TYPE
from controllers.service.records import LOOKING
from tests.support.controllers import Fault, Raw, nothing
from tests.unit.service.bench import Bench
from tests.unit.service.objects import SIZE, raw_node, raw_service

KEY = "default/web"
FOREIGN = {
    "type": "example.com/Other",
    "status": "True",
    "reason": "Fine",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


@pytest.fixture
def bench() -> Bench:
    return Bench("n1", conditions=True)


def _web(bench: Bench) -> Raw:
    return bench.server.services[KEY]


def _all(bench: Bench) -> list[Raw]:
    return list(_web(bench)["status"].get("conditions") or ())


def _shown(bench: Bench) -> Raw:
    return next((one for one in _all(bench) if one["type"] == TYPE), {})


def _said(bench: Bench) -> tuple[str, str]:
    found = _shown(bench)
    return found.get("status", ""), found.get("reason", "")


def _writes(bench: Bench) -> list[tuple[str, str]]:
    """What was written of the condition, in order."""
    bodies = [body.get("status") or {} for _, body in bench.server.patches]
    return [(one["status"], one["reason"]) for body in bodies for one in body.get("conditions", ())]


def _failing(bench: Bench, error: BaseException, rounds: int = 6) -> None:
    bench.cloud.faults.extend([Fault(error)] * 3)
    bench.server.put(raw_service())
    bench.settle(rounds)


def test_it_costs_no_write_where_the_load_balancer_is_built_at_once(bench: Bench) -> None:
    bench.server.put(raw_service())
    bench.settle()
    assert [path for path, _ in bench.server.patches] == ["web/status", "web/status"]
    assert _writes(bench) == [("False", "Building"), ("True", "Ready")]
    ip = _web(bench)["status"]["loadBalancer"]["ingress"][0]["ip"]
    assert _shown(bench)["message"] == f"The load balancer has the address {ip}"
    bench.forget()
    bench.settle(rounds=5, step=1800.0)
    bench.start()
    bench.settle()
    assert bench.server.patches == []


def test_off_it_is_left_as_it_is() -> None:
    bench = Bench("n1")
    stale = FOREIGN | {"type": TYPE}
    raw = raw_service()
    raw["status"]["conditions"] = [stale]
    bench.server.put(raw)
    bench.settle()
    assert _all(bench) == [stale]
    bench.server.set_type(KEY, "ClusterIP")
    bench.settle()
    assert _all(bench) == [stale]
    assert _writes(bench) == []


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Pending("load balancer lb-1 is PENDING_CREATE"), "Pending"),
        (InvalidService("port 80 is reserved"), "Refused"),
        (QuotaExceeded("10 of 10 load balancers"), "QuotaExceeded"),
        (Throttled("slow down", 30.0), "Throttled"),
        (CloudProviderError("HTTP 500"), "Failed"),
    ],
)
def test_why_there_is_none(bench: Bench, error: Exception, reason: str) -> None:
    _failing(bench, error)
    assert _said(bench) == ("False", reason)
    assert _shown(bench)["message"] == str(error)
    assert _writes(bench) == [("False", "Building"), ("False", reason)]


def test_it_is_ready_when_the_cloud_has_built_it_in_the_end(bench: Bench) -> None:
    _failing(bench, CloudProviderError("HTTP 500"))
    before = _shown(bench)["lastTransitionTime"]
    bench.settle(rounds=20, step=30.0)
    assert _said(bench) == ("True", "Ready")
    assert _shown(bench)["lastTransitionTime"] != before
    assert _writes(bench) == [("False", "Building"), ("False", "Failed"), ("True", "Ready")]


def test_its_time_stays_while_its_status_does(bench: Bench) -> None:
    bench.cloud.faults += [Fault(Pending("at work")), Fault(CloudProviderError("HTTP 500"))]
    bench.server.put(raw_service())
    bench.see()
    bench.work()
    first = _shown(bench)
    bench.clock.advance(60.0)
    bench.see()
    bench.work()
    assert (first["reason"], _shown(bench)["reason"]) == ("Pending", "Failed")
    assert _shown(bench)["lastTransitionTime"] == first["lastTransitionTime"]


def test_a_message_with_changing_numbers_is_written_once(bench: Bench) -> None:
    bench.cloud.faults += [Fault(CloudProviderError(f"HTTP 500, request 1f-{n}, {n} %")) for n in range(40)]
    bench.server.put(raw_service())
    bench.settle(rounds=40, step=61.0)
    assert bench.cloud.count("ensure") > 20
    assert _writes(bench) == [("False", "Building"), ("False", "Failed")]


def test_messages_of_other_words_are_written_ever_more_slowly(bench: Bench) -> None:
    words = ["refused", "reset", "timeout"]
    bench.cloud.faults += [Fault(CloudProviderError(words[n % 3])) for n in range(400)]
    bench.server.put(raw_service())
    bench.settle(rounds=180, step=20.0)  # an hour
    assert bench.cloud.count("ensure") > 50
    assert 5 <= len(_writes(bench)) <= 24


@pytest.mark.row("S14")
def test_conditions_of_others_stay(bench: Bench) -> None:
    raw = raw_service()
    raw["status"]["conditions"] = [FOREIGN]
    bench.server.put(raw)
    bench.settle()
    assert FOREIGN in _all(bench)
    assert _said(bench) == ("True", "Ready")
    bench.server.set_type(KEY, "ClusterIP")
    bench.settle()
    assert _all(bench) == [FOREIGN]


def test_it_goes_with_finalizer_and_note_in_one_write(bench: Bench) -> None:
    bench.serve()
    bench.server.set_type(KEY, "ClusterIP")
    bench.settle()
    assert _all(bench) == []
    assert APPLIED not in _web(bench)["metadata"]["annotations"]
    assert [path for path, _ in bench.server.patches] == ["web/status"]


def test_a_deletion_that_fails_is_told(bench: Bench) -> None:
    bench.serve()
    bench.cloud.faults += [Fault(CloudProviderError("HTTP 500"))] * 3
    bench.server.set_type(KEY, "ClusterIP")
    bench.see()
    bench.work()
    assert _said(bench) == ("False", "Deleting")
    assert _shown(bench)["message"] == "The load balancer is to be deleted: HTTP 500"
    bench.settle(rounds=20, step=30.0)
    assert _all(bench) == []


def test_a_change_is_told_while_it_is_under_way_and_when_it_is_refused(bench: Bench) -> None:
    bench.serve()
    bench.cloud.refused = {"huge"}
    bench.server.edit(KEY, lambda raw: raw["metadata"]["annotations"].update({SIZE: "huge"}))
    bench.settle()
    assert _writes(bench) == [("False", "Building"), ("False", "Refused")]
    bench.server.edit(KEY, lambda raw: raw["metadata"]["annotations"].update({SIZE: "small"}))
    bench.settle()
    assert _writes(bench)[2:] == [("False", "Building"), ("True", "Ready")]


def test_one_that_serves_stays_ready_when_its_nodes_change_or_a_look_fails(bench: Bench) -> None:
    bench.serve()
    bench.server.put(raw_node("n2", "10.0.0.9"))
    bench.settle()
    assert "update" in bench.cloud.methods()
    bench.cloud.faults.append(Fault(CloudProviderError("HTTP 500")))
    bench.settle(rounds=1, step=1800.0)
    bench.settle(rounds=1)
    assert _writes(bench) == []
    assert _said(bench) == ("True", "Ready")


def test_a_load_balancer_without_an_address_is_not_ready(bench: Bench) -> None:
    bench.cloud.unfinished = True
    bench.server.put(raw_service())
    bench.settle()
    assert _said(bench) == ("False", "Pending")
    bench.cloud.unfinished = False
    bench.settle(rounds=4, step=60.0)
    assert _said(bench) == ("True", "Ready")


def test_one_that_is_missing_is_built_again(bench: Bench) -> None:
    bench.serve()
    bench.cloud.balancers.clear()
    bench.settle(rounds=3, step=1800.0)
    assert _writes(bench) == [("False", "Building"), ("True", "Ready")]


def test_a_new_process_that_cannot_read_the_cloud_does_not_know(bench: Bench) -> None:
    bench.serve()
    bench.cloud.faults += [Fault(CloudProviderError("no route to host"))] * 100
    bench.start()
    bench.settle(rounds=3)
    assert _said(bench) == ("Unknown", "Failed")
    bench.cloud.faults.clear()
    bench.settle(rounds=3, step=60.0)
    assert _said(bench) == ("True", "Ready")


def test_of_what_another_controller_builds_nothing_is_said(bench: Bench) -> None:
    bench.cloud.elsewhere.add(KEY)
    bench.server.put(raw_service())
    bench.settle()
    assert _all(bench) == []

    def built_by_others(raw: Raw) -> None:
        raw["status"] = {"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}]}, "conditions": [FOREIGN | {"type": TYPE}]}

    bench.server.edit(KEY, built_by_others)
    bench.forget()
    bench.settle(rounds=5, step=43200.0)
    bench.start()
    bench.settle()
    assert _writes(bench) == []


def test_somebody_who_takes_it_off_is_not_fought(bench: Bench) -> None:
    bench.serve()
    for _ in range(60):
        bench.server.edit(KEY, lambda raw: raw["status"].pop("conditions", None))
        bench.server.edit(KEY, lambda raw: raw["metadata"]["annotations"].update({SIZE: "small"}))
        bench.settle(rounds=1, step=0.5)
        bench.server.edit(KEY, lambda raw: raw["metadata"]["annotations"].pop(SIZE))
        bench.settle(rounds=1, step=0.5)
    assert len(bench.server.patches) <= 45  # five changes at once, each with two writes, and then ever fewer
    bench.settle(rounds=40, step=60.0)
    assert _said(bench) == ("True", "Ready")


def test_changes_that_wait_are_told(bench: Bench) -> None:
    bench.serve()
    for number in range(8):
        bench.server.edit(KEY, lambda raw, n=number: raw["metadata"]["annotations"].update({SIZE: str(n)}))  # type: ignore[misc]  # a loop's variable
        bench.settle(rounds=1, step=0.5)
    assert _said(bench) == ("False", "ChangesDelayed")
    bench.settle(rounds=20, step=30.0)
    assert _said(bench) == ("True", "Ready")


def test_it_is_not_ready_before_the_service_has_its_address(bench: Bench) -> None:
    def refused(_name: str, body: Raw) -> None:
        if "loadBalancer" in body.get("status", {}):
            raise ServerError("etcd is full", status=500, method="PATCH", path="")

    bench.server.before = refused
    bench.server.put(raw_service())
    bench.settle()
    assert bench.cloud.balancers
    assert _said(bench) == ("False", "Failed")
    assert "etcd is full" in _shown(bench)["message"]
    bench.server.before = nothing
    bench.settle(rounds=4, step=30.0)
    assert _said(bench) == ("True", "Ready")


def test_a_write_that_fails_is_tried_again(bench: Bench) -> None:
    bench.serve()
    bench.server.edit(KEY, lambda raw: raw["status"].pop("conditions"))
    bench.start()
    error = ServerError("no", status=500, method="PATCH", path="")
    bench.server.faults += [Fault(error), Fault(error, after=True)]
    bench.settle(rounds=1)
    assert _all(bench) == []
    bench.settle(rounds=6)
    assert _said(bench) == ("True", "Ready")


def test_waiting_for_the_manager_of_another_class_is_told() -> None:
    bench = Bench("n1", conditions=True)
    bench.serve()
    bench.server.set_type(KEY, "ClusterIP")
    bench.server.set_type(KEY, "LoadBalancer")
    bench.server.edit(KEY, lambda raw: raw["spec"].update({"loadBalancerClass": "acme.example/lb"}))
    bench.classes = Classes(["acme.example/lb"])
    bench.start()
    bench.settle()
    assert _said(bench) == ("False", "Waiting")
    bench.settle(rounds=4, step=LOOKING / 3)
    assert _said(bench) == ("True", "Ready")


def test_the_generation_that_it_is_about(bench: Bench) -> None:
    """Services have none in Kubernetes 1.37, but kubectl wait compares it where there is one."""
    raw: dict[str, Any] = raw_service()
    raw["metadata"]["generation"] = 7
    bench.server.put(raw)
    bench.settle()
    assert _shown(bench)["observedGeneration"] == 7


def test_what_is_implemented_elsewhere_while_it_is_deleted(bench: Bench) -> None:
    bench.serve()
    bench.cloud.faults.append(Fault(ImplementedElsewhere("not mine")))
    bench.server.set_type(KEY, "ClusterIP")
    bench.settle()
    assert _all(bench) == []


def test_a_credential_in_an_error_is_not_shown(bench: Bench) -> None:
    """As in Events: tenants read the status of their Services."""
    _failing(bench, CloudProviderError("401\nAuthorization: Bearer abcdefghijklmnopqrstuvwxyz012345"))
    message = _shown(bench)["message"]
    assert "abcdefghij" not in message
    assert "\n" not in message
    assert message.startswith("401")


def test_what_was_written_before_another_controller_builds_it_goes(bench: Bench) -> None:
    bench.cloud.faults += [Fault(CloudProviderError("HTTP 500")), Fault(ImplementedElsewhere("not mine"))]
    bench.server.put(raw_service())
    bench.settle(rounds=10)
    assert bench.cloud.methods()[-1] == "ensure"
    assert _all(bench) == []


def test_ready_goes_when_a_new_process_leaves_it_to_another_controller(bench: Bench) -> None:
    bench.serve()
    bench.cloud.elsewhere.add(KEY)
    bench.cloud.revisions.append("r2")
    bench.start()
    bench.settle()
    assert _all(bench) == []


def test_the_word_of_the_controller_that_builds_it_stays(bench: Bench) -> None:
    bench.cloud.elsewhere.add(KEY)
    foreign = FOREIGN | {"type": TYPE, "reason": "Ready", "message": "mine"}
    raw = raw_service()
    raw["status"]["conditions"] = [foreign]
    raw["status"]["loadBalancer"] = {"ingress": [{"ip": "192.0.2.77"}]}
    bench.server.put(raw)
    bench.settle()
    assert _all(bench) == [foreign]


def test_the_word_of_the_controller_of_another_class_stays(bench: Bench) -> None:
    """It has the Service now, while ours is still to be deleted."""
    bench.serve()
    foreign = FOREIGN | {"type": TYPE}

    def moved(raw: Raw) -> None:
        raw["spec"]["loadBalancerClass"] = "other.example/lb"
        raw["status"] = {"conditions": [foreign]}

    bench.cloud.fail["delete"] = CloudProviderError("HTTP 500")
    bench.server.edit(KEY, moved)
    bench.settle()
    assert _all(bench) == [foreign]
    bench.cloud.fail.clear()
    bench.settle(rounds=10, step=30.0)
    assert bench.cloud.balancers == {}
    assert APPLIED not in _web(bench)["metadata"]["annotations"]
    assert _all(bench) == [foreign]
