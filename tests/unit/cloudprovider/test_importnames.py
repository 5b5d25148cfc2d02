"""A vendor's folder with one of our import names ends in an error with both paths; nothing of it is
imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cloudprovider.loading.importnames import ROOT

MAIN = (ROOT / "examples" / "main.py").read_text()
TRAP = "raise SystemExit('the wrong package was imported')\n"
FLAGS = ("--version",)


def start(folder: Path, *path: Path, code: str = MAIN) -> subprocess.CompletedProcess[str]:
    """Runs a vendor's main.py in its folder, with these places on the import path and ours behind
    them."""
    (folder / "main.py").write_text(code)
    environment = {"PYTHONPATH": ":".join(map(str, (*path, ROOT)))}
    command = [sys.executable, str(folder / "main.py"), *FLAGS]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def package(place: Path, *files: str) -> Path:
    place.mkdir(parents=True)
    for name in files:
        (place / name).write_text(TRAP)
    return place


def assert_refused(done: subprocess.CompletedProcess[str], theirs: Path, name: str) -> None:
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1, done.stderr
    assert last.startswith("ImportError: ")
    assert str(theirs) in last
    assert str(ROOT / name) in last
    assert "Rename the first" in last
    assert "wrong package" not in done.stderr


@pytest.mark.parametrize("name", ["controllers", "cloudprovider"])
def test_a_package_beside_main_that_hides_ours(tmp_path: Path, name: str) -> None:
    theirs = package(tmp_path / name, "__init__.py")
    code = MAIN if name == "controllers" else MAIN.replace("import cloudprovider", "import controllers")
    assert_refused(start(tmp_path, code=code), theirs, name)


@pytest.mark.parametrize("name", ["controllers", "cloudprovider"])
def test_a_folder_beside_main_that_ours_hides(tmp_path: Path, name: str) -> None:
    """Without an __init__.py a folder loses against a package anywhere on the path: its modules
    cannot be imported."""
    theirs = package(tmp_path / name, "mine.py")
    assert_refused(start(tmp_path), theirs, name)


def test_a_package_elsewhere_on_the_path_that_hides_ours(tmp_path: Path) -> None:
    vendor, elsewhere = package(tmp_path / "vendor"), tmp_path / "lib"
    theirs = package(elsewhere / "controllers", "__init__.py")
    assert_refused(start(vendor, elsewhere), theirs, "controllers")


def test_a_single_module_with_our_name(tmp_path: Path) -> None:
    package(tmp_path / "vendor", "controllers.py")
    assert_refused(start(tmp_path / "vendor"), tmp_path / "vendor" / "controllers.py", "controllers")


def test_the_controllers_alone_look_for_the_contract(tmp_path: Path) -> None:
    theirs = package(tmp_path / "cloudprovider", "__init__.py")
    done = start(tmp_path, code="from controllers.app import hosting\n")
    assert_refused(done, theirs, "cloudprovider")


def test_a_missing_contract_says_what_to_install(tmp_path: Path) -> None:
    copy = package(tmp_path / "controllers")
    (copy / "__init__.py").write_text((ROOT / "controllers" / "__init__.py").read_text())
    code = "import controllers"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=tmp_path, env={}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "finds nothing in place of" in done.stderr
    assert "install kubernetes-cloud-provider again" in done.stderr


@pytest.mark.parametrize("name", ["controllers", "cloudprovider"])
def test_folders_without_python_files_are_in_nobodys_way(tmp_path: Path, name: str) -> None:
    package(tmp_path / name)
    (tmp_path / name / "main.go").write_text("package main\n")
    done = start(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("cloud-controller-manager ")
