"""Health says why and since when; the log tells what fails and what passes again."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from controllers.endpoints.health import Check, Health
from tests.support.clock import FakeClock


class Bench:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.health = Health(self.clock)
        self.checks = [Check("cloud", True)]
        self.health.notes.append(lambda: self.checks)
        self.health.ready()

    def told(self, name: str = "healthz") -> dict[str, tuple[bool, str]]:
        return {check.name: (check.ok, check.detail) for check in self.health.endpoint(name)()}

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.clock.advance(2.0)
            self.health.look()


@pytest.fixture
def bench(caplog: pytest.LogCaptureFixture) -> Iterator[Bench]:
    with caplog.at_level(logging.INFO):
        yield Bench()


@pytest.mark.row("O1")
def test_a_failed_check_says_since_when_although_nobody_asked_meanwhile(bench: Bench) -> None:
    bench.checks = [Check("cloud", False, "no answer")]
    bench.look(5)
    bench.clock.advance(1.0)
    ok, detail = bench.told()["cloud"]
    assert not ok
    assert detail == "no answer; since 2023-11-14T22:13:22Z (9 s)"
    assert bench.told()["cloud"][1] == detail


def test_the_log_tells_once_what_fails_and_once_what_is_well_again(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.checks = [Check("cloud", False, "no answer")]
    bench.look(10)
    bench.checks = []
    bench.look(3)
    assert [record.getMessage() for record in caplog.records] == [
        "health: cloud fails since 2023-11-14T22:13:22Z: no answer",
        "health: cloud passes again, after 20 s",
    ]


def test_a_moment_is_shown_and_not_logged(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.checks = [Check("cloud", False, "no answer")]
    assert not bench.told()["cloud"][0]
    bench.look()
    bench.checks = [Check("cloud", True)]
    bench.look(2)
    assert caplog.records == []


@pytest.mark.row("O1")
def test_a_controller_that_died_fails_every_endpoint_also_while_the_rest_drains(bench: Bench) -> None:
    class Idle:
        def health(self) -> list[tuple[str, bool, str]]:
            return []

    bench.health.watch_controller("idle", Idle(), lambda: False)  # type: ignore[arg-type]  # as much of one as is asked
    bench.health.died("idle", "died: KeyError: 'oops'")
    bench.health.stopping()
    for name in ("healthz", "livez"):
        ok, detail = bench.told(name)["idle"]
        assert not ok
        assert detail.startswith("died: KeyError: 'oops'; since ")


def test_a_controller_whose_answer_raises_hides_no_other_check(bench: Bench) -> None:
    class Broken:
        def health(self) -> list[tuple[str, bool, str]]:
            raise KeyError("oops")

        notes = health

    bench.health.watch_controller("broken", Broken(), lambda: True)  # type: ignore[arg-type]  # as much of one as is asked
    found = bench.told()
    assert found["cloud"][0]
    assert not found["broken"][0]
    assert "raised KeyError" in found["broken"][1]
    assert bench.told("livez")["broken"][1].startswith("its health() raised KeyError; since ")
