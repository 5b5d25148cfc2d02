"""The conformance suite: proves that a provider keeps the contract of `cloudprovider`, scenario by
scenario.

A vendor writes one test file: a `Lab` (what can be done to the test cloud), a fixture `lab`, and a
subclass of `ProviderConformance` that declares its features. `pytest --conformance-report=DIR` then
says in JSON and Markdown what passed, what was skipped and why, and what failed.
docs/reference/scenarios.md lists every scenario.
"""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING

import pytest

from cloudprovider.internal.lazy import lazy

# By itself pytest does it for what a wheel has installed, and not for an editable installation.
pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)))

if TYPE_CHECKING:
    from cloudprovider.testing.conformance.base import ConformanceBase
    from cloudprovider.testing.conformance.endtoend import EndToEndConformance
    from cloudprovider.testing.conformance.features import Feature
    from cloudprovider.testing.conformance.httplab import HTTPLab
    from cloudprovider.testing.conformance.lab import BadAnswer, BalancerFacts, Lab, new_node, new_service
    from cloudprovider.testing.conformance.registry import SCENARIOS, Scenario, scenario
    from cloudprovider.testing.conformance.suite import ProviderConformance
    from cloudprovider.testing.conformance.trial import Trial
else:
    _load, __dir__ = lazy(
        __name__,
        {
            "cloudprovider.testing.conformance.base": "ConformanceBase",
            "cloudprovider.testing.conformance.endtoend": "EndToEndConformance",
            "cloudprovider.testing.conformance.features": "Feature",
            "cloudprovider.testing.conformance.httplab": "HTTPLab",
            "cloudprovider.testing.conformance.lab": "BadAnswer BalancerFacts Lab new_node new_service",
            "cloudprovider.testing.conformance.registry": "SCENARIOS Scenario scenario",
            "cloudprovider.testing.conformance.suite": "ProviderConformance",
            "cloudprovider.testing.conformance.trial": "Trial",
        },
    )

    def __getattr__(name: str) -> object:
        """All names are loaded when the first of them is used: the others' modules fill SCENARIOS.
        Not with the import: pytest imports the plugin of this package at each start, and the suite
        takes seconds of CPU."""
        found = _load(name)
        globals().update({each: _load(each) for each in __all__})
        return found


__all__ = [
    # what a vendor writes a test file with
    "ProviderConformance",
    "EndToEndConformance",
    "Feature",
    "Lab",
    "HTTPLab",
    "BalancerFacts",
    "BadAnswer",
    "new_node",
    "new_service",
    # what scenarios are written with
    "ConformanceBase",
    "scenario",
    "Trial",
    "Scenario",
    "SCENARIOS",
]
