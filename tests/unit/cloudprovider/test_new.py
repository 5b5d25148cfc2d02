"""`python -m cloudprovider new`: what it writes works as written, and what it cannot write is
refused before.

That type checkers pass it: `tests/unit/docs/test_types.py`.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import ssl
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloudprovider.commands.cli import main
from cloudprovider.commands.new import Names, render
from tests.support.pki import Authority
from tests.support.plugins import write_distribution

ROOT = Path(__file__).parents[3]


def written(tmp_path: Path, name: str = "acme", *options: str) -> Path:
    """The package of that name, with the metadata that an installation would leave beside it."""
    folder = tmp_path / "made"
    assert main(["new", name, "--directory", str(folder), *options]) == 0
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    ((entry, value),) = project["entry-points"]["cloudprovider.providers"].items()
    write_distribution(tmp_path / "site", project["name"], f"{entry} = {value}", version=project["version"])
    return folder


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    paths = (folder.parent / "site", folder, ROOT)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, env=environ, capture_output=True, text=True, check=False
    )


def test_its_tests_pass_as_written(tmp_path: Path) -> None:
    folder = written(tmp_path)
    done = run(folder, "pytest", "-q", "-p", "no:cacheprovider", "--conformance-report=report")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " failed" not in done.stdout
    report = json.loads((folder / "report" / "conformance-acme.json").read_text())
    passed = {one["id"] for one in report["scenarios"] if one["outcome"] == "passed"}
    assert len(passed) > 60
    # limits who may connect, outlasts an outage and a hang, and is made up for by the manager after
    # an outage
    assert {"E1", "I1", "L1", "L18", "I8", "I12", "G9", "E10"} <= passed
    assert report["summary"]["failed"] == 0
    checked = run(folder, "cloudprovider", "check", "acme")
    assert checked.returncode == 0, checked.stdout
    assert "load_balancer (AcmeLoadBalancers)" in checked.stdout


def test_the_tests_of_a_package_for_an_http_api_pass_as_written(tmp_path: Path) -> None:
    folder = written(tmp_path, "acme", "--http")
    done = run(folder, "pytest", "-q", "-p", "no:cacheprovider", "--conformance-report=report")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Exception" not in done.stderr  # of the double's threads
    report = json.loads((folder / "report" / "conformance-acme.json").read_text())
    skipped = [one for one in report["scenarios"] if one["outcome"] == "skipped"]
    assert {one["reason"].partition(":")[0] for one in skipped} == {"not declared"}, "a hook of the lab is missing"
    passed = {one["id"] for one in report["scenarios"] if one["outcome"] == "passed"}
    assert {"B9", "B13", "E9", "G8", "G9", "L18", "L24", "L30", "O4", "R7", "R10", "R14"} <= passed
    assert len(passed) > 95
    assert report["summary"]["failed"] == report["summary"]["not run"] == 0


def test_a_package_for_an_http_api_trusts_the_ca_that_it_is_given(tmp_path: Path) -> None:
    folder, authority = written(tmp_path, "acme", "--http"), Authority()
    (folder / "ca.pem").write_bytes(authority.pem)
    double = module_of(folder / "tests" / "double.py")
    with double.Double() as cloud:
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(*authority.server_files(tmp_path))
        cloud._http.socket = server.wrap_socket(cloud._http.socket, server_side=True)
        config = f"endpoint: {cloud.endpoint.replace('http:', 'https:')}\nclient_id: me\n"
        (folder / "secret").write_text(f"{double.SECRET}\n")
        for ca_file, problem in (("ca.pem", ""), ("", "certificate verify failed")):
            (folder / "acme.yaml").write_text(f"{config}ca_file: '{ca_file}'\n")
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("ACME_CLIENT_SECRET_FILE", "secret")
                checked = run(folder, "cloudprovider", "check", "acme", "--cloud-config=acme.yaml")
            assert checked.returncode == (1 if problem else 0), checked.stdout
            assert problem in checked.stdout
            assert double.SECRET not in checked.stdout + checked.stderr


def module_of(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_package_for_an_http_api_is_checked_in_ci_without_a_cloud(tmp_path: Path) -> None:
    folder = written(tmp_path, "acme", "--http")
    steps = yaml.safe_load((folder / ".github" / "workflows" / "test.yaml").read_text())["jobs"]["test"]["steps"]
    (line,) = (step["run"] for step in steps if "cloudprovider check" in step.get("run", ""))
    variables, _, command = line.partition(" python -m ")
    with pytest.MonkeyPatch.context() as patch:
        for variable in variables.split():
            patch.setenv(*variable.split("="))
        checked = run(folder, *command.split())
    assert checked.returncode == 0, checked.stdout
    assert "instances_batch (AcmeInstances), load_balancer (AcmeLoadBalancers), routes (AcmeRoutes)" in checked.stdout


def test_it_is_clean_for_ruff(tmp_path: Path) -> None:
    for name in ("acme", "Open-Nebula.v2", "a1", "match"):
        for http in ((), ("--http",)):
            assert main(["new", name, "--directory", str(tmp_path / f"{name}{len(http)}"), *http]) == 0
    for command in (["check"], ["format", "--check"]):
        done = run(tmp_path, "ruff", *command, "--no-cache", ".")
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("http", [(), ("--http",)], ids=["memory", "http"])
def test_a_name_that_begins_with_test_is_no_test(tmp_path: Path, http: tuple[str, ...]) -> None:
    folder = written(tmp_path, "testbed", *http)
    done = run(folder, "pytest", "-q", "-p", "no:cacheprovider", "--collect-only")
    assert done.returncode == 0, done.stdout + done.stderr


def test_its_main_runs_as_a_module(tmp_path: Path) -> None:
    done = run(written(tmp_path), "acme_provider.main", "--version")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("cloud-controller-manager ")


def test_a_folder_that_hides_the_sdk_is_named(tmp_path: Path) -> None:
    folder = written(tmp_path)
    (folder / "acme_provider" / "controllers").mkdir()
    (folder / "acme_provider" / "controllers" / "__init__.py").write_text("")
    paths = os.pathsep.join(map(str, (tmp_path / "site", folder, ROOT)))
    command = [sys.executable, str(folder / "acme_provider" / "main.py"), "--version"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "two packages are named 'controllers'" in done.stderr
    assert "Rename the first" in done.stderr


def test_it_is_as_short_as_promised() -> None:
    rendered = render(Names("acme"))
    assert len(rendered["acme_provider/main.py"].splitlines()) <= 13
    assert len(rendered["tests/test_conformance.py"].splitlines()) <= 25
    (test,) = (one for one in ast.parse(rendered["tests/test_end_to_end.py"]).body if isinstance(one, ast.FunctionDef))
    assert len(test.body) <= 5
    over_http = render(Names("acme", http=True))
    lines = {path: len(text.splitlines()) for path, text in over_http.items() if path.endswith(".py")}
    assert max(lines.values()) <= 260
    assert sum(count for path, count in lines.items() if path.startswith("acme_provider/")) <= 450


@pytest.mark.parametrize("http", [False, True], ids=["memory", "http"])
def test_every_file_can_be_read_and_no_placeholder_is_left(http: bool) -> None:
    rendered = render(Names("Open-Nebula.v2", http=http))
    assert [path for path, text in rendered.items() if "%%" in text or "TODO" in text] == []
    project = tomllib.loads(rendered["pyproject.toml"])
    assert project["project"]["entry-points"]["cloudprovider.providers"] == {
        "Open-Nebula.v2": "open_nebula_v2_provider.provider:new_provider"
    }
    assert project["project"]["scripts"] == {
        "open-nebula-v2-controller-manager": "open_nebula_v2_provider.main:run"
    }  # fmt: skip
    assert yaml.safe_load(rendered[".github/workflows/test.yaml"])["jobs"]["test"]["steps"]
    assert "class OpenNebulaV2Cloud(Interface):" in rendered["open_nebula_v2_provider/provider.py"]
    assert '"/opt/manager/bin/python", "-I", "-m", "open_nebula_v2_provider.main"]' in rendered["Dockerfile"]


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("", "a name that is not empty"),
        ("a b", "cannot be a cloud provider's name"),
        ("../acme", "cannot be a cloud provider's name"),
        ("external", "another program is the provider"),
        ("9lives", "no Python package can be named after '9lives'"),
        ("fake", "a provider 'fake' is installed already"),
    ],
)
def test_a_name_that_is_no_good_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, what: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", name]) == 2
    told = capsys.readouterr().err
    assert what in told
    assert "Fix: " in told or not name
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "README.md").write_text("mine")
    assert main(["new", "acme", "--directory", str(tmp_path / "mine")]) == 2
    assert "mine exists already. Fix: give another folder with --directory" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["README.md"]
    assert main(["new", "acme", "--directory", str(tmp_path / "no" / "where")]) == 2
    assert f"there is no folder {tmp_path}/no" in capsys.readouterr().err
