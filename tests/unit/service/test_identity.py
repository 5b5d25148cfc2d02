"""Which cluster this is: nothing is built on a guess, and the wait can be seen. Row S21."""

from __future__ import annotations

import logging

import pytest

from controllers.runtime.api import Forbidden, ServerError, Unreachable
from controllers.service.cloudside import TooEarly
from controllers.service.identity import ClusterIdentity
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
    assert "kube-system" in bench.known.missing()
    bench.identity.append("cluster-1")
    bench.settle(rounds=40, step=1.0)
    assert bench.cloud.count("get") == 3
    assert bench.cloud.writes() == 0, "all is as it was"
    assert bench.server.patches == []
    assert bench.known.missing() == ""


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


@pytest.mark.row("S21")
def test_one_asks_while_others_come_back_later() -> None:
    clock = FakeClock()
    asked: list[int] = []

    def ask() -> str | None:
        asked.append(1)
        with pytest.raises(TooEarly):
            identity.get()
        return "cluster-1"

    identity = ClusterIdentity(ask, clock)
    assert identity.get() == identity.get() == "cluster-1"
    assert len(asked) == 1
