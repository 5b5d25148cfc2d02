"""Every code block of README and docs holds: Python is run, commands are checked, data is parsed.

The last test prints what is not run, with the reason that stands above the block.
"""

from __future__ import annotations

import configparser
import io
import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from kubernetes.client import models

from controllers.manager import migration
from tests.support.blocks import DOCUMENTED, ROOT, Block, Unit, blocks, units
from tests.support.console import commands, problems, syntax
from tests.support.pages import pages, without_code

SAMPLECLOUD = ROOT / "examples" / "samplecloud"
BLOCKS = [block for page in pages() for block in blocks(page)]
TEXT = "text"
"""The language of what is only shown: diagrams, lines of a log."""


@pytest.fixture
def readers_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What documented code imports can be imported, and is forgotten afterwards."""
    before = set(sys.modules)
    for folder in (SAMPLECLOUD, DOCUMENTED):
        monkeypatch.syspath_prepend(folder)
    yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith((str(SAMPLECLOUD), str(DOCUMENTED))):
            del sys.modules[name]


@pytest.mark.parametrize("unit", [unit for page in pages() for unit in units(page)], ids=str)
@pytest.mark.usefixtures("readers_modules")
def test_python_runs(unit: Unit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of its own. A program that reads its command line is asked for its help;
    `sys.exit(0)` is fine."""
    code = compile(unit.source, str(unit.blocks[0].page), "exec", dont_inherit=True)
    if unit.not_run:
        return
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["acme-cloud-controller-manager", "--help"])
    monkeypatch.setattr(sys, "stdin", io.StringIO())  # at its end: what waits for the reader goes on
    code_at_end: object = 0
    try:
        exec(code, {"__name__": "documented"})
    except SystemExit as ended:
        code_at_end = ended.code
    assert not code_at_end


def test_excerpts_are_word_for_word() -> None:
    """With their white space, so that a reader who copies one block after the other gets the
    file."""
    excerpts = [block for block in BLOCKS if block.source]
    assert excerpts
    wholes = {block.source: "\n" + (ROOT / block.source).read_text() for block in excerpts}
    torn = [block for block in excerpts if "\n" + block.text.strip("\n") + "\n" not in wholes[block.source]]
    assert [f"{block} is not in {block.source}" for block in torn] == []


def test_commands_are_known() -> None:
    wrong = []
    for block in BLOCKS:
        if block.language == "console":
            found = commands(block.text)
            told = [problem for command in found for problem in problems(command)]
            wrong += [f"{block}: {one}" for one in (told if found else ["no line begins with '$ '"])]
    assert wrong == []


def test_commands_amid_prose_have_the_arguments_that_they_show() -> None:
    """Those with an option; the others only name a command."""
    wrong = []
    for page in pages():
        if page.name != "CHANGELOG.md":
            found = [" ".join(one.split()) for one in re.findall(r"`([^`]*)`", without_code(page.read_text()))]
            shown = [one for one in found if one.startswith("python -m cloudprovider ") and " --" in one]
            wrong += [f"{page}: {problem}" for command in shown for problem in problems(command)]
    assert wrong == []


@pytest.mark.parametrize("page", sorted((ROOT / "examples").glob("*/README.md")), ids=lambda page: page.parent.name)
def test_an_example_is_installed_together_with_the_manager(page: Path) -> None:
    """The manager is on no package index: alone, an example cannot be installed."""
    shown = [command for block in blocks(page) if block.language == "console" for command in commands(block.text)]
    own = [command for command in shown if re.match(r"pip install .*(?<![\w/])['\"]?\.(?![./\w])", command)]
    assert [command for command in own if "../.." not in command] == []


def test_the_page_about_our_image_names_its_python() -> None:
    dockerfile = (ROOT / "examples" / "deploy" / "image" / "Dockerfile").read_text()
    entrypoint = r'ENTRYPOINT\s+\["(/[^"]+)"'
    page = (ROOT / "docs" / "guides" / "container.md").read_text()
    assert re.findall(entrypoint, page) == re.findall(entrypoint, dockerfile)


def test_commands_can_be_read_by_a_shell() -> None:
    script = [command for block in BLOCKS if block.language == "console" for command in commands(block.text)]
    assert len(script) > 15
    assert syntax("\n".join(script)) == ""


def _yaml(text: str) -> None:
    for document in yaml.safe_load_all(text):
        if isinstance(document, dict) and "kind" in document:
            _object(document, text)


def _object(document: dict[str, Any], text: str) -> None:
    """A Kubernetes object has no field that its type lacks; our own kinds are read by their own
    parsers."""
    if document["kind"] == "LeaderMigrationConfiguration":
        migration.parse(text)
        return
    version = document["apiVersion"].rpartition("/")[2]
    model = getattr(models, f"{version.capitalize()}{document['kind']}")
    assert model.model_validate(document).model_dump(by_alias=True, exclude_none=True) == document


PARSERS: dict[str, Callable[[str], object]] = {
    "yaml": _yaml,
    "json": json.loads,
    "toml": tomllib.loads,
    "promql": promql_parser.parse,
    "ini": lambda text: configparser.RawConfigParser().read_string(text),
}
DIRECTIVE = "{eval-rst}"
"""Made into a part of the page by the site, which test_site.py builds."""
CHECKED = {"python", "console", TEXT, DIRECTIVE, *PARSERS}


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language in PARSERS], ids=str)
def test_data_can_be_read(block: Block) -> None:
    PARSERS[block.language](block.text)


def test_every_block_names_a_language_that_is_checked() -> None:
    assert [f"{block}: {block.language!r}" for block in BLOCKS if block.language not in CHECKED] == []


def test_blocks_that_are_not_run_say_why(record_property: Callable[[str, object], None]) -> None:
    """The list is printed, and short: a new entry is noticed here."""
    listed = [f"{block}: {block.not_run}" for block in BLOCKS if block.not_run]
    for line in listed:
        print(line)
    record_property("blocks not run", listed)
    assert len(listed) <= 3
    assert all(len(block.not_run.split()) > 2 for block in BLOCKS if block.not_run)
