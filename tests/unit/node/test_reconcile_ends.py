"""How work on a node ends when it does not go well: failed refresh, lost answer, node gone or
recreated, conflict, refused label."""

from __future__ import annotations

from typing import Any

import pytest

from cloudprovider import InstanceNotFound, Throttled
from controllers.runtime.api import NotFound, ServerError, Unreachable
from tests.support.controllers import refuse
from tests.unit.node.test_changes import instance
from tests.unit.node.test_labels_of_whom import RACK, ready
from tests.unit.node.world import PERIOD, UNINITIALIZED, World

LOST = Unreachable("reset", sent=True)


def changed(world: World) -> World:
    """The cloud has news of the node."""
    world.cloud.says["n1"] = instance(instance_type="huge", labels={RACK: "r1"})
    return world


@pytest.mark.parametrize("error", [Throttled(), InstanceNotFound("gone"), ValueError("broken")])
def test_a_refresh_that_the_cloud_fails_raises_and_changes_nothing(error: Exception) -> None:
    world = ready(World())
    before, writes = world.labels(), len(world.server.applied)
    with pytest.raises(type(error)):
        world.reconciler.refresh("n1", error)
    assert (world.labels(), len(world.server.applied)) == (before, writes)
    assert world.recorder.reasons() == ["Synced"], "the worker tells, and an instance that is gone is told"


def test_a_refresh_that_the_api_server_fails_is_done_at_the_next_attempt() -> None:
    world = changed(ready(World()))
    world.server.before = refuse(ServerError("down", status=503), times=1)
    with pytest.raises(ServerError):
        world.reconciler.refresh("n1", world.answer())
    world.reconciler.refresh("n1", world.answer())
    assert world.labels()["node.kubernetes.io/instance-type"] == "huge"


@pytest.mark.parametrize("tainted", [True, False])
def test_labels_stay_ours_when_the_answer_to_their_write_is_lost(tainted: bool) -> None:
    world = ready(World())
    if tainted:
        world.edit(taints=[UNINITIALIZED])
    world.cloud.says["n1"] = instance(labels={RACK: "r2"})
    work = world.reconciler.initialize if tainted else world.reconciler.refresh
    world.server.after = refuse(LOST, times=1)
    with pytest.raises(Unreachable):
        work("n1", world.answer())
    assert world.labels()[RACK] == "r2"
    world.cloud.says["n1"] = instance(labels={RACK: "r3"})
    world.reconciler.refresh("n1", world.answer())
    assert (world.labels()[RACK], world.record()[RACK]) == ("r3", "r3")


@pytest.mark.parametrize("tainted", [True, False])
def test_a_node_that_another_cloud_takes_meanwhile_is_left_to_it(tainted: bool) -> None:
    """Its provider ID comes between our look and our write, which is a conflict then."""
    world = World() if tainted else changed(ready(World()))
    if tainted:
        world.create()
    world.sees = False
    world.edit(providerID="other://i-9")
    writes = len(world.server.applied)
    work = world.reconciler.initialize if tainted else world.reconciler.refresh
    work("n1", world.answer())
    assert len(world.server.applied) == writes


@pytest.mark.parametrize("tainted", [True, False])
def test_a_node_that_went_meanwhile_is_no_failure(tainted: bool) -> None:
    world = World() if tainted else changed(ready(World()))
    if tainted:
        world.create()
    writes = len(world.server.applied)

    world.server.before = lambda *_: world.server.nodes.clear()
    work = world.reconciler.initialize if tainted else world.reconciler.refresh
    answer = world.answer()
    assert work("n1", answer) is None
    world.lister.objects.clear()
    assert len(world.server.applied) == writes
    assert world.recorder.reasons() == ([] if tainted else ["Synced"])
    work("n1", answer)  # nor is one that is not in the cache any more
    assert len(world.memory) == 0


@pytest.mark.parametrize("tainted", [True, False])
def test_what_was_computed_for_a_node_is_not_written_on_its_successor(tainted: bool) -> None:
    world = World() if tainted else changed(ready(World()))
    if tainted:
        world.create(labels={"a": "b"})

    def recreate(name: str, body: dict[str, Any]) -> None:
        world.server.before = lambda name, body: None
        world.server.nodes[name]["metadata"].update(uid="another", resourceVersion="999", labels={})
        world.server.nodes[name]["spec"]["taints"] = []

    writes = len(world.server.applied)
    world.server.before = recreate
    work = world.reconciler.initialize if tainted else world.reconciler.refresh
    assert work("n1", world.answer()) is None
    assert len(world.server.applied) == writes
    assert world.labels() == {}


@pytest.mark.row("N3")
@pytest.mark.parametrize("tainted", [True, False])
def test_a_node_to_which_another_clouds_manager_gives_its_id_meanwhile_is_left_alone(tainted: bool) -> None:
    world = World()
    world.cloud.says["n1"] = InstanceNotFound("no instance of this name")
    world.create(taints=[UNINITIALIZED] if tainted else [])
    work = world.reconciler.initialize if tainted else world.reconciler.refresh
    if tainted:
        with pytest.raises(InstanceNotFound):
            work("n1", world.answer())
    else:
        with pytest.raises(Throttled):
            work("n1", Throttled())
    world.edit(providerID="other://n1", labels={"topology.kubernetes.io/zone": "z9"})
    asked = len(world.cloud.asked)
    (world.nodes if tainted else world.refreshes).add("n1")  # its back-off ends
    world.work()
    world.edit(taints=[])
    world.nodes.add("n1")
    world.work()
    assert len(world.cloud.asked) == asked, "its own cloud is another one: the failure would come for ever"
    assert not world.server.applied
    assert not world.nodes.later


def test_a_404_that_is_not_about_the_node_does_not_leave_it_tainted() -> None:
    world = World()
    world.create()
    world.server.before = refuse(NotFound("404 page not found", status=404), times=1)
    with pytest.raises(NotFound):
        world.reconciler.initialize("n1", world.answer())
    world.reconciler.initialize("n1", world.answer())
    assert not world.tainted()


def test_a_label_that_somebody_sets_at_the_same_moment_is_not_overwritten() -> None:
    """Labels are written onto the version that they were computed from: what stands there
    decides."""
    world = ready(World())
    world.cloud.says["n1"] = instance(labels={RACK: "r2"})

    def meanwhile(name: str, body: dict[str, Any]) -> None:
        world.server.before = lambda name, body: None
        world.edit(labels={RACK: "theirs"})

    world.server.before = meanwhile
    world.pass_time(PERIOD, step=PERIOD)
    assert world.labels()[RACK] == "theirs"


def test_refused_labels_are_told_once_by_name_and_the_rest_is_written(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    for name in ("n1", "n2"):
        world.cloud.says[name] = instance(labels={"node-role.kubernetes.io/worker": "", RACK: "r1"})
        world.create(name)
    world.pass_time(2 * PERIOD, step=PERIOD)
    assert RACK in world.labels("n1")
    assert "node-role.kubernetes.io/worker" not in world.labels("n1")
    told = [record.message for record in caplog.records if "node-role.kubernetes.io/worker" in record.message]
    assert len(told) == 1
    assert "reserved for Kubernetes" in told[0]


def unanswered() -> World:
    """A node whose initialisation was written, while the answer was lost and the cache is old."""
    world = World()
    world.create()
    world.sees = False
    lose = refuse(LOST, times=1)
    world.server.after = lambda name, body: lose() if "spec" in body else None
    with pytest.raises(Unreachable):
        world.reconciler.initialize("n1", world.answer())
    assert world.recorder.events == []
    return world


def test_a_lost_answer_found_out_by_a_conflict_while_the_cache_is_old_is_told() -> None:
    world = unanswered()
    assert not world.tainted()
    world.reconciler.initialize("n1", world.answer())
    assert world.recorder.reasons() == ["Synced"]


def test_a_lost_answer_found_out_from_the_cache_is_told_once() -> None:
    world = unanswered()
    world.show()
    world.reconciler.initialize("n1", None)
    world.reconciler.initialize("n1", None)
    assert world.recorder.reasons() == ["Synced"]


def test_a_lost_answer_about_a_node_recreated_since_is_not_told() -> None:
    world = unanswered()
    world.delete()
    world.create(taints=[])
    world.show()
    world.reconciler.initialize("n1", None)
    assert world.recorder.events == []
