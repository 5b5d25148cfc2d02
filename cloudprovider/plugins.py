"""Finds installed provider plugins by their entry points, without importing any of them.

Reads the metadata of installed distributions (`importlib_metadata`) and hands the registry what it found.
Entry points are read distribution by distribution, so that one with broken metadata costs only itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from attrs import frozen

if TYPE_CHECKING:
    from importlib_metadata import IDistribution

__all__ = ["ENTRY_POINT_GROUP", "Found", "Plugin", "find_plugins"]

ENTRY_POINT_GROUP = "cloudprovider.providers"
"""The entry-point group that plugins declare their factory in: `acme = "acme_provider:new_provider"`."""


@frozen
class Plugin:
    """One entry point. `value` is "module:object", `distribution` is "name version"."""

    name: str
    value: str
    distribution: str
    load: Callable[[], Any]
    """Imports the module and returns the object; raises whatever that raises."""


@frozen
class Found:
    """What is installed. `broken` describes the distributions whose metadata could not be read."""

    plugins: tuple[Plugin, ...] = ()
    broken: tuple[str, ...] = ()

    def named(self, name: str) -> tuple[Plugin, ...]:
        """Every entry point of this name: one, unless distributions quarrel."""
        return tuple(plugin for plugin in self.plugins if plugin.name == name)


def find_plugins() -> Found:
    """Look through every installed distribution. Reads files, imports no plugin; repeatable, any thread.

    A distribution that is found twice on sys.path counts once, as the first one.
    """
    import importlib_metadata

    return _collect(importlib_metadata.distributions(), importlib_metadata.distribution)


def _collect(distributions: Iterable[IDistribution], active: Callable[[str], IDistribution]) -> Found:
    """`active` gives the distribution of a name that import would use: the first on sys.path."""
    plugins: dict[tuple[str, str, str], Plugin] = {}
    broken: list[str] = []
    for distribution in distributions:
        try:
            if distribution.entry_points.select(group=ENTRY_POINT_GROUP):
                for plugin in _plugins_of(_first(distribution, active)):
                    plugins[plugin.distribution, plugin.name, plugin.value] = plugin
        except Exception as exc:  # noqa: BLE001 - metadata written by others: any way of being broken is reported
            broken.append(f"{_location(distribution)} ({type(exc).__name__}: {exc})")
    return Found(tuple(plugins.values()), tuple(sorted(set(broken))))


def _first(distribution: IDistribution, active: Callable[[str], IDistribution]) -> IDistribution:
    """The distribution of the same name that comes first on sys.path, which may be a newer one."""
    import importlib_metadata

    try:
        return active(distribution.name)
    except importlib_metadata.PackageNotFoundError:  # its directory is named in a way that a look-up does not find
        return distribution


def _plugins_of(distribution: IDistribution) -> list[Plugin]:
    label = f"{distribution.name} {distribution.version}"
    return [
        Plugin(name=entry.name, value=entry.value, distribution=label, load=entry.load)
        for entry in distribution.entry_points.select(group=ENTRY_POINT_GROUP)
    ]


def _location(distribution: IDistribution) -> str:
    """Where a distribution without readable metadata lies."""
    return str(getattr(distribution, "_path", None) or distribution.locate_file(""))
