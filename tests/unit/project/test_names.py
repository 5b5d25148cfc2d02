"""Files and modules that docstrings, comments and docs name are there."""

from __future__ import annotations

import functools
import importlib
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
UNIT = ROOT / "tests" / "unit"
PACKAGES = ("cloudprovider", "controllers", "tests", "examples")
FILE = re.compile(r"(?<![\w./-])(?:\.\./)*(?:[\w-]+/)*[\w-]+\.(?:py|md)(?![\w/-])")
FOLDER = re.compile(rf"(?<![\w./-])(?:{'|'.join((*PACKAGES, 'docs'))})(?:/[\w-]+)+(?![\w.-])")
DOTTED = re.compile(rf"(?<![\w./@:-])(?:{'|'.join(PACKAGES)})(?:\.[A-Za-z_]\w*)+(?![\w/-])")
IMPORT = re.compile(r"^\s*(?:from|import) ")

OF_NOBODY = {"main.py", "file.py", "__init__.py", "acme_provider/cloud.py", "conformance-NAME.md"}
"""What a vendor writes, a place holder in a log line, and what every package has."""
ROLES = {"triggers.py", "reconcile.py", "changes.py", "controller.py", "options.py"}
"""What every controller has (test_every_controller_has_its_roles)."""
NO_MODULE = {"cloudprovider.providers"}
"""The group of entry points."""


def repository() -> list[Path]:
    """The files in which names are looked for."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    suffixes = (".py", ".md", "pyproject.toml", "Makefile")
    return [path for name in listed if (path := ROOT / name).is_file() and name.endswith(suffixes)]


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines: of code its comments, its docstrings and code in strings; of everything else all."""
    text = path.read_text()
    if path.suffix != ".py":
        yield from enumerate(text.splitlines(), 1)
        return
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        statement = before in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)  # a string by itself: a docstring
        for number, line in enumerate(token.string.splitlines(), token.start[0]):
            is_text = token.type == tokenize.COMMENT or (token.type == tokenize.STRING and statement)
            if is_text or (token.type == tokenize.STRING and IMPORT.match(line)):
                yield number, line
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            before = token.type


@functools.cache
def texts() -> list[tuple[Path, int, str]]:
    found = [
        (path, number, line)
        for path in repository()
        for number, line in lines(path)
        if FILE.search(line) or FOLDER.search(line) or DOTTED.search(line)
    ]
    assert len(found) > 300, "the search finds nothing"
    return found


def at(path: Path, number: int, name: str) -> str:
    return f"{path.relative_to(ROOT)}:{number}: {name}"


def stands(name: str, path: Path, line: str) -> bool:
    """Whether a file of that name is there, seen from this file's folder, one above it, or beside one in the line.

    Pages may leave `controllers/` out. A test is in the folder of what it tests, too: tests/unit/service in
    controllers/service.
    """
    folders = [folder for folder in path.parents if folder.is_relative_to(ROOT)]
    if path.suffix == ".md":
        folders.append(ROOT / "controllers")
    if path.is_relative_to(UNIT):
        folders.append(ROOT / "controllers" / path.relative_to(UNIT).parent)
    folders += [(folder / other).parent for other in FILE.findall(line) if "/" in other for folder in folders]
    return any((folder / name).is_file() for folder in folders)


@functools.cache
def leads_somewhere(dotted: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    parts = dotted.split(".")
    end = len(parts)
    while not ((folder := ROOT.joinpath(*parts[:end])).is_dir() or folder.with_suffix(".py").is_file()):
        end -= 1
    if end == len(parts):
        return True
    found: object = importlib.import_module(".".join(parts[:end]))
    for part in parts[end:]:
        found = getattr(found, part, None)
    return found is not None


def test_files_that_are_named_exist() -> None:
    assert [
        at(path, number, name)
        for path, number, line in texts()
        for name in FILE.findall(line)
        if name not in OF_NOBODY | ROLES and not stands(name, path, line)
    ] == []


def test_folders_that_are_named_exist() -> None:
    assert [
        at(path, number, name)
        for path, number, line in texts()
        for name in FOLDER.findall(line)
        if not (ROOT / name).exists()
    ] == []


def test_modules_that_are_named_exist() -> None:
    assert [
        at(path, number, name)
        for path, number, line in texts()
        for name in DOTTED.findall(line)
        if name not in NO_MODULE and not leads_somewhere(name)
    ] == []


@pytest.mark.parametrize("controller", ["node", "nodelifecycle", "route", "service"])
def test_every_controller_has_its_roles(controller: str) -> None:
    assert {path.name for path in (ROOT / "controllers" / controller).iterdir()} >= ROLES
