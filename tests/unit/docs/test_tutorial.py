"""The tutorial's files do what its pages say: they pass the conformance suite, work in a cluster,
and start."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.blocks import blocks
from tests.support.console import commands
from tests.support.pages import ROOT

TUTORIAL = ROOT / "examples" / "tutorial"
PAGE = ROOT / "docs" / "tutorial" / "load-balancer.md"
PAGES = (PAGE, ROOT / "docs" / "tutorial" / "run-the-provider.md")


def run(*arguments: str, folder: Path) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_provider_is_conformant_and_works_in_a_cluster(tmp_path: Path) -> None:
    report = tmp_path / "report"
    run("-m", "pytest", "-q", str(TUTORIAL), f"--conformance-report={report}", folder=ROOT)
    summary = json.loads((report / "conformance-harbour.json").read_text())["summary"]
    [promised] = re.findall(r"^(\d+) scenarios pass", PAGE.read_text(), re.M)
    assert (summary["passed"], summary["failed"]) == (int(promised), 0)


def test_the_scenario_that_the_page_names_finds_the_missing_check(tmp_path: Path) -> None:
    for file in TUTORIAL.glob("*harbour*.py"):
        text = file.read_text()
        if file.name == "harbour_provider.py":
            text = text.replace("        current_call().check()\n", "", 1)  # the first one, as the page says
        (tmp_path / file.name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir=.", "-k", "l29", "test_harbour.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    said = [line for line in done.stdout.splitlines() if line.startswith("E ")]
    assert any("ask current_call().check() before each" in line for line in said)


def test_it_has_as_many_lines_as_its_title_says() -> None:
    [promised] = re.findall(r"^# A load-balancer provider in (\d+) lines$", PAGE.read_text(), re.M)
    assert len((TUTORIAL / "harbour_provider.py").read_text().splitlines()) == int(promised)


def test_the_program_starts(tmp_path: Path) -> None:
    assert "--cloud-provider" in run(str(TUTORIAL / "harbour_main.py"), "--help", folder=tmp_path)


@pytest.mark.parametrize("name", ["harbour_provider.py", "test_harbour.py", "test_cluster.py", "harbour_main.py"])
def test_a_reader_who_types_the_blocks_has_the_whole_file(name: str) -> None:
    found = [block for page in PAGES for block in blocks(page) if block.source.endswith(name)]
    shown = {line for block in found for line in block.text.splitlines()}
    module = ast.parse((TUTORIAL / name).read_text())
    lines = (TUTORIAL / name).read_text().splitlines()[module.body[1].lineno - 1 :]
    assert [line for line in lines if line not in shown] == []


def test_the_commands_are_for_the_readers_own_folder() -> None:
    found = [block for page in PAGES for block in blocks(page) if block.language == "console"]
    shown = [command for block in found for command in commands(block.text)]
    assert [command for command in shown if "examples/" in command] == []
