"""Initialised nodes without a provider ID: adopted by name and address, or told, at the refresh's
pace (row N19)."""

from __future__ import annotations

from typing import Any

import pytest

from cloudprovider import InstanceMetadata, InstanceNotFound
from controllers.cloudcalls import InvalidAnswer
from controllers.node.changes import NotAdopted, adoption
from tests.unit.node.test_changes import instance, node
from tests.unit.node.world import PERIOD, World

GAUGE = "node_controller_nodes_without_provider_id"


def nameless(world: World, *addresses: tuple[str, str]) -> World:
    """An initialised node with these addresses and without a provider ID."""
    world.create(taints=[])
    world.edit(addresses=[{"type": kind, "address": value} for kind, value in addresses])
    return world


@pytest.mark.row("N19")
@pytest.mark.parametrize("address", ["10.0.0.1", "fd00:0::1"])
def test_a_node_is_adopted_when_name_and_an_address_agree(address: str) -> None:
    world = World()
    world.cloud.says["n1"] = instance(("InternalIP", "10.0.0.1"), ("InternalIP", "fd00::1"))
    nameless(world, ("Hostname", "n1"), ("InternalIP", address)).work()
    assert world.server.nodes["n1"]["spec"]["providerID"] == "fake://i-1"
    assert world.labels()["topology.kubernetes.io/zone"] == "z1"
    assert world.metrics.value(GAUGE) == 0
    asked = len(world.cloud.asked)
    world.pass_time(2 * PERIOD, step=PERIOD)
    assert len(world.cloud.asked) == asked + 2


@pytest.mark.row("N19")
@pytest.mark.parametrize(
    "answer",
    [
        instance(("InternalIP", "10.9.9.9")),
        instance(("Hostname", "n1")),
        InstanceMetadata(provider_id="fake://i-1"),
        InstanceNotFound("no such instance"),
        InvalidAnswer("instance_metadata", ["it has no provider_id, and neither has the node"]),
    ],
    ids=["other-address", "name-only", "no-addresses", "not-found", "no-id"],
)
def test_a_node_that_cannot_be_adopted_is_told_once_and_asked_about_once_a_refresh(answer: Any) -> None:
    world = World()
    world.cloud.says["n1"] = answer
    nameless(world, ("Hostname", "n1"), ("InternalIP", "10.0.0.1")).work()
    world.pass_time(3 * PERIOD, step=1)
    assert world.server.applied == []
    assert world.recorder.reasons() == ["NodeWithoutProviderID"]
    assert len(world.cloud.asked) == 4
    assert world.metrics.value(GAUGE) == 1
    world.cloud.says["n1"] = instance(("InternalIP", "10.0.0.1"))
    world.pass_time(PERIOD, step=PERIOD)
    assert world.server.nodes["n1"]["spec"]["providerID"] == "fake://i-1"
    assert world.metrics.value(GAUGE) == 0


@pytest.mark.row("N19")
@pytest.mark.parametrize(
    ("own", "cloud", "told"),
    [
        ([], [("InternalIP", "10.0.0.1")], "has none, the instance InternalIP 10.0.0.1"),
        (
            [("InternalIP", "10.0.0.2")],
            [("Hostname", "x")],
            "the node has InternalIP 10.0.0.2, the instance Hostname x",
        ),
    ],
)
def test_why_a_node_is_not_adopted_shows_both_lists(
    own: list[tuple[str, str]], cloud: list[tuple[str, str]], told: str
) -> None:
    with pytest.raises(NotAdopted) as caught:
        adoption(node(addresses=own), instance(*cloud))
    assert told in str(caught.value)


def test_the_gauge_forgets_a_node_that_goes() -> None:
    world = World()
    world.cloud.says["n1"] = InstanceNotFound("no such instance")
    nameless(world).work()
    assert world.metrics.value(GAUGE) == 1
    world.delete()
    assert world.metrics.value(GAUGE) == 0


@pytest.mark.parametrize("prefixes", [("fake://",), ()])
def test_nodes_of_a_cloud_without_provider_ids_are_refreshed_as_ever(prefixes: tuple[str, ...]) -> None:
    world = World(prefixes=prefixes)
    world.cloud.says["n1"] = instance(provider_id="")
    nameless(world, ("InternalIP", "10.7.7.7")).work()
    assert world.labels()["topology.kubernetes.io/zone"] == "z1"
    assert "providerID" not in world.server.nodes["n1"]["spec"]
    assert world.recorder.events == []
