"""A system without fcntl, as Windows: a sentence in place of a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MISSING = "import sys\nfor name in ('fcntl', 'resource', 'pwd', 'grp', 'termios'):\n    sys.modules[name] = None\n"


def run(tmp_path: Path, *command: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "sitecustomize.py").write_text(MISSING)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    return subprocess.run([sys.executable, *command], env=env, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    "command",
    [("-m", "cloudprovider", "check", "fake"), (str(ROOT / "examples" / "main.py"), "--cloud-provider=fake")],
    ids=["tools", "manager"],
)
def test_the_programs_say_where_they_run(tmp_path: Path, command: tuple[str, ...]) -> None:
    done = run(tmp_path, *command)
    assert done.returncode == 1
    assert done.stderr.startswith("this program runs on Linux, and on macOS for development; here (")
    assert done.stderr.endswith("On Windows use WSL 2 or a container.\n")
    assert done.stdout == ""


def test_the_contract_and_its_helpers_can_be_imported_there(tmp_path: Path) -> None:
    assert run(tmp_path, "-c", "import cloudprovider, cloudprovider.helpers, cloudprovider.config").returncode == 0


@pytest.mark.parametrize(
    "file",
    [*sorted(ROOT.glob("examples/*/pyproject.toml")), ROOT / "pyproject.toml"],
    ids=lambda file: file.parent.name,
)
def test_distributions_name_their_systems(file: Path) -> None:
    project = tomllib.loads(file.read_text())["project"]
    assert "Operating System :: POSIX :: Linux" in project["classifiers"]
