"""Which cluster this is: nothing is built on a guess, and the wait can be seen. Row S21."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from controllers.runtime.api import Forbidden, ServerError, Unreachable
from controllers.service.calls import KubeSystemUID, TooEarly
from tests.support.clock import FakeClock
from tests.unit.service.bench import Bench
from tests.unit.service.objects import raw_service

HICCUPS = [ServerError("etcd is slow", status=500), Unreachable("reset"), Forbidden("<html>", status=403)]


@pytest.mark.row("S21")
@pytest.mark.parametrize("hiccup", HICCUPS)
def test_a_hiccup_at_the_start_makes_everybody_wait_and_nothing_is_ensured(
    hiccup: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench("n1")
    for name in ("a", "b", "c"):
        bench.serve(name)
    bench.identity.append(hiccup)  # type: ignore[arg-type]
    bench.start()
    with caplog.at_level(logging.WARNING):
        bench.settle(rounds=60, step=1.0)
    assert bench.cloud.calls == []
    assert bench.server.patches == []
    lines = [record.getMessage() for record in caplog.records]
    assert 4 <= len(lines) <= 8, "one at a time asks, with back-off"
    assert "until the cluster's identity is known" in lines[0]
    assert "kube-system" in bench.known.missing
    bench.identity.append("cluster-1")
    bench.settle(rounds=40, step=1.0)
    assert bench.cloud.count("get") == 3
    assert bench.cloud.writes() == 0, "all is as it was"
    assert bench.server.patches == []
    assert bench.known.missing == ""


def test_what_is_to_go_goes_meanwhile() -> None:
    bench = Bench("n1")
    bench.serve()
    bench.identity.append(ServerError("down", status=500))
    bench.start()
    bench.server.delete("default/web")
    bench.settle()
    assert bench.cloud.balancers == {}
    assert "default/web" not in bench.server.services


def test_that_it_may_not_be_read_is_an_answer() -> None:
    bench = Bench("n1")
    bench.identity.append(None)
    bench.start()
    bench.server.put(raw_service())
    bench.settle()
    assert bench.cloud.count("ensure") == 1


class Asked:
    """Somebody asks, and gets the answer when it is given; somebody else comes meanwhile."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.number = 0
        self.begun, self.answer = threading.Event(), threading.Event()
        self.identity = KubeSystemUID(self._ask, self.clock)
        self.pool = ThreadPoolExecutor(2)
        self.first = self.pool.submit(self.identity.get)
        assert self.begun.wait(10)
        self.other = self.pool.submit(self.identity.get)
        self.clock.wait_for_waiters()

    def _ask(self) -> str | None:
        self.number += 1
        self.begun.set()
        assert self.answer.wait(10)
        return "cluster-1"


@pytest.fixture
def asked() -> Iterator[Asked]:
    asked = Asked()
    yield asked
    asked.answer.set()
    asked.pool.shutdown()


@pytest.mark.row("S21")
def test_who_comes_while_one_asks_waits_a_moment_for_its_answer(asked: Asked) -> None:
    """At a start all workers come at once: each second that they come back later is one without a
    load balancer."""
    asked.answer.set()
    assert asked.first.result(10) == asked.other.result(10) == "cluster-1"
    assert asked.number == 1


@pytest.mark.row("S21")
def test_but_an_answer_that_does_not_come_holds_one_worker_only(asked: Asked) -> None:
    asked.clock.advance(0.25)
    with pytest.raises(TooEarly):
        asked.other.result(10)
    assert asked.number == 1
