"""`python -m cloudprovider`: `providers` and `check` on real distributions, without a cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cloudprovider.commands.cli import main
from tests.support.plugins import write_distribution

GOOD = """
import threading
from cloudprovider import CloudProviderError, InstanceNotFound, InstancesV2, Interface, LoadBalancer


class AcmeCloud(Interface, InstancesV2, LoadBalancer):
    def __init__(self, token):
        self.token = token

    def provider_name(self):
        return "acme"

    def initialize(self, client_builder, stop):
        print("hello")

    def instances_v2(self):
        return self

    def load_balancer(self):
        return self

    def instance_exists(self, node):
        return False

    def instance_shutdown(self, node):
        return False

    def instance_metadata(self, node):
        raise InstanceNotFound("there is none")

    def get_load_balancer(self, cluster_name, service):
        return None

    def ensure_load_balancer(self, cluster_name, service, nodes):
        raise AssertionError("check must change nothing")

    update_load_balancer = ensure_load_balancer

    def ensure_load_balancer_deleted(self, cluster_name, service):
        raise AssertionError("check must change nothing")


def new_provider(config) -> AcmeCloud:
    print("printed by a plugin")
    return AcmeCloud(config.text() if config else "")
"""

Install = Callable[..., None]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs acme-cloud 1.0 with this text as its module."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)

    def install(text: str, entry: str = "acme = acme_module:new_provider", **more: Any) -> None:
        monkeypatch.delitem(sys.modules, "acme_module", raising=False)
        write_distribution(tmp_path, "acme-cloud", entry, acme_module=text, **more)

    return install


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs one command; returns exit code, output and errors."""

    def run(*argv: str) -> tuple[int, str, str]:
        code = main(argv)
        out, err = capsys.readouterr()
        return code, out, err

    return run


def steps(out: str) -> list[tuple[str, str]]:
    return [(step["step"], step["state"]) for step in json.loads(out)["steps"]]


def problems(out: str) -> dict[str, dict[str, Any]]:
    return {step["step"]: step["problem"] for step in json.loads(out)["steps"] if step["problem"]}


# providers


def test_installed_providers_are_listed_with_distribution_version_and_capabilities(install: Install, run: Run) -> None:
    install(GOOD)
    code, out, err = run("providers")
    assert code == 0
    (line,) = (line for line in out.splitlines() if line.startswith("acme "))
    assert line.split(maxsplit=4) == [
        "acme", "acme-cloud", "1.0", "acme_module:new_provider", "instances_v2, load_balancer"
    ]  # fmt: skip
    assert err == ""  # no factory was called


def test_a_broken_provider_is_told_beside_the_others(install: Install, tmp_path: Path, run: Run) -> None:
    install(GOOD)
    write_distribution(tmp_path, "broken-cloud", "broken = broken_module:new_provider", broken_module="1 / 0\n")
    write_distribution(tmp_path, "torn-cloud", "this line has no equals sign")
    code, out, _ = run("providers", "-o", "json")
    assert code == 1
    listed = {one["name"]: one for one in json.loads(out)["providers"]}
    assert listed["acme"]["problem"] is None
    assert listed["acme"]["capabilitiesFrom"] == "class"
    assert listed["broken"]["capabilities"] is None
    assert "ZeroDivisionError" in listed["broken"]["problem"]["what"]
    assert f"{tmp_path / 'broken_module.py'}:1" in listed["broken"]["problem"]["what"]
    assert "torn_cloud-1.0.dist-info" in json.loads(out)["unreadable"][0]
    code, out, _ = run("providers")
    assert code == 1
    assert "cannot be loaded" in out
    assert "could not be imported: ZeroDivisionError" in out


def test_what_a_factory_does_not_say_is_not_guessed(install: Install, run: Run) -> None:
    install(GOOD.replace(" -> AcmeCloud", ""))
    assert "not known before it is started: check acme --cloud-config=" in run("providers")[1]


# check


def test_a_good_provider_passes_and_its_cloud_is_asked_what_changes_nothing(install: Install, run: Run) -> None:
    install(GOOD)
    code, out, _ = run("check", "acme", "-o", "json")
    assert (code, json.loads(out)["problems"]) == (0, 0)
    assert json.loads(out)["capabilities"] == ["instances_v2", "load_balancer"]
    assert steps(out) == [
        ("entry point", "ok"),
        ("config", "ok"),
        ("factory", "ok"),
        ("start", "ok"),
        ("methods", "ok"),
        ("cluster ID", "ok"),
        ("initialize", "ok"),
        ("capabilities", "ok"),
        ("cloud", "ok"),
        ("cloud", "ok"),
        ("cloud", "ok"),
        ("cloud", "skipped"),
    ]
    text = run("check", "acme")[1]
    assert "the cloud answered that there is none, which is right" in text
    assert "not tried: all that changes the cloud" in text
    assert text.endswith("no problem found\n")


def test_all_problems_come_together_one_a_line_with_what_to_do(install: Install, run: Run) -> None:
    install(
        GOOD.replace("def instance_shutdown", "async def instance_shutdown")
        .replace('return "acme"', 'return "acmecloud"')
        .replace("    def load_balancer(self):\n        return self\n", "")
        .replace("def initialize", "def has_cluster_id(self):\n        return False\n\n    def initialize")
    )
    code, out, _ = run("check", "acme")
    assert code == 1
    lines = [line for line in out.splitlines() if line.startswith("  problem")]
    assert out.endswith(f"{len(lines)} problems found\n")
    for line, (step, what) in zip(
        lines,
        [
            ("methods", "returns 'acmecloud', but the provider is installed or registered as 'acme'"),
            ("cluster ID", "has_cluster_id() returns False"),
            ("capabilities", "AcmeCloud.instance_shutdown ("),
            ("capabilities", "AcmeCloud implements LoadBalancer, but AcmeCloud.load_balancer() returns None"),
        ],
        strict=True,
    ):
        assert f"  {step}" in line
        assert what in line
        assert "Fix: " in line
    assert "not asked before the capabilities are right" in out


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        ("pass", "has_cluster_id() returns None"),
        ("return 1", "has_cluster_id() returns a builtins.int"),
        ("raise OSError('no')", "cluster ID raised OSError: no ("),
    ],
)
def test_a_cluster_id_is_there_or_not(install: Install, run: Run, answer: str, what: str) -> None:
    install(GOOD.replace("def initialize", f"def has_cluster_id(self):\n        {answer}\n\n    def initialize"))
    code, out, _ = run("check", "acme", "-o", "json", "--offline")
    assert code == 1
    assert [step["problem"]["what"] for step in json.loads(out)["steps"] if step["step"] == "cluster ID"] == [
        problems(out)["cluster ID"]["what"]
    ]
    assert problems(out)["cluster ID"]["what"].startswith(what)


@pytest.mark.parametrize(
    ("old", "new", "step", "what"),
    [
        ("def new_provider(config)", "def new_provider()", "factory", "must take one argument"),
        ('print("printed by a plugin")', "threading.Event().wait(60)", "start", "has not answered after 0.1 s"),
        ('print("hello")', "raise CloudProviderError('401')", "initialize", "CloudProviderError: 401 ("),
        ('print("hello")', "raise GeneratorExit('no exception')", "initialize", "GeneratorExit: no exception ("),
        ("return False\n\n    def instance_s", "raise OSError('no')\n\n    def instance_s", "cloud", "OSError: no"),
        ("return False\n\n    def instance_s", "return None\n\n    def instance_s", "cloud", "None, not bool"),
        ("        return None\n", "        return 5\n", "cloud", "it is of type int, not V1LoadBalancerStatus"),
    ],
)  # fmt: skip
def test_each_step_tells_its_problem(install: Install, run: Run, old: str, new: str, step: str, what: str) -> None:
    install(GOOD.replace(old, new))
    code, out, _ = run("check", "acme", "-o", "json", "--timeout=0.1")
    assert code == 1
    assert list(problems(out)) == [step]
    assert what in problems(out)[step]["what"]
    assert problems(out)[step]["fix"]


@pytest.mark.parametrize(
    ("old", "new", "argv", "told"),
    [
        ('print("hello")', 'client_builder.client("acme")', [], "needs a client of the cluster"),
        ("        return None\n", "        raise OSError\n", ["--offline"], ""),
    ],
    ids=["it needs a client of the cluster, which is no mistake", "offline"],
)
def test_when_the_cloud_is_not_asked(
    install: Install, run: Run, old: str, new: str, argv: list[str], told: str
) -> None:
    install((GOOD.replace('print("hello")', "raise OSError") if argv else GOOD).replace(old, new))
    code, out, _ = run("check", "acme", "-o", "json", *argv)
    assert code == 0
    assert [state for name, state in steps(out) if name in ("initialize", "cloud")] == ["skipped", "skipped"]
    assert told in out


def test_secrets_of_the_config_are_in_no_output(install: Install, tmp_path: Path, run: Run) -> None:
    install(GOOD.replace('print("hello")', "raise ValueError(f'bad token {self.token}')"))
    (tmp_path / "acme.conf").write_text("token: correct-horse-battery\n")
    for more in (["--traceback"], ["-o", "json"]):
        code, out, err = run("check", "acme", "--cloud-config=acme.conf", *more)
        assert code == 1
        assert "initialize raised ValueError: bad token token: <redacted>" in out
        assert "correct-horse" not in out + err
    assert "--traceback shows" in run("check", "acme", "--cloud-config=acme.conf")[1]
    assert "in initialize" in run("check", "acme", "--cloud-config=acme.conf", "--traceback")[2]


@pytest.mark.row("O22")
def test_what_the_cloud_says_is_cleaned_as_in_the_manager(install: Install, tmp_path: Path, run: Run) -> None:
    """Secrets of the config are in no answer; its endpoint, region and a status are."""
    said = "https://api.acme.example/oauth/token: 401 in eu-west-7, sent hunter2xyz"
    broken = GOOD.replace("return False\n\n    def instance_s", f"raise OSError({said!r})\n\n    def instance_s")
    broken = broken.replace("return None", "raise NotImplementedByProvider('hunter2xyz')")
    install(broken.replace("import CloudP", "import NotImplementedByProvider, CloudP"))
    config = tmp_path / "acme.yaml"
    config.write_text("endpoint: https://api.acme.example\nregion: eu-west-7\ntoken: hunter2xyz\n")
    _, out, _ = run("check", "acme", "--cloud-config", str(config))
    assert "https://api.acme.example/oauth/token: 401 in eu-west-7, sent ***" in out
    assert "NotImplementedByProvider: ***" in out
    assert "hunter2" not in out


def test_a_wrong_name_and_a_missing_config_are_told_together(install: Install, run: Run) -> None:
    install(GOOD)
    code, out, _ = run("check", "acne", "--cloud-config=none.conf", "-o", "json")
    assert code == 1
    assert "Did you mean 'acme'?" in problems(out)["entry point"]["what"]
    assert "there is no cloud config at 'none.conf'" in problems(out)["config"]["what"]


@pytest.mark.parametrize(
    ("requires", "told"),
    [
        (
            ["kubernetes-cloud-provider<0.2,>=0.1"],
            "acme-cloud 1.0 is made for kubernetes-cloud-provider <0.2,>=0.1, and 0.9",
        ),
        (["Kubernetes.Cloud_Provider[testing]==0.1.*"], "and 0.9.0 is installed"),
        (["kubernetes-cloud-provider<0.2; python_version >= '3'"], "and 0.9.0 is installed"),
        (["kubernetes-cloud-provider>=0.9,<1", "boto3", "not a requirement !"], ""),
        (["kubernetes-cloud-provider<0.2; extra == 'test'"], ""),
        (["kubernetes-cloud-provider<0.2; platform_release ~= '5.x-generic'"], ""),  # nobody can compare that
        (["kubernetes-cloud-provider"], ""),
        ([], ""),
    ],
)
def test_a_provider_for_another_version_of_the_sdk(
    install: Install, run: Run, tmp_path: Path, requires: list[str], told: str
) -> None:
    write_distribution(tmp_path, "kubernetes-cloud-provider", version="0.9.0")
    install(GOOD, requires=requires)
    code, out, _ = run("check", "acme")
    assert code == (1 if told else 0)
    assert told in out
    assert ("problem  packages" in out) == bool(told)


@pytest.mark.parametrize("group", ["cloudprovider.provider", "cloud_provider.providers", "cloudprovider-providers"])
def test_a_group_that_is_misspelt_is_named_with_its_distribution(install: Install, run: Run, group: str) -> None:
    install(GOOD, group=group)
    code, out, _ = run("check", "acme")
    told = f"acme-cloud 1.0 offers 'acme' in the entry-point group {group!r}, where nobody looks"
    fix = "Fix: call it 'cloudprovider.providers' in the pyproject.toml of acme-cloud, and install that again"
    assert code == 1
    assert told in out
    assert fix in out
    code, out, _ = run("providers")
    assert code == 1
    assert f"{told}. {fix}" in out
    code, out, _ = run("providers", "-o", "json")
    assert [one["what"] for one in json.loads(out)["wrongGroups"]] == [told]


@pytest.mark.parametrize("group", ["cloudproviders", "kubernetes.cloud_provider", "cloudprovider.plugins"])
def test_a_missing_provider_is_looked_for_in_every_group_of_cloud_providers(
    install: Install, run: Run, tmp_path: Path, group: str
) -> None:
    install(GOOD, group=group)
    write_distribution(tmp_path, "acme2", "acme2 = m:f")
    out = run("check", "acme")[1]
    assert f"Did you mean 'acme2'? acme-cloud 1.0 offers 'acme' in the entry-point group {group!r}" in out
    assert "acme-cloud" not in run("providers")[1]  # not asked for by name: it may be of another program


def test_groups_of_others_are_nobodys_mistake(install: Install, run: Run) -> None:
    install(GOOD, group="cloudwatch.providers")
    assert "nobody looks" not in run("check", "acme")[1]


def test_wrong_usage_ends_with_2_and_help_with_0_and_the_exit_codes(run: Run) -> None:
    for argv in ([], ["no"], ["check"], ["check", "a", "--timeout=0"], ["check", "a", "-o", "xml"]):
        assert run(*argv)[0] == 2, argv
    usual = "0 all is well, 1 problems were found, 2 wrong usage"
    booting = "3 the cloud answered that this machine is no instance of it; 4 no complete answer in time"
    for command in ("", "check", "providers", "clusters", "node-info"):
        code, out, _ = run(*command.split(), "--help")
        assert code == 0
        assert (booting if command == "node-info" else usual) in " ".join(out.split())


def test_as_a_program(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cloudprovider", "check", "fake"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "cloud provider fake: kubernetes-cloud-provider" in done.stdout


def test_whoever_reads_the_results_may_have_enough() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    program = [sys.executable, "-m", "cloudprovider", "providers"]
    try:
        done = subprocess.run(program, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")
