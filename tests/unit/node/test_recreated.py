"""A Node is deleted and made again under its name while we work on it: nothing of the former
instance reaches it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudprovider import InstanceNotFound
from controllers.runtime.queue import AskAgain
from tests.unit.node.test_changes import instance
from tests.unit.node.world import PERIOD, World

pytestmark = pytest.mark.row("N27")
ZONE = "topology.kubernetes.io/zone"


def replace(world: World, number: int, *, initialised: bool = False, ids: bool = True) -> None:
    """Machine `number` comes in the place of the last one, and its kubelet registers under the same
    name."""
    if world.server.nodes:
        world.delete()
    provider_id = f"fake://i-{number}" if ids else ""
    world.cloud.says["n1"] = instance(("InternalIP", f"10.0.0.{number}"), provider_id=provider_id, zone=f"z{number}")
    if initialised:
        spec: dict[str, Any] = {"providerID": provider_id} if ids else {}
        world.create(taints=[], **spec)
    else:
        world.create()


def of_one_machine(world: World, number: int) -> None:
    """The node has what belongs to this machine, or nothing yet."""
    node = world.server.nodes["n1"]
    assert node["spec"].get("providerID", f"fake://i-{number}") == f"fake://i-{number}"
    assert world.labels().get(ZONE, f"z{number}") == f"z{number}"
    ips = [one["address"] for one in node["status"]["addresses"] if one["type"] == "InternalIP"]
    assert ips in ([], [f"10.0.0.{number}"])


@given(
    at=st.lists(st.integers(0, 12), max_size=4, unique=True),
    before_writes=st.lists(st.integers(0, 5), max_size=3, unique=True),
    initialised=st.booleans(),
    ids=st.booleans(),
)
def test_a_node_recreated_at_any_moment_ends_with_its_own_machines_data(
    at: list[int], before_writes: list[int], initialised: bool, ids: bool
) -> None:
    """Between question and answer, answer and work, and look and patch: each patch carries the UID.
    `ids`: whether the provider has provider IDs."""
    world = World(prefixes=("fake://",) if ids else ())
    number = 1
    replace(world, number, initialised=initialised, ids=ids)
    moments, writes = iter(range(1000)), iter(range(1000))

    def again() -> None:
        nonlocal number
        number += 1
        replace(world, number, initialised=initialised, ids=ids)

    def moment() -> None:
        of_one_machine(world, number)
        if next(moments) in at:
            again()

    def before_write(_name: str, body: dict[str, Any]) -> None:
        assert "uid" in body["metadata"]
        if next(writes) in before_writes:
            again()

    world.cloud.moment, world.server.before = moment, before_write
    for _ in range(3):
        world.work()
        world.pass_time(PERIOD, step=PERIOD)
    world.cloud.moment, world.server.before = lambda: None, lambda name, body: None
    world.pass_time(PERIOD, step=PERIOD)
    of_one_machine(world, number)
    assert not world.tainted()
    assert world.server.nodes["n1"]["spec"].get("providerID") == (f"fake://i-{number}" if ids else None)
    assert world.labels()[ZONE] == f"z{number}"
    assert "ProviderIDMismatch" not in world.recorder.reasons()


@pytest.mark.parametrize("initialised", [True, False])
def test_an_answer_about_the_former_node_is_asked_for_again(initialised: bool) -> None:
    world = World()
    replace(world, 1, initialised=initialised)
    former = world.answer()
    replace(world, 2, initialised=initialised)
    work = world.reconciler.refresh if initialised else world.reconciler.initialize
    with pytest.raises(AskAgain, match="with UID u101 and provider ID"):
        work("n1", former)
    world.cloud.says["n1"] = instance()
    assert world.server.applied == []


def test_an_error_about_the_former_node_is_not_told_to_the_new_one() -> None:
    world = World()
    replace(world, 1)
    world.cloud.says["n1"] = InstanceNotFound("gone")
    former = world.answer()
    replace(world, 2)
    with pytest.raises(AskAgain):
        world.reconciler.initialize("n1", former)
    assert world.recorder.events == []


def test_an_answer_to_a_question_by_name_does_not_hold_once_the_node_has_a_provider_id() -> None:
    world = World()
    replace(world, 1)
    by_name = world.answer()
    world.edit(providerID="fake://i-2")
    with pytest.raises(AskAgain, match=r"provider ID \(none\)"):
        world.reconciler.initialize("n1", by_name)
