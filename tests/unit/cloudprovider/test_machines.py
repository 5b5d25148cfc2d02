"""Machines: found by provider ID or name; a listing saves questions, and never says "gone"."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from attrs import frozen
from typing_extensions import override

from cloudprovider import CloudProviderError, InstanceMetadata, InstanceNotFound, InstanceState, Machines
from cloudprovider.testing.conformance import new_node


@frozen
class One:
    id: str
    name: str
    off: bool = False


class Account(Machines[One]):
    provider = "acme"

    def __init__(self, *there: One) -> None:
        self.there = list(there)
        self.listed: list[One] | None = None
        """What a listing shows, where it lags."""
        self.asked: list[str] = []

    @override
    def machine(self, machine_id: str) -> One | None:
        self.asked.append(f"machine {machine_id}")
        return next((one for one in self.there if one.id == machine_id), None)

    @override
    def machines(self, name: str = "") -> Sequence[One]:
        self.asked.append(f"machines {name}".strip())
        listed = self.there if self.listed is None else self.listed
        return [one for one in listed if not name or one.name.startswith(name)]

    @override
    def state(self, machine: One) -> InstanceState:
        return InstanceState.SHUTDOWN if machine.off else InstanceState.RUNNING

    @override
    def metadata(self, machine: One, node: str) -> InstanceMetadata:
        return InstanceMetadata(self.provider_id(machine.id), node)


NODES = [new_node(f"n{number}", f"acme://{number}") for number in range(5)]
THERE = [One(str(number), f"another-name-{number}") for number in range(5)]


def test_many_nodes_are_one_listing_and_few_are_not() -> None:
    account = Account(*THERE)
    assert set(account.instances_state(NODES).values()) == {InstanceState.RUNNING}
    assert account.asked == ["machines"]
    account.asked.clear()
    found = account.instances_metadata(NODES[:2])
    assert found == {"n0": InstanceMetadata("acme://0", "n0"), "n1": InstanceMetadata("acme://1", "n1")}
    assert account.asked == ["machine 0", "machine 1"]


@pytest.mark.row("P6")
def test_what_is_not_listed_is_asked_for_and_only_then_gone() -> None:
    account = Account(*THERE[1:])
    account.listed = []
    found = account.instances_state(NODES)
    assert isinstance(found["n0"], InstanceNotFound)
    assert [one for one in found.values() if one is InstanceState.RUNNING] == [InstanceState.RUNNING] * 4
    assert not account.instance_exists(NODES[0])
    assert account.instance_exists(NODES[1])


@pytest.mark.row("P5")
def test_a_machine_with_another_name_is_found_by_its_id() -> None:
    account = Account(One("1", "renamed", off=True), One("2", "n1"))
    assert account.instance_shutdown(NODES[1])
    assert account.find("acme://1", "n1").id == "1"
    assert account.find("", "n1").id == "2"


def test_a_name_that_is_the_beginning_of_another_and_one_that_is_there_twice() -> None:
    account = Account(One("1", "n1"), One("10", "n10"), One("2", "twice"), One("3", "twice"), One("4", "other"))
    assert account.find("", "n1").id == "1"
    for ask in (lambda: account.find("", "twice"), lambda: account.instance_exists(new_node("twice"))):
        with pytest.raises(CloudProviderError, match="2 machines are named twice") as caught:
            ask()
        assert not isinstance(caught.value, InstanceNotFound)
    nodes = [new_node(name) for name in ("n1", "n10", "twice", "other", "none")]
    found = account.instances_metadata(nodes)
    assert isinstance(found["none"], InstanceNotFound)
    assert type(found["twice"]) is CloudProviderError
    assert found["n1"] == InstanceMetadata("acme://1", "n1")


@pytest.mark.parametrize("provider_id", ["aws:///eu-west-1a/i-1", "nonsense", "acme://None", "acme:///"])
def test_the_id_of_another_provider_is_unknown_and_no_target(provider_id: str) -> None:
    account = Account(*THERE)
    node = new_node("n", provider_id)
    with pytest.raises(CloudProviderError) as caught:
        account.instance_exists(node)
    assert not isinstance(caught.value, InstanceNotFound)
    assert account.ids_in([node, new_node("m"), NODES[1]]) == frozenset({"1"})
