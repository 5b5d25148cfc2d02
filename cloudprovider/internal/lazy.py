"""Public faces whose names are loaded when they are first used, so that --help and bad flags are
answered at once. The imports of such a face stand in its `if TYPE_CHECKING:` block, for type
checkers and editors as for `lazy`, which reads them there."""

from __future__ import annotations

import ast
import importlib
import linecache
import sys
from collections.abc import Callable


def lazy(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package, from the imports in its TYPE_CHECKING block."""
    module = sys.modules[package]
    homes = _homes("".join(linecache.getlines(str(module.__file__), vars(module))))  # from a zip archive, too

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = homes[name]
        if home == package:  # a module of the package itself
            return importlib.import_module(f"{package}.{name}")
        return getattr(importlib.import_module(home), name)

    def names() -> list[str]:
        return sorted({*vars(module), *homes})

    return load, names


def _homes(source: str) -> dict[str, str]:
    return {
        alias.name: node.module
        for block in ast.parse(source).body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
