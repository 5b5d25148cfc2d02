"""Public faces whose names are imported when they are first used, so that --help and bad flags are
answered at once. A face lists its names twice: in an `if TYPE_CHECKING:` block, for type checkers
and editors, and in the table for `lazy`. A test compares the two."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping


def lazy(package: str, table: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package, from a table: module, and its names with blanks
    between. For names that are modules of the package itself, the module is the package."""
    homes = {name: module for module, names in table.items() for name in names.split()}

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        # The name is a module of the package itself, not one in it.
        if homes[name] == package:
            return importlib.import_module(f"{package}.{name}")
        return getattr(importlib.import_module(homes[name]), name)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return load, names
