"""Puts a mutant in the place of the fake cloud's own part, and runs scenarios on it without pytest.

Each scenario gets a new cloud in memory, so that no scenario sees what another one spoilt.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest
from attrs import frozen

from cloudprovider import Interface
from cloudprovider.testing.conformance import SCENARIOS, Feature, Scenario, Trial
from cloudprovider.testing.conformance.bench import Bench
from cloudprovider.testing.conformance.features import CAPABILITIES, EXTENDING, feature_names
from cloudprovider.testing.conformance.registry import missing
from cloudprovider.testing.fake import FakeCloud, FakeConfig
from tests.unit.conformance.fakelab import LOCAL, SECRET, ConsoleLab
from tests.unit.conformance.mutants.ways import Way

__all__ = ["ALL", "MUTANTS", "Mutant", "breaks", "broken", "failures"]

ALL = ~Feature.NONE
MUTANTS: list[Mutant] = []
C = TypeVar("C", bound=type[Any])


class _MutantLab(ConsoleLab):
    grace = 0.5
    secrets = (SECRET,)


@frozen
class Mutant:
    """One broken cloud: `part` takes the place of the fake cloud's part that it is a subclass
    of."""

    scenario: str
    part: type[Any]
    declared: Feature
    offered: Feature
    without: tuple[str, ...] = ()
    """Hooks that its lab lacks, where a scenario that needs them proves the same and more."""

    @property
    def wrong(self) -> str:
        """What is wrong with it, in one sentence."""
        return " ".join((self.part.__doc__ or "").split())

    @property
    def _original(self) -> type[Any]:
        """The part of the fake cloud that it breaks."""
        return next(kind for kind in self.part.__mro__ if kind.__module__.startswith("cloudprovider."))

    def provider(self, cloud: FakeCloud) -> FakeCloud:
        """A new provider over the cloud of another one, broken."""
        twin = copy.copy(cloud)
        for name in ("_instances", "_instances_v2", "_instances_batch", "_zones", "_balancers", "_routes",
                     "_pod_cidrs", "_pv_labeler", "_clusters", "_local", "_resources"):  # fmt: skip
            own = copy.copy(getattr(cloud, name))
            if own is not None and isinstance(own, self._original):
                own.__class__ = type(self.part.__name__, (self.part, type(own)), {})
            setattr(twin, name, own)
        if issubclass(self.part, FakeCloud):
            twin.__class__ = self.part
        return twin


def breaks(
    scenario: str,
    features: Feature = ALL,
    *,
    declared: Feature | None = None,
    without: Iterable[str] = (),
) -> Callable[[C], C]:
    """Register a mutant: the scenario that it fails, and the features that its cloud has and
    declares."""

    def register(part: C) -> C:
        MUTANTS.append(Mutant(scenario, part, declared if declared is not None else features, features, tuple(without)))
        return part

    return register


def broken(
    scenario: str,
    part: type[Any],
    methods: str,
    way: Way,
    wrong: str,
    features: Feature = ALL,
) -> None:
    """Register a mutant of this part in which methods, with blanks between their names, are broken
    in one of the `ways`; `wrong` says what is wrong with it."""
    members = {name: way(getattr(part, name)) for name in methods.split()}
    breaks(scenario, features)(type("_and_".join(members), (part,), {"__doc__": wrong, **members}))


def failures(mutant: Mutant, scenarios: Iterable[Scenario]) -> dict[str, str]:
    """The scenarios that fail on the mutant, with what they said."""
    failed: dict[str, str] = {}
    config = _config(mutant.offered)
    with FakeCloud(config) as cloud:
        lab = _MutantLab(cloud)
        asked = [one for one in scenarios if not missing(one, mutant.declared, lab)]
    for scenario in asked:
        if set(scenario.hooks) & set(mutant.without):
            continue
        with FakeCloud(config) as cloud:
            told = _run(mutant, scenario, cloud)
        if told:
            failed[scenario.id] = told
    return failed


def _run(mutant: Mutant, scenario: Scenario, cloud: FakeCloud) -> str:
    def make() -> Interface:
        return mutant.provider(cloud)

    bench = Bench(_MutantLab(cloud), mutant.declared, make, "fake")
    try:
        with Trial(bench) as trial:
            scenario.function(None, trial)
    except pytest.skip.Exception:
        return ""
    except Exception as error:  # noqa: BLE001 - whatever a scenario raises is its failure
        return f"{type(error).__name__}: {error}"
    finally:
        bench.close()
    return ""


def _config(features: Feature) -> Any:
    known = [feature for feature in (*CAPABILITIES, *EXTENDING) if feature in features]
    return FakeConfig.model_validate(
        {
            "capabilities": [name for feature in known for name in feature_names(feature)],
            "machine": LOCAL,
            "routes": {"strict_targets": True},
        }
    )


assert SCENARIOS, "the suite registers its scenarios when it is imported"
