"""The distribution that the cluster's manager holds: our examples/localcloud, or a vendor's."""

from __future__ import annotations

import tomllib
from pathlib import Path

from attrs import frozen

OURS = Path(__file__).parents[3] / "examples" / "localcloud"
_GROUP = "cloudprovider.providers"


class BadProvider(Exception):
    """The folder is no distribution with a provider; the text says what is wrong."""


@frozen
class Provider:
    """A provider's distribution and its name (--cloud-provider)."""

    folder: Path
    name: str


def read_provider(folder: Path) -> Provider:
    """Read the name from the folder's pyproject.toml. Raises BadProvider."""
    file = folder / "pyproject.toml"
    try:
        project = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as problem:
        raise BadProvider(
            f"PROVIDER must be the folder of your package, with its pyproject.toml: {problem}"
        ) from problem
    except tomllib.TOMLDecodeError as problem:
        raise BadProvider(f"{file}: {problem}") from problem
    names = list(project.get("project", {}).get("entry-points", {}).get(_GROUP, {}))
    if len(names) != 1:
        found = ", ".join(names) or "none"
        raise BadProvider(f'{file} must have one entry in [project.entry-points."{_GROUP}"]; found: {found}')
    return Provider(folder.resolve(), names[0])
