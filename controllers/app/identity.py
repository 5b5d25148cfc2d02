"""Are the imported `cloudprovider` and `controllers` this distribution's? Asked before anything of them is used.

Stage: before the first one. Both import names are generic, so that a directory of the same name beside a vendor's
main.py, or another installed package, may come first on the import path and shadow ours. Data comes from the import
system; it goes to `cli.py`, which ends the process with the sentence raised here. Imports nothing of either package.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import importlib_metadata

DISTRIBUTION = "kubernetes-cloud-provider"
OWN_ROOT = Path(__file__).resolve().parents[2]
"""The directory that holds both packages of this distribution: the code that runs now lies there."""


class ShadowedPackage(ImportError):
    """A package that we depend on is not this distribution's; the message names both paths and the fix."""


def version() -> str:
    """This distribution's version; "unknown" when it runs from a source tree that is not installed."""
    try:
        return importlib_metadata.version(DISTRIBUTION)
    except importlib_metadata.PackageNotFoundError:
        return "unknown"


def check_import_names(root: Path = OWN_ROOT) -> None:
    """Raise ShadowedPackage unless both names are found under `root`. Imports nothing; may be called again."""
    for name in ("controllers", "cloudprovider"):
        expected = root / name / "__init__.py"
        found = _location(name)
        if found is None:
            raise ShadowedPackage(
                f"the package {name!r} of {DISTRIBUTION} is missing: expected {expected}; install {DISTRIBUTION} again"
            )
        if found != expected:
            raise ShadowedPackage(
                f"import {name!r} finds {found}, but {DISTRIBUTION} has its own at {expected}. The first shadows the "
                f"second on the import path: rename it, or run from another directory."
            )


def _location(name: str) -> Path | None:
    """The file that `import name` runs, without running it; a directory for a package without `__init__.py`."""
    module = sys.modules.get(name)
    spec = module.__spec__ if module is not None else importlib.util.find_spec(name)
    if spec is None:
        return None
    if spec.origin is not None and spec.has_location:
        return Path(spec.origin).resolve()
    return next((Path(place).resolve() for place in spec.submodule_search_locations or ()), None)
