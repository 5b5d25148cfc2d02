"""What a process remembers of load balancers, and that it forgets: row S11."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.runtime.metrics import Metrics
from controllers.service.metrics import ServiceMetrics
from controllers.service.records import Record, Records, State
from controllers.service.targets import Targets
from tests.unit.service.objects import service


def _record(**fields: Any) -> Record:
    return Record(service=service(), uid="uid-web", **fields)


@pytest.mark.row("S11")
def test_what_is_dropped_is_gone() -> None:
    records = Records()
    record = records.put("default/web", _record())
    assert records.get("default/web") is record
    assert "default/web" in records
    records.drop("default/web")
    records.drop("default/web")
    assert records.get("default/web") is None
    assert "default/web" not in records
    assert records.outdated(Targets((), "x")) == []
    assert len(records) == 0


def test_a_fresh_record_is_sure_of_nothing() -> None:
    record = _record()
    assert (record.spec, record.nodes, record.status, record.due) == ("", "", None, 0.0)
    assert record.state is State.UNSURE


def test_outdated_are_those_with_other_targets() -> None:
    records = Records()
    records.put("a", _record(nodes="x"))
    records.put("b", _record(nodes="y"))
    records.put("c", _record())
    records.put("d", _record(state=State.ELSEWHERE))
    records.put("e", _record(state=State.GONE))
    assert records.outdated(Targets((), "x")) == ["b", "c"]
    assert records.outdated(Targets((), "x", frozenset({"y"}))) == ["c"]


@pytest.mark.row("S11")
def test_the_gauge_counts_load_balancers_that_are_there() -> None:
    metrics, records = Metrics(), Records()
    ServiceMetrics(metrics, records)
    name = "service_controller_load_balancers"
    assert metrics.value(name) == 0
    records.put("a", _record())
    records.put("b", _record(state=State.GONE))
    assert metrics.value(name) == 1
    assert "b" in records
    records.drop("a")
    assert metrics.value(name) == 0
