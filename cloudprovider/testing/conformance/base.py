"""The base of every conformance class: the class attributes that a vendor sets, and the fixture
`trial`.

A scenario's method takes `trial`; the fixture skips it by name when a feature is not declared or
the lab lacks a hook, and removes what the scenario made. The vendor's fixture `lab` (scope
"module") stands beside the class.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cloudprovider.errors import RegistryError
from cloudprovider.interface import Interface
from cloudprovider.loading.diagnostics import error_text, raised_at
from cloudprovider.loading.registry import get_cloud_provider
from cloudprovider.testing.conformance.bench import Bench
from cloudprovider.testing.conformance.features import INSTANCES, Feature
from cloudprovider.testing.conformance.lab import Lab
from cloudprovider.testing.conformance.plugin import BENCH, FAILED, OUTLIVED, teller
from cloudprovider.testing.conformance.registry import Scenario, missing, scenario_of
from cloudprovider.testing.conformance.trial import Trial

UNMADE: pytest.StashKey[bool] = pytest.StashKey()
"""Whether the class's provider could not be made."""


class ConformanceBase:
    """Set `provider_name` and `features` in a subclass, and write the fixture `lab`."""

    provider_name: str = ""
    """As in --cloud-provider: the name of the entry point."""
    features: Feature = Feature.NONE
    """What the provider can do; scenarios of other features are skipped."""

    def __init_subclass__(cls, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        features: object = cls.features
        if not isinstance(features, Feature):
            wanted = "features joined with |, as in Feature.INSTANCES_V2 | Feature.ROUTES"
            raise TypeError(f"{cls.__name__}.features must be {wanted}, not {features!r}")

    def make_provider(self, lab: Lab) -> Interface:
        """The provider, as the manager makes it: by name, with the lab's configuration.

        Called once for the class, and again where a scenario needs a second provider over the same
        cloud.
        """
        return get_cloud_provider(self.provider_name, lab.config())

    @pytest.fixture
    def trial(self, request: pytest.FixtureRequest, lab: Lab) -> Iterator[Trial]:
        """One scenario's hold on the provider and its cloud."""
        assert isinstance(lab, Lab), f"the fixture lab must return a Lab, not {type(lab).__name__}"
        found = scenario_of(request.function)
        # Before anything is made: a class of one feature must not cost the machines of all others.
        reason = missing(found, self.features, lab) if found is not None else ""
        if reason:
            pytest.skip(reason)
        bench = self._bench(request, lab)
        if found is not None:
            self._go_on(request, found)
            bench.patience.scenario = found.id
        with Trial(bench) as trial:
            yield trial

    def _go_on(self, request: pytest.FixtureRequest, found: Scenario) -> None:
        """Skip an end-to-end scenario whose parts failed alone."""
        module = request.node.getparent(pytest.Module)
        failed = module.stash.get(FAILED, {}).get(self.provider_name, {}) if module is not None else {}
        # A machine is only of use to a scenario once its node is initialised.
        needs = found.features | (INSTANCES if "create_machine" in found.hooks else Feature.NONE)
        needs |= INSTANCES if needs & INSTANCES else Feature.NONE
        causes = [id for id, features in failed.items() if not features or features & needs]
        # It would wait for its whole time, and say less than the scenario that failed.
        if found.level == "end to end" and causes:
            pytest.skip(f"not run: {', '.join(causes)} failed, which this needs")

    def _bench(self, request: pytest.FixtureRequest, lab: Lab) -> Bench:
        node = request.node.getparent(pytest.Class)
        bench: Bench | None = node.stash.get(BENCH, None)
        if node.stash.get(UNMADE, False):
            pytest.skip("not run: the provider cannot be made, as the first error says")
        if bench is None:
            try:
                bench = Bench(lab, self.features, lambda: self.make_provider(lab), self.provider_name)
            # Else every scenario would repeat the same traceback.
            except Exception as error:  # noqa: BLE001 - vendor boundary: reported once, for the whole class
                node.stash[UNMADE] = True
                pytest.fail(f"the provider cannot be made: {_text(error)}", pytrace=False)
            bench.patience.tell = teller(request.config)
            node.stash[BENCH] = bench
            outlived = request.config.stash.setdefault(OUTLIVED, [])
            node.addfinalizer(lambda: outlived.extend(bench.outlived))
            node.addfinalizer(bench.close)  # the last one is called first
        assert bench.lab is lab, 'the fixture lab was made twice for one class: give it scope="module"'
        return bench


def _text(error: Exception) -> str:
    """What is wrong, where, and what to do."""
    if isinstance(error, RegistryError):
        return str(error)
    text, details = error_text(error)
    return "\n  ".join([f"{text} ({raised_at(error)})", *details])
