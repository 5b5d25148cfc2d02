"""How work on a node ends when it does not go well: failed refresh, node gone or recreated, conflict, refused label."""

from __future__ import annotations

from typing import Any

import pytest

from cloudprovider import InstanceNotFound, Throttled
from controllers.runtime.api import ServerError, Unreachable
from tests.unit.node.test_changes import instance
from tests.unit.node.test_labels_of_whom import RACK, ready
from tests.unit.node.world import PERIOD, UNINITIALIZED, World


def changed(world: World) -> World:
    """The cloud has news of the node."""
    world.answers["n1"] = instance(instance_type="huge", labels={RACK: "r1"})
    return world


@pytest.mark.parametrize("error", [Throttled(), InstanceNotFound("gone"), ValueError("broken")])
def test_a_refresh_that_the_cloud_fails_raises_and_changes_nothing(error: Exception) -> None:
    world = ready(World())
    before, writes = world.labels(), len(world.writes)
    with pytest.raises(type(error)):
        world.reconciler.refresh("n1", error)
    assert (world.labels(), len(world.writes)) == (before, writes)
    assert [reason for reason, _ in world.events] == ["Synced"], (
        "the worker tells, and an instance that is gone is told"
    )


def test_a_refresh_that_the_api_server_fails_is_done_at_the_next_attempt() -> None:
    world = changed(ready(World()))

    def fail(name: str, body: dict[str, Any]) -> None:
        raise ServerError("down", status=503)

    world.before_write = fail
    with pytest.raises(ServerError):
        world.reconciler.refresh("n1", world.answers["n1"])
    world.before_write = lambda name, body: None
    world.reconciler.refresh("n1", world.answers["n1"])
    assert world.labels()["node.kubernetes.io/instance-type"] == "huge"


@pytest.mark.parametrize("tainted", [True, False])
def test_labels_stay_ours_when_the_answer_to_their_write_is_lost(tainted: bool) -> None:
    world = ready(World())
    if tainted:
        world.edit(taints=[UNINITIALIZED])
    world.answers["n1"] = instance(labels={RACK: "r2"})
    work = world.reconciler.initialize if tainted else world.reconciler.refresh
    apply = world.request

    def applied_unheard(*args: Any, **kwargs: Any) -> Any:
        apply(*args, **kwargs)
        raise Unreachable("reset", sent=True)

    world.request = applied_unheard  # type: ignore[method-assign]
    with pytest.raises(Unreachable):
        work("n1", world.answers["n1"])
    world.request = apply  # type: ignore[method-assign]
    assert world.labels()[RACK] == "r2"
    world.answers["n1"] = instance(labels={RACK: "r3"})
    world.reconciler.refresh("n1", world.answers["n1"])
    assert (world.labels()[RACK], world.record()[RACK]) == ("r3", "r3")


@pytest.mark.parametrize("tainted", [True, False])
def test_a_node_that_went_meanwhile_is_no_failure(tainted: bool) -> None:
    world = World() if tainted else changed(ready(World()))
    if tainted:
        world.create()
    writes = len(world.writes)

    def vanish(name: str, body: dict[str, Any]) -> None:
        world.stored.pop(name, None)

    world.before_write = vanish
    work = world.reconciler.initialize if tainted else world.reconciler.refresh
    assert work("n1", world.answers["n1"]) is None
    assert len(world.writes) == writes
    assert [reason for reason, _ in world.events] == ([] if tainted else ["Synced"])
    work("n1", world.answers["n1"])  # nor is one that is not in the cache any more
    assert len(world.memory) == 0


@pytest.mark.parametrize("tainted", [True, False])
def test_what_was_computed_for_a_node_is_not_written_on_its_successor(tainted: bool) -> None:
    world = World() if tainted else changed(ready(World()))
    if tainted:
        world.create(labels={"a": "b"})

    def recreate(name: str, body: dict[str, Any]) -> None:
        world.before_write = lambda name, body: None
        world.stored[name]["metadata"].update(uid="another", resourceVersion="999", labels={})
        world.stored[name]["spec"]["taints"] = []

    writes = len(world.writes)
    world.before_write = recreate
    work = world.reconciler.initialize if tainted else world.reconciler.refresh
    assert work("n1", world.answers["n1"]) is None
    assert len(world.writes) == writes
    assert world.labels() == {}


def test_a_label_that_somebody_sets_at_the_same_moment_is_not_overwritten() -> None:
    """Labels are written onto the version that they were computed from: what stands there decides."""
    world = ready(World())
    world.answers["n1"] = instance(labels={RACK: "r2"})

    def meanwhile(name: str, body: dict[str, Any]) -> None:
        world.before_write = lambda name, body: None
        world.edit(labels={RACK: "theirs"})

    world.before_write = meanwhile
    world.pass_time(PERIOD, step=PERIOD)
    assert world.labels()[RACK] == "theirs"


def test_refused_labels_are_told_once_by_name_and_the_rest_is_written(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    for name in ("n1", "n2"):
        world.answers[name] = instance(labels={"node-role.kubernetes.io/worker": "", RACK: "r1"})
        world.create(name)
    world.pass_time(2 * PERIOD, step=PERIOD)
    assert RACK in world.labels("n1")
    assert "node-role.kubernetes.io/worker" not in world.labels("n1")
    told = [record.message for record in caplog.records if "node-role.kubernetes.io/worker" in record.message]
    assert len(told) == 1
    assert "reserved for Kubernetes" in told[0]
