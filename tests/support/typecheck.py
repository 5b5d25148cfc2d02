"""Runs mypy --strict and pyright's strict mode over code that vendors copy, once each for any
number of files.

Data comes from files and from the Python programs of README and docs (`blocks.py`), which are
written to a folder, each line with the number that it has on the page. What a checker says goes
back in lines of one form, a page's name in place of the written file's.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.blocks import DOCUMENTED, ROOT, Unit, units
from tests.support.pages import pages

_PROVIDERS = [ROOT / "examples" / name for name in ("samplecloud", "localcloud", "openstack")]
_PATHS = [ROOT, ROOT / "examples", *_PROVIDERS, DOCUMENTED]


def documented(folder: Path) -> dict[Path, Unit]:
    """Every Python program of README and docs, written to the folder: by its file."""
    written: dict[Path, Unit] = {}
    for unit in [unit for page in pages() for unit in units(page)]:
        file = folder / (re.sub(r"\W", "_", str(unit)) + ".py")
        file.write_text(unit.source)
        written[file] = unit
    return written


def mypy(files: Sequence[Path], shown: Mapping[Path, Unit]) -> list[str]:
    """What mypy --strict says, one line for each error."""
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", *map(str, files)]
    environ = {**os.environ, "MYPYPATH": os.pathsep.join(map(str, _PATHS[1:]))}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    said = [re.match(r"(?P<file>[^:]+):(?P<line>\d+): error: (?P<told>.*)", line) for line in done.stdout.splitlines()]
    return [_line(ROOT / one["file"], int(one["line"]), one["told"], shown) for one in said if one]


def pyright(files: Sequence[Path], shown: Mapping[Path, Unit], folder: Path) -> list[str]:
    """What pyright says in its strict mode, without the further rules of basedpyright; the folder
    is for its config."""
    config = {
        "include": [str(file) for file in files],
        "extraPaths": [str(path) for path in _PATHS],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(config))
    program = Path(sys.executable).with_name("basedpyright")
    command = [str(program), "--outputjson", "--pythonpath", sys.executable, "--project", str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["summary"]["filesAnalyzed"] >= len(files), told["summary"]
    return [
        _line(Path(one["file"]), one["range"]["start"]["line"] + 1, f"{one['message']} [{one.get('rule', '')}]", shown)
        for one in told["generalDiagnostics"]
        if one["severity"] == "error"
    ]


def _line(file: Path, number: int, told: str, shown: Mapping[Path, Unit]) -> str:
    unit = shown.get(file)
    page = unit.blocks[0].page if unit else file
    name = page.relative_to(ROOT) if page.is_relative_to(ROOT) else page.name
    return f"{name}:{number}: {_shortened(' '.join(told.split()))}"


def _shortened(told: str) -> str:
    """The begin, and the rule at the end: pyright shows whole overloads."""
    return told if len(told) <= 400 else f"{told[:300]} ... {told[-80:]}"
