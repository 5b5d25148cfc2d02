"""Whose a label is: what a forged record can achieve, and which labels come back (rows N17, N22,
N24)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controllers.node.kept import APPLIED_LABELS
from tests.unit.node.test_changes import instance
from tests.unit.node.world import PERIOD, World

ZONE, ZONE_TWIN = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
RACK = "example.com/rack"
PRECIOUS = {
    "node-restriction.kubernetes.io/tenant": "blue",
    "node-role.kubernetes.io/control-plane": "",
    "node.kubernetes.io/exclude-from-external-load-balancers": "true",
    "topology.k8s.io/rack": "r7",
    "kubernetes.io/hostname": "n1",
}


def forged(**labels: str) -> dict[str, Any]:
    return {APPLIED_LABELS: json.dumps(labels)}


def ready(world: World, **labels: str) -> World:
    """A node that was initialised, with these additional labels from the cloud."""
    world.cloud.says["n1"] = instance(labels={RACK: "r1", **labels})
    world.create(labels=PRECIOUS)
    world.work()
    assert not world.tainted()
    return world


@pytest.mark.row("N17")
@pytest.mark.parametrize("restarted", [False, True])
def test_a_forged_record_removes_no_label(restarted: bool) -> None:
    world = ready(World())
    world.edit(labels={"example.com/owner": "team-red"})
    world.edit(annotations=forged(**PRECIOUS, **{"example.com/owner": "team-red", RACK: "r1"}))
    before = world.labels()
    if restarted:
        world.restart()
    world.work()
    world.pass_time(3 * PERIOD, step=PERIOD / 2)
    assert world.labels() == before


def test_a_new_node_that_brings_a_forged_record_loses_no_label() -> None:
    world = World()
    world.cloud.says["n1"] = instance(labels={RACK: "r1"})
    labels = {**PRECIOUS, "example.com/owner": "red"}
    world.create(labels=labels, annotations=forged(**labels))
    world.pass_time(2 * PERIOD, step=PERIOD)
    assert labels.items() <= world.labels().items()


@pytest.mark.row("N17")
def test_a_record_forged_while_we_run_overwrites_nobodys_label() -> None:
    world = ready(World())
    world.edit(labels={RACK: "theirs", ZONE: "theirs", ZONE_TWIN: "theirs"})
    world.edit(annotations=forged(**{RACK: "theirs", ZONE: "theirs", ZONE_TWIN: "theirs"}))
    world.pass_time(3 * PERIOD, step=PERIOD / 2)
    assert (world.labels()[RACK], world.labels()[ZONE]) == ("theirs", "theirs")


def test_what_this_process_saw_the_cloud_ask_for_goes_when_the_cloud_asks_no_more() -> None:
    world = ready(World(), **{"example.com/row": "7"})
    world.cloud.says["n1"] = instance(labels={RACK: "r1"})
    world.pass_time(PERIOD, step=PERIOD)
    assert "example.com/row" not in world.labels()
    assert world.labels()[RACK] == "r1"


@pytest.mark.row("N17")
def test_the_record_alone_removes_nothing_after_a_restart_but_the_cloud_is_followed() -> None:
    world = ready(World(), **{"example.com/row": "7"})
    world.restart()
    world.cloud.says["n1"] = instance(labels={RACK: "r2"}, zone="z2")
    world.work()
    assert world.labels()["example.com/row"] == "7", "nobody alive saw the cloud ask for it"
    assert (world.labels()[RACK], world.labels()[ZONE]) == ("r2", "z2")
    assert "example.com/row" not in world.record()


@pytest.mark.row("N24")
@pytest.mark.parametrize("restarted", [False, True])
def test_a_removed_additional_label_stays_away_until_the_cloud_says_something_new(restarted: bool) -> None:
    world = ready(World())
    world.edit(labels={RACK: None})
    if restarted:
        world.restart()
    world.pass_time(3 * PERIOD, step=PERIOD / 2)
    assert RACK not in world.labels()
    world.cloud.says["n1"] = instance(labels={RACK: "r2"})
    world.pass_time(PERIOD, step=PERIOD)
    assert world.labels()[RACK] == "r2"


def test_instance_type_zone_and_region_come_back_at_once() -> None:
    world = ready(World())
    world.pass_time(PERIOD, step=PERIOD)
    before = world.labels()
    world.edit(labels={ZONE: None, ZONE_TWIN: None})
    world.work()
    assert world.labels() == before


@pytest.mark.row("N22")
def test_other_peoples_changes_of_labels_ask_the_cloud_nothing() -> None:
    world = ready(World())
    world.work()
    asked = len(world.cloud.asked)
    for number in range(20):
        world.edit(labels={"example.com/foo": str(number)}, annotations={"beat": str(number)})
        world.work()
    world.edit(labels={RACK: "theirs"})  # ours, but what somebody else does to it is never undone
    world.work()
    assert len(world.cloud.asked) == asked
    world.edit(labels={ZONE: None, ZONE_TWIN: None})
    world.work()
    assert len(world.cloud.asked) == asked + 1
    world.edit(annotations={"alpha.kubernetes.io/provided-node-ip": "10.0.0.1"})
    world.work()
    assert len(world.cloud.asked) == asked + 2


@pytest.mark.row("N22")
def test_our_own_write_of_labels_asks_the_cloud_nothing() -> None:
    world = ready(World())
    world.work()
    asked = len(world.cloud.asked)
    world.cloud.says["n1"] = instance(zone="z2", labels={RACK: "r1"})
    world.pass_time(PERIOD, step=PERIOD)
    assert world.labels()[ZONE] == "z2"
    assert len(world.cloud.asked) == asked + 1


def test_what_late_work_left_behind_goes_at_the_next_sweep() -> None:
    world = ready(World())
    gone = world.lister.list()[0]
    world.delete()
    world.memory.of(gone)
    world.pass_time(PERIOD, step=PERIOD)
    assert len(world.memory) == 0


def test_what_is_remembered_of_a_node_goes_with_it() -> None:
    world = ready(World())
    assert len(world.memory) == 1
    world.delete()
    assert len(world.memory) == 0
    world.create()  # the same name, another UID: nothing is known of it
    world.work()
    assert RACK in world.labels()
