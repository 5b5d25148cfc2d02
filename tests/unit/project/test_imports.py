"""What the product imports: only declared dependencies.

What import-linter can say stands in pyproject.toml; this is the rest.
"""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
OURS = {"cloudprovider", "controllers"}
TEST_KIT = ("cloudprovider/testing/", "controllers/testing/")


@functools.cache
def imports() -> list[tuple[str, str, str]]:
    """Every import of the product: the file that has it, the module and the name that is imported
    ("" for none)."""
    found = [
        (path.relative_to(ROOT).as_posix(), module, name)
        for package in OURS
        for path in (ROOT / package).rglob("*.py")
        for module, name in _imports(ast.parse(path.read_text()))
    ]
    assert len(found) > 2000, "the search finds nothing"
    return found


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            assert not node.level
            yield from ((node.module, alias.name) for alias in node.names)


def third_party(*, test_kit: bool) -> set[str]:
    """The distributions that the product imports from by name: the test kit, or all but the test
    kit."""
    known = importlib.metadata.packages_distributions()
    packages = {module.partition(".")[0] for file, module, _ in imports() if file.startswith(TEST_KIT) == test_kit}
    foreign = packages - OURS - sys.stdlib_module_names
    return {_normal(known[package][0]) for package in foreign}


def declared(*extras: str) -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lists = [project["dependencies"], *(project["optional-dependencies"][extra] for extra in extras)]
    return {_normal(re.split(r"[^\w.-]", line)[0]) for lines in lists for line in lines}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_what_is_imported_is_declared() -> None:
    """A dependency of a dependency may go with its next version."""
    assert third_party(test_kit=False) - declared() == set()
    assert third_party(test_kit=True) - declared("testing") == set()


def test_what_is_declared_is_imported() -> None:
    assert declared() - third_party(test_kit=False) == set()
