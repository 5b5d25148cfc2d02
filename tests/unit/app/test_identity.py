"""Shadowed import names are noticed before anything of ours is used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from controllers.app import identity
from controllers.app.identity import OWN_ROOT, ShadowedPackage, check_import_names


def test_our_own_packages_pass() -> None:
    check_import_names()
    assert (OWN_ROOT / "cloudprovider" / "__init__.py").is_file()


def test_another_root_names_both_paths_and_the_fix(tmp_path: Path) -> None:
    with pytest.raises(ShadowedPackage) as caught:
        check_import_names(tmp_path)
    message = str(caught.value)
    assert str(OWN_ROOT / "controllers" / "__init__.py") in message
    assert str(tmp_path / "controllers" / "__init__.py") in message
    assert "rename it" in message


def start(tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Our main, run from a directory that comes first on the import path, as a vendor's main.py would be."""
    (tmp_path / "main.py").write_text(
        "import sys\n"
        f"sys.path.append({str(OWN_ROOT)!r})\n"
        "from controllers.app import main\n"
        "sys.exit(main(['--cloud-provider=fake', '--leader-elect=false', '--kubeconfig=/nonexistent']))\n"
    )
    return subprocess.run(
        [sys.executable, str(tmp_path / "main.py")], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("files", [["__init__.py"], ["__init__.py", "errors.py"]])
def test_a_directory_beside_main_is_reported_without_a_traceback(tmp_path: Path, files: list[str]) -> None:
    (tmp_path / "cloudprovider").mkdir()
    for name in files:
        (tmp_path / "cloudprovider" / name).write_text("raise SystemExit('the wrong package was imported')\n")
    done = start(tmp_path)
    assert done.returncode == 1
    assert str(tmp_path / "cloudprovider" / "__init__.py") in done.stderr
    assert str(OWN_ROOT / "cloudprovider" / "__init__.py") in done.stderr
    assert "Traceback" not in done.stderr
    assert "wrong package" not in done.stderr


def test_a_directory_without_code_does_not_shadow(tmp_path: Path) -> None:
    (tmp_path / "cloudprovider").mkdir()
    done = start(tmp_path)
    assert "finds" not in done.stderr


def test_the_version_is_known() -> None:
    assert identity.version()[0].isdigit()


def test_a_missing_package_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "_location", lambda name: None)
    with pytest.raises(ShadowedPackage, match="install kubernetes-cloud-provider again"):
        check_import_names()
