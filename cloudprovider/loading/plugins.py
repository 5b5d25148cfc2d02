"""Finds installed provider plugins by their entry points, without importing any of them.

Reads the metadata of installed distributions (`importlib_metadata`) and hands the registry what it
found. Entry points are read distribution by distribution, so that one with broken metadata costs
only itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from attrs import field, frozen

from cloudprovider.internal.problem import Problem, nearest

if TYPE_CHECKING:
    from importlib_metadata import IDistribution

ENTRY_POINT_GROUP = "cloudprovider.providers"
"""The entry-point group of plugins' factories: `acme = "acme_provider:new_provider"`."""

_OURS = "kubernetes-cloud-provider"
_OUR_FOLDERS = ("cloudprovider/", "controllers/")
_OUR_FILE = re.compile(r"^\"?((?:cloudprovider|controllers)/[^,\"]*\.py)", re.MULTILINE)


@frozen
class Plugin:
    """One entry point, as its distribution's metadata has it."""

    name: str
    value: str
    """ "module:object"."""
    project: str
    """The distribution's name."""
    version: str
    _installed: IDistribution = field(repr=False, eq=False)

    @property
    def distribution(self) -> str:
        """ "name version"."""
        return f"{self.project} {self.version}"

    @property
    def line(self) -> str:
        """The entry point as a pyproject.toml has it."""
        return f'{self.name} = "{self.value}"'

    @property
    def target(self) -> tuple[str, str]:
        """The module, and the object in it ("" for itself). Raises ValueError for a bad `value`."""
        from importlib_metadata import EntryPoint

        entry = EntryPoint(self.name, self.value, ENTRY_POINT_GROUP)
        return entry.module, entry.attr or ""

    def pick(self, module: ModuleType) -> Any:
        """The object that the entry point names. Raises AttributeError where there is none."""
        found: Any = module
        for part in filter(None, self.target[1].split(".")):
            found = getattr(found, part)
        return found

    @property
    def metadata_file(self) -> str:
        """The file that the entry point was read from."""
        return str(Path(_location(self._installed)) / "entry_points.txt")

    @property
    def source(self) -> Path | None:
        """The folder that it was installed from, where that was a folder of this machine: of its
        author, as a rule."""
        try:
            url = urlsplit(json.loads(self._installed.read_text("direct_url.json") or "{}").get("url", ""))
        except (OSError, ValueError, AttributeError):  # no such file, or not of that form
            return None
        folder = Path(unquote(url.path))
        return folder if url.scheme == "file" and folder.is_dir() else None

    def sdk_problem(self) -> Problem | None:
        """What its distribution says about versions of this SDK, where the installed one is none of
        them: pip warns at the installation only."""
        import importlib_metadata
        from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
        from packaging.requirements import InvalidRequirement, Requirement

        try:
            version = importlib_metadata.version(_OURS)
        except importlib_metadata.PackageNotFoundError:  # a checkout on sys.path
            return None
        for line in self._installed.requires or ():
            try:
                wanted = Requirement(line)
                if not _is_ours(wanted.name) or (wanted.marker and not wanted.marker.evaluate({"extra": ""})):
                    continue
            except (InvalidRequirement, UndefinedComparison, UndefinedEnvironmentName):
                continue  # whoever installs it has to read it
            if not wanted.specifier.contains(version, prereleases=True):
                return Problem(
                    f"{self.distribution} is made for {_OURS} {wanted.specifier}, and {version} is installed",
                    f"install a version of {_OURS} in that range, or of {self.project} that allows {version}",
                    fatal=False,
                )
        return None

    def modules(self) -> tuple[str, ...]:
        """The top-level modules and packages that it brings, sorted; () if not known."""
        files = [str(path).split("/") for path in self._installed.files or ()]
        names = {path[0] for path in files if path[-1].endswith(".py")} - {".."}
        if not names and (source := self.source) is not None:
            names = {init.parent.name for root in (source, source / "src") for init in root.glob("*/__init__.py")}
        return tuple(sorted(name.removesuffix(".py") for name in names))


@frozen
class Found:
    """What is installed. `broken` describes the distributions whose metadata could not be read."""

    plugins: tuple[Plugin, ...] = ()
    broken: tuple[str, ...] = ()

    def named(self, name: str) -> tuple[Plugin, ...]:
        """Every entry point of this name: one, unless distributions quarrel."""
        return tuple(plugin for plugin in self.plugins if plugin.name == name)


def find_plugins() -> Found:
    """Look through every installed distribution. Reads files, imports no plugin; any thread.

    A distribution that is found twice on sys.path counts once, as the first one."""
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


def intruders() -> list[Problem]:
    """Other distributions that bring files into our packages `cloudprovider` and `controllers`: pip
    overwrites ours with theirs without a word, and deletes ours when they are uninstalled. Reads
    lists of installed files, no code."""
    import importlib_metadata

    problems = {}
    for distribution in importlib_metadata.distributions():
        try:
            record = distribution.read_text("RECORD") or ""
            # Almost all end here. A name is read from another file, by a parser of e-mail: for a
            # hundred distributions that took 0.05 s of each start.
            if not any(folder in record for folder in _OUR_FOLDERS) or not (files := _OUR_FILE.findall(record)):
                continue
            project = f"{distribution.name} {distribution.version}"
        except Exception:  # noqa: BLE001 - metadata written by others; `find_plugins` tells what is broken
            continue
        if _is_ours(distribution.name):
            continue
        folders = sorted({file.partition("/")[0] for file in files})
        problems[project] = Problem(
            f"{project} brings files into the top-level package {' and '.join(map(repr, folders))}, which belongs to "
            f"{_OURS}: {', '.join(sorted(files)[:3])}{', ...' if len(files) > 3 else ''} ({_location(distribution)})",
            f"uninstall it, install {_OURS} again (its files may be overwritten), and have that project move them into "
            "a package of its own name",
            fatal=False,
        )
    return list(problems.values())


def wrong_groups(name: str = "") -> list[Problem]:
    """Distributions with entry points, or one of this name, in a group whose name is almost the
    right one (for one of this name: any of cloud providers). Reads files of all distributions: for
    when a provider is missing."""
    import importlib_metadata

    problems = {}
    for distribution in importlib_metadata.distributions():
        try:
            entries = distribution.entry_points
            named = [entry for entry in entries if entry.name == name or not name]
            near = [entry for entry in named if entry.group != ENTRY_POINT_GROUP and _is_near(entry.group, name)]
            project = f"{distribution.name} {distribution.version}" if near else ""
        except Exception:  # noqa: BLE001 - metadata written by others; `find_plugins` tells what is broken
            continue
        for entry in near:
            problems[project, entry.group] = Problem(
                f"{project} offers {entry.name!r} in the entry-point group {entry.group!r}, where nobody looks",
                f"call it {ENTRY_POINT_GROUP!r} in the pyproject.toml of {distribution.name}, and install that again",
                fatal=False,
            )
    return list(problems.values())


def _is_near(group: str, name: str = "") -> bool:
    """Whether it is almost the right group; for an entry of the name that is missing, any of cloud
    providers."""
    if name and "cloudprovider" in re.sub(r"[-_.]+", "", group.lower()):
        return True
    return bool(nearest(ENTRY_POINT_GROUP, [re.sub(r"[-_.]+", ".", group.lower()).replace("cloud.", "cloud")], 0.85))


def _is_ours(project: str) -> bool:
    return re.sub(r"[-_.]+", "-", project).lower() == _OURS


def _first(distribution: IDistribution, active: Callable[[str], IDistribution]) -> IDistribution:
    """The distribution of the same name that comes first on sys.path, which may be a newer one."""
    import importlib_metadata

    try:
        return active(distribution.name)
    except importlib_metadata.PackageNotFoundError:  # its directory is named in a way that a look-up does not find
        return distribution


def _plugins_of(distribution: IDistribution) -> list[Plugin]:
    project, version = distribution.name, distribution.version
    return [
        Plugin(entry.name, entry.value, project, version, distribution)
        for entry in distribution.entry_points.select(group=ENTRY_POINT_GROUP)
    ]


def _location(distribution: IDistribution) -> str:
    """Where a distribution's metadata lies."""
    return str(getattr(distribution, "_path", None) or distribution.locate_file(""))
