"""Scenarios are numbered once, need what the lab knows, and are skipped by name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cloudprovider.testing.conformance import SCENARIOS, Feature, Lab, ProviderConformance, scenario
from cloudprovider.testing.conformance.features import feature_names, offered
from cloudprovider.testing.conformance.registry import FAMILIES, missing, scenario_of
from cloudprovider.testing.fake import FakeCloud, FakeConfig

PROVIDER_LEVEL = [one for one in SCENARIOS.values() if one.level == "provider"]


def fine(self: object) -> None:
    """It does what it should."""


def silent(self: object) -> None: ...


class Stops(Lab):
    def stop_machine(self, node: object) -> None:
        return


@pytest.mark.parametrize(
    ("id", "function", "hooks", "said"),
    [
        ("Q1", fine, (), "'Q1' is no scenario's ID"),
        ("L01", fine, (), "'L01' is no scenario's ID"),
        ("L1", fine, (), "L1 is taken by LoadBalancerScenarios.test_l1"),
        ("L999", silent, (), "L999: silent has no docstring"),
        ("L999", fine, ("melt",), "L999: Lab has no melt"),
    ],
)
def test_a_scenario_that_cannot_be_registered(
    id: str, function: Callable[..., None], hooks: tuple[str, ...], said: str
) -> None:
    with pytest.raises(ValueError, match="^" + said):
        scenario(id, hooks=hooks)(function)
    assert "L999" not in SCENARIOS


def test_every_scenario_is_a_test_of_the_class_to_subclass() -> None:
    methods = {name: scenario_of(getattr(ProviderConformance, name)) for name in dir(ProviderConformance)}
    tests = {name: found for name, found in methods.items() if name.startswith("test_")}
    assert {one.id for one in PROVIDER_LEVEL} == {found.id for found in tests.values() if found is not None}
    for name, found in tests.items():
        assert found is not None, f"{name} is no scenario"
        assert name.startswith(f"test_{found.id.lower()}_"), f"{name} is {found.id}"


def test_prose_is_one_sentence_or_a_few() -> None:
    for one in SCENARIOS.values():
        assert one.title.endswith("."), one
        assert len(one.title) <= 130, one
    assert {one.id[0] for one in PROVIDER_LEVEL} == set(FAMILIES) - {"E"}


def test_a_scenario_is_skipped_by_name() -> None:
    found = SCENARIOS["I3"]
    assert missing(found, Feature.ROUTES, Stops()) == "not declared: instances_v2"
    assert missing(found, Feature.INSTANCES_V2, Lab()) == "the lab has no create_machine and no stop_machine"
    assert missing(found, Feature.INSTANCES_V2, Stops()) == "the lab has no create_machine"
    lab = Stops()
    lab.create_machine = lambda name: None  # type: ignore[method-assign, assignment, return-value]
    assert missing(found, Feature.INSTANCES_V2, lab) == ""


def test_features_by_accessor() -> None:
    with FakeCloud(FakeConfig.model_validate({"capabilities": ["instances_v2", "load_balancer"]})) as cloud:
        assert offered(cloud) == Feature.INSTANCES_V2 | Feature.LOAD_BALANCER
    with FakeCloud(FakeConfig.model_validate({"capabilities": ["load_balancer", "owned_load_balancers"]})) as cloud:
        assert feature_names(offered(cloud)) == ("load_balancer", "owned_load_balancers")
