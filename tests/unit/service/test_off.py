"""Services that wait for a service controller that is off are reported: row S29."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest

from controllers.runtime.api import Forbidden, ServerError
from controllers.runtime.metrics import Metrics
from controllers.service.changes import APPLIED, Classes, Note
from controllers.service.orphans import PERIOD, REPORT_AFTER, ServicesOff
from controllers.service.registration import ServiceOptions
from tests.support.clock import FakeClock
from tests.support.controllers import Fault, Recorder, Server
from tests.unit.service.objects import FINALIZER, raw_service

pytestmark = pytest.mark.row("S29")

OURS: dict[str, Any] = {"finalizers": [FINALIZER], "annotations": {APPLIED: str(Note("uid-web"))}}
WHY = "--controllers leaves it out"


class Desk:
    def __init__(self) -> None:
        self.server, self.clock, self.metrics, self.recorder = Server(), FakeClock(), Metrics(), Recorder()
        self.off = ServicesOff(cast(Any, self), ServiceOptions(), Classes([""]), self.metrics, self.clock, why=WHY)
        self.off._recorder = cast(Any, self.recorder)

    def rest(self, name: str) -> Server:
        assert name == "shared-informers"
        return self.server

    def look(self, seconds: float = 0.0) -> float | None:
        """Look once, so many seconds later."""
        self.clock.advance(seconds)
        return self.off.look()

    def gauges(self) -> tuple[float | None, float | None]:
        names = ("service_controller_unserved_services", "service_controller_unserved_deletions")
        first, second = [self.metrics.value(name) for name in names]
        return first, second


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_services_with_our_note_are_counted_in_one_warning(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.server.put(raw_service(**OURS))
    desk.server.put(raw_service("goes", finalizers=[FINALIZER]))  # another controller may have built it
    desk.server.put(raw_service("copied", **OURS))  # the note names another Service
    desk.server.put(raw_service("none"))
    for _ in range(3):
        assert desk.look(PERIOD) is None
    assert desk.gauges() == (1.0, 0.0)
    [line] = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert line.startswith(f"1 Services have a load balancer and our finalizer {FINALIZER}, and the service controller")
    assert WHY in line
    assert line.endswith(": default/web")
    assert desk.recorder.events == []


def test_nothing_is_said_where_there_are_none(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.server.put(raw_service())
    desk.look()
    assert caplog.text == ""
    assert desk.gauges() == (0.0, 0.0)


@pytest.mark.parametrize("built_by_go", [False, True])
def test_a_deletion_that_waits_is_told_with_what_to_do(desk: Desk, built_by_go: bool) -> None:
    fields = {**OURS, "annotations": {}} if built_by_go else OURS
    desk.server.put(raw_service(deleted=True, ingress=[{"ip": "192.0.2.7"}], **fields))
    desk.look()
    desk.look(REPORT_AFTER - 1)
    assert desk.recorder.events == [], "another manager may be about to delete it"
    assert desk.gauges()[1] == 0.0
    desk.look(1)
    assert desk.recorder.reasons("web", type="Warning") == ["LoadBalancerNotDeleted"]
    [message] = desk.recorder.messages()
    for part in (FINALIZER, WHY, "192.0.2.7", "uid-web", "kubectl edit"):
        assert part in message
    assert desk.gauges()[1] == 1.0
    assert desk.off.notes() == [("deletions", True, "1 deleted Services wait for our finalizer: default/web")]
    desk.look(PERIOD)
    assert len(desk.recorder.events) == 1
    desk.look(1800.0)
    assert len(desk.recorder.events) == 2, "Events are gone after an hour"
    desk.server.services.clear()
    desk.look(PERIOD)
    assert desk.gauges() == (0.0, 0.0)
    assert desk.off.notes() == [("deletions", True, "")]
    assert desk.server.patches == []


@pytest.mark.parametrize(
    "fields",
    [
        {"finalizers": ["example.com/other"], "deleted": True},
        {"finalizers": [FINALIZER], "deleted": True, "loadBalancerClass": "example.com/x"},
        {"finalizers": [FINALIZER], "deleted": True, "type": "ClusterIP"},
        OURS,
    ],
)
def test_what_may_be_another_controllers_is_not_told(desk: Desk, fields: dict[str, Any]) -> None:
    desk.server.put(raw_service(**fields))
    desk.look()
    desk.look(REPORT_AFTER)
    assert desk.recorder.events == []
    assert desk.gauges()[1] == 0.0


def test_a_list_that_fails_is_asked_for_again_and_one_that_is_forbidden_seldom(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.server.put(raw_service(**OURS))
    desk.server.faults.append(Fault(ServerError("down", status=500)))
    assert desk.look() is None
    desk.server.faults.append(Fault(Forbidden("no list on services", status=403)))
    with caplog.at_level(logging.INFO):
        assert desk.look() == 3600.0
    assert "no list on services" in caplog.text
    assert desk.look() is None
    assert desk.gauges()[0] == 1.0


def test_a_service_that_cannot_be_read_hides_no_other(desk: Desk) -> None:
    desk.server.put(raw_service(**OURS))
    desk.server.put(raw_service("broken") | {"spec": {"ports": 7}})
    desk.look()
    assert desk.gauges()[0] == 1.0


def test_a_long_list_is_cut(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(12):
        note = {APPLIED: str(Note(f"uid-s{number}"))}
        desk.server.put(raw_service(f"s{number}", finalizers=[FINALIZER], annotations=note))
    desk.look()
    assert caplog.text.rstrip().endswith("and 2 more")
