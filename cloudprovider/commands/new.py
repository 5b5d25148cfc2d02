"""Write a new provider package: the files of `template/`, with the provider's name in them.

`template/common` is in every package; beside it goes `template/memory`, for a simulated cloud, or
`template/http`, for a cloud with an HTTP API.

A name and a folder come in. Both are checked before anything is written; the files are rendered in
memory first. Placeholders are %%{name}: one delimiter that neither Python, TOML, YAML nor a
Dockerfile uses.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from attrs import frozen

from cloudprovider.commands.newdiff import NOTE, Note
from cloudprovider.errors import InvalidProviderName
from cloudprovider.internal.problem import Problem
from cloudprovider.loading.registry import Registry, check_provider_name

_MOVED: Final = {"github": ".github/workflows", "gitignore": ".gitignore", "dockerignore": ".dockerignore"}
"""Names that a wheel or a linter would treat in a special way, and where they go."""


class _Template(string.Template):
    delimiter = "%%"


@frozen
class Names:
    """What the template's placeholders stand for, all made from the provider's name."""

    name: str
    http: bool = False
    """Whether the package is for a cloud with an HTTP API."""

    @property
    def placeholders(self) -> Mapping[str, str]:
        """Their values."""
        words = [word for word in re.split(r"[^A-Za-z0-9]+", self.name) if word]
        plain = "-".join(words).lower()
        variable = "_".join(words).upper()
        prefix = "".join(word[0].upper() + word[1:] for word in words)
        if prefix.startswith("Test"):  # pytest takes a class of such a name for tests
            prefix = f"The{prefix}"
        check = f"python -m cloudprovider check {self.name}"
        if self.http:  # it needs a configuration, and CI has no cloud
            settings = (
                f"{variable}_ENDPOINT=https://cloud.example {variable}_CLIENT_ID=me {variable}_CLIENT_SECRET=none"
            )
            check = f"{settings} {check} --offline"
        return {
            "name": self.name,
            "distribution": f"{plain}-provider",
            "package": f"{plain.replace('-', '_')}_provider",
            "script": f"{plain}-controller-manager",
            "prefix": prefix,
            "variable": variable,
            "check": check,
        }

    @property
    def seam(self) -> str:
        """The file to edit first: it knows the cloud."""
        return f"{self.placeholders['package']}/{'api' if self.http else 'cloud'}.py"


def naming_problem(name: str, folder: Path) -> Problem | None:
    """What is wrong with the name or the folder; None when nothing is."""
    try:
        check_provider_name(name)
    except InvalidProviderName as error:
        return error.problem
    if not Names(name).placeholders["package"].isidentifier():
        return Problem(f"no Python package can be named after {name!r}", "choose a name that begins with a letter")
    if name in Registry().names():
        return Problem(f"a provider {name!r} is installed already", "choose another name, or uninstall that one")
    if folder.exists():
        return Problem(f"{folder} exists already", "give another folder with --directory, or remove it")
    if not folder.absolute().parent.is_dir():
        return Problem(f"there is no folder {folder.absolute().parent}", "create it, or give another --directory")
    return None


def render(names: Names) -> dict[str, str]:
    """Every file of the package by its path, but for the note. Raises KeyError for a placeholder
    that has no value."""
    values = names.placeholders
    rendered = {}
    for kind in ("common", "http" if names.http else "memory"):
        for path, source in _sources(files("cloudprovider.commands") / "template" / kind, ()):
            first, *rest = path
            first = values["package"] if first == "package" else _MOVED.get(first, first)
            rendered["/".join([first, *rest])] = _Template(source.read_text("utf-8")).substitute(values)
    return rendered


def write(names: Names, folder: Path) -> list[str]:
    """Write the package into `folder`, which must not exist; returns the files' paths in it. Raises
    OSError."""
    rendered = render(names)
    # Of the files as they are written, by which a later --diff tells its own changes from the
    # owner's.
    rendered[NOTE] = Note.of(names.name, names.http, rendered).text()
    # It must not exist: nothing that somebody has written is ever overwritten.
    folder.mkdir()
    for path, text in rendered.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")
    return sorted(rendered)


def _sources(folder: Traversable, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Traversable]]:
    for one in folder.iterdir():
        if one.is_dir():
            yield from _sources(one, (*above, one.name))
        elif one.name.endswith(".tmpl"):
            yield (*above, one.name.removesuffix(".tmpl")), one
