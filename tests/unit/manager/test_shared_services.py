"""What runs in the background goes on after an exception, and its end is waited for."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from cloudprovider import StopSignal
from cloudprovider.testing.waiting import eventually
from controllers.app import ManagerOptions, Options
from controllers.endpoints.checks import HealthMetrics
from controllers.endpoints.health import Health
from controllers.manager.shared_services import SharedServices
from controllers.runtime.api import ClientBuilder
from controllers.runtime.metrics import Metrics
from tests.support.clock import FakeClock


class Worker:
    """Raises at its first runs."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.runs = 0
        self.works = threading.Event()

    def run(self, stop: StopSignal) -> None:
        self.runs += 1
        if self.errors:
            raise self.errors.pop(0)
        self.works.set()
        stop.wait()


@pytest.fixture
def services(clock: FakeClock) -> Iterator[SharedServices]:
    metrics = Metrics()
    with ClientBuilder.from_options(master="http://127.0.0.1:1", metrics=metrics) as clients:
        yield SharedServices(
            Options(ManagerOptions(cloud_provider="acme")),
            clients,
            health=Health(clock, HealthMetrics(metrics).observe),
            metrics=metrics,
            clock=clock,
            abandoned=lambda: False,
        )


@pytest.mark.row("K24")
def test_what_raises_is_told_once_and_run_again(
    services: SharedServices, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Worker(KeyError("a"), KeyError("a"), SystemExit(3))
    services.in_background("checks", "access check", worker.run)
    for run in (1, 2, 3):
        clock.wait_for_timeout(5.0)
        assert worker.runs == run
        clock.advance(5.0)
    eventually(worker.works.is_set)
    assert worker.runs == 4
    told = [record for record in caplog.records if "access check failed" in record.getMessage()]
    assert [record.levelname for record in told if record.levelname != "DEBUG"] == ["ERROR", "ERROR"]
    assert told[0].exc_info is not None
    assert services.groups.stop(10.0) == []


@pytest.mark.row("K24")
def test_the_end_is_not_kept_by_what_raises_all_the_time(services: SharedServices, clock: FakeClock) -> None:
    services.in_background("checks", "access check", Worker(*[KeyError("a")] * 100).run)
    clock.wait_for_timeout(5.0)
    assert services.groups.stop(10.0) == []
