"""What is installed: every plugin with its distribution, whether it can be loaded, and what it
offers.

Data comes from the entry points and from importing each plugin's module; it goes to the command
line. One that is broken does not keep the others from being listed.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any

from attrs import evolve, frozen

from cloudprovider.errors import RegistryError
from cloudprovider.interface import Interface
from cloudprovider.internal.problem import Problem
from cloudprovider.loading.diagnostics import ACCESSORS, code_place
from cloudprovider.loading.loader import Factory, load_factory
from cloudprovider.loading.plugins import Plugin, find_plugins
from cloudprovider.loading.registry import Registry


@frozen(kw_only=True)
class Listed:
    """One installed provider."""

    name: str
    distribution: str
    version: str
    entry_point: str
    metadata: str
    """The file that has the entry point."""
    factory: str = ""
    """ "file:line" of it; "" where it cannot be loaded or is not known."""
    capabilities: tuple[str, ...] | None = None
    """Accessors that the class overrides which the factory says it returns; None where it does not
    say."""
    problem: Problem | None = None

    @property
    def shown_capabilities(self) -> str:
        """For people."""
        if self.problem is not None:
            return "cannot be loaded"
        if self.capabilities is None:
            return f"not known before it is started: check {self.name} --cloud-config=..."
        return ", ".join(self.capabilities) or "none"

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        problem = self.problem
        return {
            "name": self.name,
            "distribution": self.distribution,
            "version": self.version,
            "entryPoint": self.entry_point,
            "metadata": self.metadata,
            "factory": self.factory or None,
            "capabilities": None if self.capabilities is None else list(self.capabilities),
            "capabilitiesFrom": None if self.capabilities is None else "class",
            "problem": None if problem is None else problem.as_json(),
        }


def list_providers() -> tuple[tuple[Listed, ...], tuple[str, ...]]:
    """Every installed provider by name, and the distributions whose metadata cannot be read."""
    found = find_plugins()
    registry = Registry(lambda: found)
    plugins = sorted(found.plugins, key=lambda plugin: (plugin.name, plugin.distribution))
    return tuple(_listed(plugin, registry) for plugin in plugins), found.broken


def _listed(plugin: Plugin, registry: Registry) -> Listed:
    listed = Listed(
        name=plugin.name,
        distribution=plugin.project,
        version=plugin.version,
        entry_point=plugin.value,
        metadata=plugin.metadata_file,
    )
    try:
        # It says so where two distributions offer the name.
        registry.locate(plugin.name)
        factory = load_factory(plugin)
        listed = evolve(listed, factory=code_place(factory) or plugin.value)
    except RegistryError as error:
        return evolve(listed, problem=error.problem)
    kind = _returned(factory)
    return listed if kind is None else evolve(listed, capabilities=overridden(kind))


def overridden(kind: type[Interface]) -> tuple[str, ...]:
    """The accessors that a class has of its own."""
    return tuple(name for name in ACCESSORS if getattr(kind, name) is not getattr(Interface, name))


def _returned(factory: Factory) -> type[Interface] | None:
    """The class that a factory is, or says that it returns; None where it says no more than
    Interface."""
    kind: object = factory
    if not inspect.isclass(factory):
        kind = getattr(factory, "__annotations__", {}).get("return")
        if isinstance(kind, str):  # a name of its module; get_type_hints would fail over names imported for types alone
            kind = getattr(sys.modules.get(factory.__module__), kind, None)
    return kind if inspect.isclass(kind) and issubclass(kind, Interface) and kind is not Interface else None
