"""Load balancers without a Service are reported, and nothing else happens to them: row S10."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from cloudprovider import CloudProviderError, OwnedLoadBalancer
from controllers.cloudcalls import AnswerMissing
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import WorkQueue
from controllers.service.calls import KubeSystemUID, ServiceCloud
from controllers.service.orphans import KUBE_SYSTEM, Orphans, orphans
from controllers.service.records import Record, Records
from tests.support.clock import FakeClock
from tests.support.controllers import Lister, Recorder, refuse
from tests.unit.service.objects import CLUSTER, FINALIZER, KIND, Cloud, service

pytestmark = pytest.mark.row("S10")

GAUGE = "service_controller_orphaned_load_balancers"
ERRORS = "service_controller_orphan_check_errors_total"


def _owned(name: str, uid: str | None = None) -> OwnedLoadBalancer:
    return OwnedLoadBalancer(f"lb-{name}", f"default/{name}", f"uid-{name}" if uid is None else uid)


def _not_asked(_: object) -> set[str]:
    raise AssertionError("names are compared only where a Service has several")


class Desk:
    def __init__(self, *owned: OwnedLoadBalancer) -> None:
        self.cloud, self.recorder, self.metrics = Cloud(owned_answer=owned), Recorder(), Metrics()
        self.lister: Lister[Any] = Lister()
        self.records = Records()
        clock = FakeClock()
        queue: WorkQueue[str] = WorkQueue("second-look", clock=clock, metrics=self.metrics)
        known = KubeSystemUID(lambda: "cluster-1", clock)
        cloud = ServiceCloud(cast(Any, self.cloud), self.records, cast(Any, self.recorder), CLUSTER, known, clock)
        self.orphans = Orphans(queue, cast(Any, self.lister), cast(Any, None), cloud, self.metrics, clock)

    def search(self) -> float | None:
        wait = self.orphans.search()
        assert self.cloud.calls == [], "it only asks"
        return wait

    def told(self) -> list[str]:
        messages = self.recorder.messages()
        self.recorder.events.clear()
        return messages


@pytest.mark.parametrize(
    ("owned", "fields", "expected"),
    [
        (_owned("web"), {}, False),
        (_owned("web"), {"uid": "other"}, True),
        (_owned("web"), {"type": "ClusterIP"}, True),
        (_owned("web"), {"type": "ClusterIP", "finalizers": [FINALIZER]}, False),
        (_owned("web"), {"finalizers": [FINALIZER], "deleted": True}, False),
        (_owned("web"), {"loadBalancerClass": "example.com/x"}, True),
        (_owned("web", uid=""), {"uid": "any"}, False),
        pytest.param(evolve(_owned("web"), kept=True), {"uid": "other"}, False, marks=pytest.mark.row("S31")),
        (_owned("web", uid=""), {"namespace": "other"}, True),
        (_owned("old-name", uid="uid-web"), {}, False),
        (OwnedLoadBalancer("lb", "", ""), {}, True),
    ],
)
def test_an_orphan_has_no_service_that_asks_for_it_or_holds_our_finalizer(
    owned: OwnedLoadBalancer, fields: dict[str, Any], expected: bool
) -> None:
    assert (orphans([owned], [service(**fields)], _not_asked) == [owned]) is expected


@given(st.sets(st.sampled_from("abcdef")), st.sets(st.sampled_from("abcdef")))
def test_they_are_what_the_services_leave(owned: set[str], services: set[str]) -> None:
    found = orphans([_owned(name) for name in sorted(owned)], [service(name) for name in services], _not_asked)
    assert found == [_owned(name) for name in sorted(owned - services)]


def test_one_is_told_when_a_second_search_confirms_it_and_once() -> None:
    desk = Desk(_owned("a"), _owned("b"))
    desk.lister.objects["default/b"] = service("b")
    assert desk.search() == 60.0
    assert desk.told() == []
    assert desk.metrics.value(GAUGE) == 0
    assert desk.search() is None
    (message,) = desk.told()
    assert "lb-a (Service default/a)" in message
    assert "lb-b" not in message
    assert f"{CLUSTER!r}" in message
    assert desk.recorder.about == [KUBE_SYSTEM]
    assert desk.metrics.value(GAUGE) == 1
    assert desk.search() is None
    assert desk.told() == []


def test_what_comes_and_goes_or_whose_service_the_cache_shows_late_is_never_told() -> None:
    desk = Desk(_owned("a"))
    desk.search()
    desk.cloud.owned_answer = [_owned("b")]
    assert desk.search() == 60.0
    desk.cloud.owned_answer = [_owned("a")]
    desk.search()
    desk.lister.objects["default/a"] = service("a")
    assert desk.search() is None
    assert desk.told() == []
    assert desk.metrics.value(GAUGE) == 0


def test_a_new_one_is_told_with_the_others_and_an_end_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk(_owned("a"))
    desk.search()
    desk.search()
    desk.told()
    desk.cloud.owned_answer = [_owned("a"), _owned("b")]
    desk.search()
    assert desk.told() == []
    desk.search()
    assert "2 load balancers" in desk.told()[0]
    desk.cloud.owned_answer = []
    with caplog.at_level(logging.INFO):
        assert desk.search() is None
    assert "every load balancer has a Service again" in caplog.text
    assert desk.metrics.value(GAUGE) == 0
    # One that comes back is news again.
    desk.cloud.owned_answer = [_owned("a")]
    desk.search()
    desk.search()
    assert len(desk.told()) == 1


def test_many_are_counted_and_some_named_by_the_uid_where_the_service_has_no_name() -> None:
    desk = Desk(*(_owned(f"{number:02}") for number in reversed(range(12))), OwnedLoadBalancer("lb", "", "uid-x"))
    desk.search()
    desk.search()
    (message,) = desk.told()
    assert "13 load balancers" in message
    assert "and 3 more" in message
    assert "lb (Service uid-x)" in message
    assert "lb-08 " in message
    assert "lb-09" not in message


@pytest.mark.parametrize("error", [CloudProviderError("a page is missing"), AnswerMissing("none")])
def test_a_search_that_fails_is_counted_proves_nothing_and_comes_again_soon(error: Exception) -> None:
    desk = Desk(_owned("a"))
    desk.search()
    desk.cloud.owned_answer = error
    assert desk.search() == 60.0
    assert desk.metrics.value(ERRORS) == 1
    assert desk.told() == []
    desk.cloud.owned_answer = [_owned("a")]
    desk.search()
    assert len(desk.told()) == 1


@pytest.mark.row("S28")
@pytest.mark.parametrize("uid", ["uid-web", ""])
def test_one_under_a_former_name_of_a_living_service_is_told(uid: str) -> None:
    former, present = (OwnedLoadBalancer(name, "default/web", uid) for name in ("uid-web", "uid-web/big"))
    desk = Desk(former, present)
    desk.lister.objects["default/web"] = renamed = service(annotations={KIND: "big"})
    desk.search()
    assert desk.search() is None, "this process does not know yet which of them serves"
    assert desk.told() == []
    desk.records.put("default/web", Record(service=renamed, uid="uid-web", built=renamed))
    desk.search()
    desk.search()
    (message,) = desk.told()
    assert "uid-web (Service default/web)" in message
    assert "uid-web/big (" not in message
    desk.cloud.owned_answer = [former]  # alone it may be what serves
    assert desk.search() is None
    assert desk.metrics.value(GAUGE) == 0


@pytest.mark.row("S28")
def test_one_that_still_serves_under_its_former_name_is_no_orphan() -> None:
    desk = Desk(*(OwnedLoadBalancer(name, "default/web", "uid-web") for name in ("uid-web", "uid-web/big")))
    desk.lister.objects["default/web"] = service(annotations={KIND: "big"})
    desk.records.put("default/web", Record(service=service(), uid="uid-web", built=service()))
    desk.search()
    desk.search()
    assert desk.told() == []


@pytest.mark.row("S28")
def test_a_provider_that_fails_to_name_one_proves_nothing_and_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    own = (OwnedLoadBalancer(name, "default/web", "uid-web") for name in ("uid-web", "uid-web/big"))
    desk = Desk(*own, OwnedLoadBalancer("left", "default/gone", "uid-gone"))
    desk.lister.objects["default/web"] = renamed = service(annotations={KIND: "big"})
    desk.records.put("default/web", Record(service=renamed, uid="uid-web", built=renamed))
    monkeypatch.setattr(type(desk.cloud), "name", refuse(CloudProviderError("no name")))
    assert desk.search() == 60.0
    assert desk.metrics.value(ERRORS) == 1
    assert desk.search() is None
    (message,) = desk.told()
    assert "left (Service default/gone)" in message
    assert "uid-web" not in message
