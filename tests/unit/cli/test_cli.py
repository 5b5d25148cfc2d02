"""The command line up to the point where something would start, and what the package exports."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from cloudprovider import register_cloud_provider
from cloudprovider.interface import Interface
from controllers.catalog import CATALOG
from controllers.cli import main as cli
from controllers.cli.helptext import help_text
from controllers.cli.main import main
from controllers.flags.parse import table


def ran(capsys: pytest.CaptureFixture[str], *argv: str, **more: str) -> tuple[int, str, str]:
    code = main(argv, **more)  # type: ignore[arg-type]  # only default_provider, a text, is given here
    out, err = capsys.readouterr()
    return code, out, err


def test_help_documents_every_flag_under_gos_sections(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ran(capsys, "--nope", "--help")
    assert (code, err) == (0, "")
    for flag in table(CATALOG):
        assert f"--{flag.name}" in out
    order = [out.index(f"{name} flags:") for name in ("Generic", "Cloud-node-controller", "Misc", "Global")]
    assert order == sorted(order)
    assert "(default 5m0s)" in out
    assert "(default true)" in out
    assert '(default "kubernetes")' in out
    assert "bind-address=" not in out.replace("health-bind-address", "")


def test_help_shows_the_vendors_default() -> None:
    assert 'installed cloud provider. Required. (default "acme")' in " ".join(
        help_text("main.py", table(CATALOG, "acme")).split()
    )


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ran(capsys, "--version")
    assert code == 0
    assert out.startswith("cloud-controller-manager ")
    code, out, _ = ran(capsys, "--version=raw")
    assert code == 0
    assert "distribution=kubernetes-cloud-provider version=" in out
    assert ran(capsys, "--version=false")[0] == 2


@pytest.mark.row("M4")
def test_the_file_of_a_leader_migration_is_read_where_there_is_an_election(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--cloud-provider=nope", "--enable-leader-migration", "--leader-migration-config=/none")
    assert "--leader-migration-config=/none: cannot be read: No such file" in ran(capsys, *flags)[2]
    assert "cannot be read" not in ran(capsys, *flags, "--leader-elect=false")[2]


@pytest.mark.row("M4")
def test_problems_of_flags_and_of_the_providers_name_come_together(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ran(capsys, "--cloud-provider=nope", "--concurrent-node-syncs=0", "--leader-elect=false")
    assert (code, out) == (2, "")
    assert "2 problems with the flags; nothing was started:" in err
    assert "unknown cloud provider 'nope'" in err
    assert "Known providers: " in err


@pytest.mark.parametrize(("name", "part"), [("external", "no provider's name"), ("a/b", "cannot be a cloud provider")])
def test_names_that_can_be_no_provider(name: str, part: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = ran(capsys, f"--cloud-provider={name}", "--leader-elect=false")
    assert code == 2
    assert "1 problem with the flags" in err
    assert part in err


def test_a_registered_provider_and_a_default_are_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    class Own(Interface):
        def provider_name(self) -> str:
            return "test-cli-own"

    register_cloud_provider("test-cli-own", lambda config: Own())
    code, _, err = ran(capsys, "--leader-elect-retry-period=9s", default_provider="test-cli-own")
    assert code == 2
    assert "1 problem with the flags" in err
    assert "--leader-elect-renew-deadline=10s: must be greater than the retry period times 1.2" in err


def test_the_console_script_ends_with_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/usr/bin/cloud-controller-manager", "--version"])
    with pytest.raises(SystemExit) as ended:
        cli.run()
    assert ended.value.code == 0


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/usr/bin/cloud-controller-manager", "cloud-controller-manager"),
        ("/app/main.py", "main.py"),
        ("/x/controllers/app/__main__.py", "cloud-controller-manager"),
        ("-c", "cloud-controller-manager"),
        ("", "cloud-controller-manager"),
    ],
)
def test_the_programs_name(path: str, name: str) -> None:
    assert cli._program(path) == name


@pytest.mark.parametrize("name", ["app", "cloudcalls", "runtime.election", "testing", "webhooks"])
def test_what_is_exported_exists_and_nothing_else_is(name: str) -> None:
    package = importlib.import_module(f"controllers.{name}")
    assert len(set(package.__all__)) == len(package.__all__)
    for exported in package.__all__:
        assert getattr(package, exported) is not None
        assert exported in dir(package)
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        package.nope  # noqa: B018 - reading it is the test


def test_a_program_that_is_started_as_a_module_is_named_as_it_was_started() -> None:
    """`usage: main.py` would not say whose main it is."""
    root = Path(__file__).parents[3]
    named = {"examples.main": "python -m examples.main", "controllers.app": "cloud-controller-manager"}
    for module, shown in named.items():
        command = [sys.executable, "-m", module, "--help"]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        assert done.stdout.startswith(f"usage: {shown} [flags]"), done.stderr
