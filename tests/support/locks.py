"""The lock files that examples/deploy/image installs for one provider: what it needs beside the
SDK's own requirements.txt, with the hashes of requirements-dev.txt.

Data comes from the provider's pyproject.toml, the lock files of the top folder, and the metadata of
what is installed here; `tests.generate` writes the result.
"""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROVIDERS = ("aws", "libcloud", "openstack")
"""The examples with dependencies of their own."""
_HEAD = "# For examples/deploy/image: what the image needs beside requirements.txt, as requirements-dev.txt has it.\n"


def image_requirements(provider: str) -> str:
    """The content of examples/PROVIDER/requirements.txt. Raises LookupError for a dependency that
    is not locked."""
    project = tomllib.loads((ROOT / "examples" / provider / "pyproject.toml").read_text())["project"]
    known, there = pins(ROOT / "requirements-dev.txt"), pins(ROOT / "requirements.txt")
    needed = {name for line in project["dependencies"] for name in _closure(Requirement(line))}
    beside = sorted(needed - there.keys() - {"kubernetes-cloud-provider"})
    if missing := [name for name in beside if name not in known]:
        raise LookupError(f"requirements-dev.txt does not lock {', '.join(missing)}: make lock")
    return _HEAD + "".join(known[name] for name in beside)


def pins(path: Path) -> Mapping[str, str]:
    """The lines of each distribution in a lock file, by name: its version and its hashes."""
    found = re.finditer(r"^([a-z0-9-]+)==[^\n]*\n(?: +--hash=\S+(?: \\)?\n)+", path.read_text(), re.M)
    return {one[1]: one[0] for one in found}


def _closure(wanted: Requirement) -> Iterator[str]:
    """What is installed with it, itself first."""
    name = canonicalize_name(wanted.name)
    yield name
    if name == "kubernetes-cloud-provider":
        return
    for line in importlib.metadata.requires(name) or ():
        inner = Requirement(line)
        if inner.marker is None or inner.marker.evaluate({"extra": ""}):
            yield from _closure(inner)
