"""The scenarios: numbered, each with one line of prose, and what a provider and a lab need for it.

`@scenario` registers a test method; `missing` says why a scenario cannot run; the docs' table and
the report list what is registered. Numbers are never given twice: a scenario that goes leaves a
gap.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from attrs import field, frozen

from cloudprovider.testing.conformance.features import Feature, feature_names
from cloudprovider.testing.conformance.lab import Lab, can

Level = Literal["provider", "end to end"]
F = TypeVar("F", bound=Callable[..., None])

FAMILIES = {
    "G": "The provider as a whole",
    "I": "Instances",
    "B": "Instances in batches",
    "N": "The older instances",
    "K": "SSH keys",
    "Z": "Zones",
    "L": "Load balancers",
    "O": "Load balancers that can be listed",
    "R": "Routes",
    "P": "Pod CIDRs",
    "V": "Volumes",
    "C": "Clusters",
    "M": "The machine that the program runs on",
    "E": "End to end",
}
"""The first letter of a scenario's ID, and what its family is about, in the order of the docs and
the report."""

_ID = re.compile(r"([A-Z])([1-9][0-9]*)")
_MARK = "__conformance__"


@frozen
class Scenario:
    """One thing that a provider must do. `id` is cited by docs and reports."""

    id: str
    title: str
    """What is proved, in one sentence."""
    features: Feature
    """Every one of them must be declared."""
    hooks: tuple[str, ...] = ()
    """Methods and attributes that the lab must override."""
    level: Level = "provider"
    function: Callable[..., None] = field(repr=False, eq=False, kw_only=True)

    @property
    def order(self) -> tuple[int, int]:
        """Sorts scenarios by family and number."""
        letter, number = self.id[0], self.id[1:]
        return list(FAMILIES).index(letter), int(number)


SCENARIOS: dict[str, Scenario] = {}
"""Every scenario of the package by its ID, filled by `scenario` as the modules are imported."""


def scenario(
    id: str, features: Feature = Feature.NONE, *, hooks: tuple[str, ...] = (), level: Level = "provider"
) -> Callable[[F], F]:
    """Make a test method of a conformance class a scenario. Its docstring is its line of prose.

    Raises ValueError for an ID that is taken or of no family, a missing docstring, or a hook that
    `Lab` lacks.
    """

    def register(function: F) -> F:
        match = _ID.fullmatch(id)
        if match is None or match[1] not in FAMILIES:
            raise ValueError(f"{id!r} is no scenario's ID: one letter of {', '.join(FAMILIES)} and a number")
        # The same again is a module that was loaded twice, as pytest does with rewriting.
        if id in SCENARIOS and SCENARIOS[id].function.__qualname__ != function.__qualname__:
            raise ValueError(f"{id} is taken by {SCENARIOS[id].function.__qualname__}")
        # A misspelt hook would skip the scenario for every vendor, in silence.
        unknown = [hook for hook in hooks if not hasattr(Lab, hook)]
        if unknown:
            raise ValueError(f"{id}: Lab has no {', '.join(unknown)}")
        title = " ".join((function.__doc__ or "").split())
        if not title:
            raise ValueError(f"{id}: {function.__qualname__} has no docstring")
        found = Scenario(id, title, features, hooks, level, function=function)
        SCENARIOS[id] = found
        setattr(function, _MARK, found)
        return function

    return register


def scenario_of(function: object) -> Scenario | None:
    """The scenario that a test function is, None for an ordinary test."""
    found: Any = getattr(function, _MARK, None)
    return found if isinstance(found, Scenario) else None


def missing(wanted: Scenario, declared: Feature, lab: Lab) -> str:
    """Why a scenario cannot run with these features and this lab; "" when it can."""
    # Told first: of a feature that is not declared nobody wants to hear about hooks.
    undeclared = wanted.features & ~declared
    if undeclared:
        return f"not declared: {', '.join(feature_names(undeclared))}"
    unable = [hook for hook in wanted.hooks if not can(lab, hook)]
    return f"the lab has no {' and no '.join(unable)}" if unable else ""
