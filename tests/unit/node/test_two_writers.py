"""A second writer beside each field that we write: ten minutes on a moved clock, and how often we
wrote.

It undoes what we did once a second. We may put things back, but what we write stays below a
constant: the mechanism is in controllers/node/memory.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from controllers.node.kept import APPLIED_LABELS
from tests.unit.node.test_changes import instance
from tests.unit.node.test_labels_of_whom import RACK, ZONE, ZONE_TWIN, ready
from tests.unit.node.world import PERIOD, UNINITIALIZED, World

TEN_MINUTES = 600.0
AT_MOST = 8


def writes_against(world: World, **parts: Any) -> int:
    world.pass_time(PERIOD, step=PERIOD)
    before = len(world.server.applied)
    world.pass_time(TEN_MINUTES, between=lambda: world.edit(**parts))
    return len(world.server.applied) - before


@pytest.mark.parametrize(
    "parts",
    [
        {"labels": {ZONE: None, ZONE_TWIN: None}},
        {"labels": {ZONE: "theirs", ZONE_TWIN: "theirs"}},
        {"labels": {ZONE_TWIN: "theirs"}},
        {"labels": {ZONE_TWIN: None}},
        {"labels": {RACK: None}},
        {"labels": {RACK: "theirs"}},
        {"addresses": [{"type": "InternalIP", "address": "10.66.6.6"}]},
        {"annotations": {APPLIED_LABELS: None}},
        {"annotations": {APPLIED_LABELS: '{"a":"b"}'}},
        {"taints": [UNINITIALIZED]},
        {
            "labels": {ZONE: None, ZONE_TWIN: None, RACK: None},
            "annotations": {APPLIED_LABELS: None},
            "addresses": [],
            "taints": [UNINITIALIZED],
        },
    ],
    ids=lambda parts: "-".join(parts),
)
def test_we_do_not_fight(parts: dict[str, Any]) -> None:
    world = ready(World())
    patches = 2 if "taints" in parts else 1  # an initialisation is two
    assert writes_against(world, **parts) <= AT_MOST * patches


def test_a_writer_that_flips_between_two_values_is_not_fought_either() -> None:
    world = ready(World())
    world.pass_time(PERIOD, step=PERIOD)
    before, turn = len(world.server.applied), iter(range(10_000))

    def flip() -> None:
        world.edit(labels={RACK: None if next(turn) % 2 else "theirs"})

    world.pass_time(TEN_MINUTES, between=flip)
    assert len(world.server.applied) - before <= AT_MOST


def test_a_fight_costs_few_questions_to_the_cloud() -> None:
    world = ready(World())
    world.pass_time(PERIOD, step=PERIOD)
    before = len(world.cloud.asked)
    world.pass_time(TEN_MINUTES, between=lambda: world.edit(labels={ZONE: None, ZONE_TWIN: None}))
    assert len(world.cloud.asked) - before <= AT_MOST


def test_news_of_the_cloud_are_written_at_once_in_the_middle_of_a_fight() -> None:
    world = ready(World())
    world.pass_time(TEN_MINUTES, between=lambda: world.edit(labels={ZONE: None, ZONE_TWIN: None}))
    world.cloud.says["n1"] = instance(instance_type="huge", labels={RACK: "r1"})
    world.pass_time(PERIOD, step=PERIOD)
    assert world.labels()["node.kubernetes.io/instance-type"] == "huge"


def test_a_node_that_gets_the_taint_again_is_initialised_at_once_the_first_time() -> None:
    world = ready(World())
    world.pass_time(60, step=60)
    world.edit(taints=[UNINITIALIZED])
    world.work()
    assert not world.tainted()
    world.edit(taints=[UNINITIALIZED])
    world.work()
    assert world.tainted()
    assert world.recorder.reasons().count("TaintPutBack") == 1
    world.pass_time(15)
    assert not world.tainted()


def test_a_wait_for_the_taint_that_ends_between_the_question_and_the_work_is_not_forgotten() -> None:
    world = ready(World())
    world.edit(taints=[UNINITIALIZED])
    answers: dict[str, Any] = {}
    world.reconciler.fetch_new(["n1"], answers.__setitem__)
    assert answers == {"n1": None}
    world.clock.advance(60)
    result = world.reconciler.initialize("n1", None)
    assert result is not None
    assert result.requeue_after == 0


def test_after_a_fight_there_is_peace_and_things_are_put_back_at_once_again() -> None:
    world = ready(World())
    world.pass_time(TEN_MINUTES, between=lambda: world.edit(labels={ZONE: None, ZONE_TWIN: None}))
    world.pass_time(20 * PERIOD, step=PERIOD)
    assert ZONE in world.labels()
    world.edit(labels={ZONE: None, ZONE_TWIN: None})
    world.work()
    assert ZONE in world.labels()
