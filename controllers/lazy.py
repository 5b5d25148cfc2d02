"""Public names of a package that are loaded when they are first used.

The command line reads the options of every controller from its package. What those packages export besides is heavy,
and imported only when a controller is really built, so that --help and bad flags are answered at once.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence


def lazy(package: str, exports: Mapping[str, Sequence[str]]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package. `exports`: by module inside it, the names that come from there."""
    homes = {name: module for module, names in exports.items() for name in names}

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return load, names
