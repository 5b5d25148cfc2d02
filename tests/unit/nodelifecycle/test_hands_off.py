"""A node that an administrator keeps us from, by a label that no kubelet may set."""

from __future__ import annotations

from typing import Any

import pytest

from cloudprovider import InstanceState
from cloudprovider.helpers import kubelet_may_set
from cloudprovider.wellknown import LABEL_HANDS_OFF
from tests.unit.nodelifecycle.support import PERIOD, SHUTDOWN, Bench, raw_node

LABEL = {LABEL_HANDS_OFF: "true"}


def rounds(bench: Bench, number: int = 6) -> None:
    for _ in range(number):
        keys = bench.sweep()
        bench.run(*sorted(keys))
        bench.clock.advance(PERIOD)


@pytest.mark.parametrize("says", [InstanceState.GONE, InstanceState.SHUTDOWN, InstanceState.RUNNING])
@pytest.mark.parametrize("fields", [{}, {"taints": [SHUTDOWN]}, {"ready": "True", "taints": [SHUTDOWN]}])
def test_nothing_is_done_to_it_whatever_the_cloud_says(says: InstanceState, fields: dict[str, Any]) -> None:
    bench = Bench(out_of_service=True, breaker=False)
    bench.put(labels=LABEL, **fields)
    bench.cloud.says["n1"] = says
    rounds(bench)
    assert bench.server.deleted == []
    assert bench.server.applied == []
    assert bench.cloud.asked == [], "nor is the cloud asked"
    assert bench.metrics.value("node_lifecycle_hands_off_nodes") == 1
    [(about, why)] = bench.controller.left_alone()
    assert about == "node/n1"
    assert LABEL_HANDS_OFF in why


def test_without_the_label_it_is_as_every_node() -> None:
    bench = Bench(breaker=False)
    bench.put(labels=LABEL)
    bench.cloud.says["n1"] = InstanceState.GONE
    rounds(bench)
    bench.put()
    rounds(bench)
    assert bench.server.deleted == ["n1"]
    assert bench.metrics.value("node_lifecycle_hands_off_nodes") == 0
    assert bench.controller.left_alone() == []


def test_a_label_that_comes_and_goes_ends_the_row_of_answers() -> None:
    bench = Bench(breaker=False)
    bench.cloud.says["n1"] = InstanceState.GONE
    for labels in ({}, LABEL, {}):  # between two sweeps
        bench.put(labels=labels)
        bench.clock.advance(PERIOD)
        bench.run("n1")
    assert bench.server.deleted == [], "the next answer is the first one again"
    bench.clock.advance(PERIOD)
    bench.run("n1")
    assert bench.server.deleted == ["n1"]


@pytest.mark.parametrize("says", [InstanceState.GONE, InstanceState.SHUTDOWN])
def test_a_label_that_comes_while_the_cloud_answers_counts(says: InstanceState) -> None:
    bench = Bench(breaker=False)
    bench.put(version="7")
    bench.cloud.says["n1"] = says

    def label() -> None:  # the cache has not seen it when the write goes out
        bench.server.nodes["n1"] = raw_node(labels=LABEL, version="8")

    bench.cloud.moment = label
    rounds(bench, 4)
    assert bench.server.deleted == []
    assert bench.server.applied == []


def test_a_ready_node_that_is_left_alone_holds_back_nobody() -> None:
    """The cloud calls it gone wrongly, which the administrator knows: the rest of its zone is
    judged without it."""
    bench = Bench()
    for number in range(4):
        bench.put(f"ready-{number}", ready="True", provider_id=f"fake://r-{number}")
    bench.put("liar", ready="True", provider_id="fake://liar")
    bench.put("gone", provider_id="fake://gone")
    bench.cloud.says |= {"liar": InstanceState.GONE, "gone": InstanceState.GONE}
    rounds(bench)
    assert bench.server.deleted == [], "one Ready node in five is called gone"
    bench.put("liar", ready="True", provider_id="fake://liar", labels=LABEL)
    rounds(bench)
    assert bench.server.deleted == ["gone"]


def test_no_kubelet_may_set_the_label() -> None:
    assert not kubelet_may_set(LABEL_HANDS_OFF)
