"""Beside each field that we write on a Service stands a second writer for ten minutes: rows S14,
S15 and S17.

Whatever it does, our writes and our calls to the cloud are bounded by a constant: a controller that
answers every change of its own output fights for ever.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from controllers.service.changes import APPLIED
from tests.support.controllers import Raw
from tests.unit.service.bench import Bench
from tests.unit.service.objects import FINALIZER

KEY = "default/web"
MINUTES = 10
POINT = {"ip": "203.0.113.9"}

Writer = Callable[[Raw], object]


def _duel(bench: Bench, writer: Writer, *, every: float = 0.5) -> None:
    """The second writer insists, as often as it can, for ten minutes."""
    for _ in range(int(MINUTES * 60 / every)):
        bench.see()
        bench.work()
        bench.server.edit(KEY, writer)
        bench.clock.advance(every)
    bench.settle(rounds=2)


def _status(points: list[dict[str, str]]) -> Writer:
    return lambda raw: raw.update(status={"loadBalancer": {"ingress": points} if points else {}})


def _without_note(raw: Raw) -> None:
    raw["metadata"]["annotations"].pop(APPLIED, None)


def _other_note(raw: Raw) -> None:
    raw["metadata"]["annotations"][APPLIED] = "mine"


def _without_finalizer(raw: Raw) -> None:
    raw["metadata"]["finalizers"] = []


def _bare(raw: Raw) -> None:
    _without_note(raw)
    _without_finalizer(raw)
    _status([])(raw)


@pytest.mark.row("S15", "S17")
@pytest.mark.parametrize(
    ("writer", "most"),
    [
        pytest.param(_status([POINT]), 0, id="another status"),
        pytest.param(_status([]), 5, id="no status"),
        pytest.param(_without_note, 1, id="no note"),
        pytest.param(_other_note, 1, id="another note"),
        pytest.param(_without_finalizer, 5, id="no finalizer"),
        pytest.param(_bare, 11, id="nothing of ours"),
    ],
)
def test_a_second_writer_of_what_we_write_costs_a_few_writes_and_no_call(
    bench: Bench, writer: Writer, most: int
) -> None:
    bench.serve()
    _duel(bench, writer)
    assert len(bench.server.patches) <= most
    assert bench.cloud.calls == []


@pytest.mark.row("S17")
@pytest.mark.parametrize("every", [0.5, 5.0, 20.0])
def test_two_writers_of_a_foreign_annotation_cost_a_few_calls_and_the_last_word_is_heard(
    bench: Bench, every: float
) -> None:
    bench.serve()

    def flip(raw: Raw) -> None:
        annotations = raw["metadata"]["annotations"]
        annotations["example.com/size"] = "big" if annotations.get("example.com/size") == "small" else "small"

    _duel(bench, flip, every=every)
    assert bench.cloud.count("ensure") <= 16
    assert len(bench.server.patches) <= 2 * bench.cloud.count("ensure")
    warnings = bench.recorder.reasons(type="Warning")
    assert 1 <= len(warnings) <= 16
    assert set(warnings) == {"LoadBalancerChangesDelayed"}
    bench.settle(rounds=10, step=60.0)
    (balancer,) = bench.cloud.balancers.values()
    shown = bench.server.services[KEY]["metadata"]["annotations"]["example.com/size"]
    assert balancer.content["annotations"]["example.com/size"] == shown


@pytest.mark.row("S17")
def test_a_person_who_tries_a_few_values_waits_for_nothing(bench: Bench) -> None:
    bench.serve()
    for number in range(5):
        bench.server.edit(KEY, lambda raw, n=number: raw["metadata"]["annotations"].update(size=str(n)))  # type: ignore[misc]
        bench.settle(rounds=1)
        assert bench.cloud.count("ensure") == number + 1
    assert bench.recorder.reasons(type="Warning") == []


@pytest.mark.row("S14")
@pytest.mark.parametrize("type", ["ClusterIP", "LoadBalancer"])
def test_a_second_writer_of_the_finalizer_on_what_we_let_go_costs_nothing(bench: Bench, type: str) -> None:
    bench.serve()
    bench.server.set_type(KEY, "ClusterIP")
    if type == "LoadBalancer":
        bench.server.set_type(KEY, type)
        bench.server.edit(KEY, lambda raw: raw["spec"].update(loadBalancerClass="example.com/other"))
    bench.settle()
    assert bench.cloud.methods() == ["delete"]
    bench.forget()
    _duel(bench, lambda raw: raw["metadata"].update(finalizers=[FINALIZER]))
    assert bench.server.patches == []
    assert bench.cloud.calls == []


@pytest.mark.row("S15")
def test_a_status_that_an_agent_fills_in_stays_also_when_the_provider_answers_none(bench: Bench) -> None:
    """As where an agent on the nodes announces the address, and the provider has nothing to
    tell."""
    bench.cloud.unfinished = True
    bench.serve()
    bench.server.edit(KEY, _status([POINT]))
    for restarts in (False, True):
        if restarts:
            bench.start()
        bench.forget()
        bench.settle(rounds=30, step=60.0)
        bench.server.edit(KEY, lambda raw: raw["metadata"]["annotations"].update(a=str(bench.clock.monotonic())))
        bench.settle()
        assert bench.cloud.count("ensure") >= 1
        assert bench.server.services[KEY]["status"]["loadBalancer"]["ingress"] == [POINT]


@pytest.mark.row("S15")
def test_a_status_is_written_when_a_call_of_ours_changed_it(bench: Bench) -> None:
    bench.serve()
    bench.server.edit(KEY, _status([POINT]))
    bench.settle()
    bench.server.edit(KEY, lambda raw: raw["spec"].update(ports=[{"port": 81}]))
    bench.settle()
    assert bench.cloud.count("ensure") == 1
    assert bench.server.services[KEY]["status"]["loadBalancer"]["ingress"] == [POINT], "the call changed no address"
    bench.server.edit(KEY, lambda raw: raw["spec"].update(loadBalancerIP="192.0.2.77"))
    bench.settle()
    assert [point["ip"] for point in bench.server.services[KEY]["status"]["loadBalancer"]["ingress"]] == ["192.0.2.77"]
