"""Each scenario notices what it is there for: a cloud that is broken in one way fails that scenario
and no other.

A mutant runs the scenarios of its own part, and those about the provider as a whole.
CONFORMANCE_MUTANTS=all runs every scenario on every mutant (a minute).
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from cloudprovider.loading import registry
from cloudprovider.loading.plugins import find_plugins
from cloudprovider.testing.conformance import SCENARIOS, Scenario
from tests.unit.conformance.mutants import badly, balancers, nodes, others, podcidrs, targets
from tests.unit.conformance.mutants.bench import MUTANTS, Mutant, failures

__all__ = [
    "badly",
    "balancers",
    "nodes",
    "others",
    "podcidrs",
    "targets",
]  # imported for the mutants that they register
LONG = os.environ.get("CONFORMANCE_MUTANTS") == "all"
KIN = {"L": "LO", "O": "LO", "G": "GI"}


@pytest.fixture(scope="module", autouse=True)
def installed() -> Iterator[None]:
    """What is installed, looked up once: G1 asks for it on every mutant."""
    found = find_plugins()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_REGISTRY", registry.Registry(lambda: found))
        yield


def relevant(mutant: Mutant) -> list[Scenario]:
    """The scenarios to run on a mutant."""
    families = KIN.get(mutant.scenario[0], mutant.scenario[0]) + "G"
    provider = [scenario for scenario in SCENARIOS.values() if scenario.level == "provider"]
    return [scenario for scenario in provider if LONG or scenario.id[0] in families]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.scenario}-{mutant.part.__name__}")
def test_a_broken_cloud_fails_its_scenario_alone(mutant: Mutant) -> None:
    found = failures(mutant, relevant(mutant))
    assert list(found) == [mutant.scenario], "\n".join(f"{id}: {said}" for id, said in found.items()) or "none failed"


def test_every_scenario_has_a_broken_cloud() -> None:
    wanted = {scenario.id for scenario in SCENARIOS.values() if scenario.level == "provider"}
    assert {mutant.scenario for mutant in MUTANTS} == wanted
    assert all(mutant.wrong for mutant in MUTANTS)
