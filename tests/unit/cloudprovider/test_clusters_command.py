"""`python -m cloudprovider clusters`: the clusters of an account, over the fake cloud and its
faults."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cloudprovider.commands.cli import main
from cloudprovider.testing.fake import Action, FakeCloud, FakeConfig, answers, hangs, raises

CLUSTERS = [{"name": "two", "master": "192.0.2.2"}, {"name": "one", "master": "one.cloud.example"}, {"name": "new"}]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command over a fake cloud with these settings; returns exit code, output and
    errors."""

    def run(
        *argv: str, fault: tuple[str, Action] | None = None, key: str = "*", **settings: Any
    ) -> tuple[int, str, str]:
        with FakeCloud(FakeConfig.model_validate({"clusters": CLUSTERS, **settings})) as cloud:
            config = cloud.share(tmp_path / "cloud.json")
            if fault:
                cloud.faults.on(*fault, key=key)
            code = main(["clusters", "--cloud-provider=fake", f"--cloud-config={config}", *argv])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_clusters_and_their_control_planes(run: Run) -> None:
    code, out, err = run()
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "CLUSTER  CONTROL PLANE", "new      not known", "one      one.cloud.example", "two      192.0.2.2"
    ]  # fmt: skip
    assert run(clusters=[])[:2] == (0, "The account has no cluster.\n")


def test_as_json(run: Run) -> None:
    code, out, _ = run("-o", "json")
    assert code == 0
    assert json.loads(out) == {
        "provider": "fake",
        "clusters": [
            {"name": "new", "master": None, "problem": None},
            {"name": "one", "master": "one.cloud.example", "problem": None},
            {"name": "two", "master": "192.0.2.2", "problem": None},
        ],
    }


def test_one_control_plane_alone(run: Run) -> None:
    assert run("master", "two") == (0, "192.0.2.2\n", "")
    code, out, err = run("master", "three")
    assert (code, out) == (1, "")
    assert "there is no cluster three" in err
    code, out, err = run("master", "new")
    assert (code, out) == (1, ""), "a script would go on with an empty address"
    assert "knows no address of cluster new's control plane yet" in err


def test_one_that_cannot_be_told_costs_its_row(run: Run) -> None:
    code, out, err = run("-o", "json", fault=("master", raises()), key="one")
    assert code == 1
    assert [row["master"] for row in json.loads(out)["clusters"]] == [None, None, "192.0.2.2"]
    assert err.startswith("master of cluster one: CloudProviderError")


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"capabilities": ["routes"]}, "provider 'fake' has no clusters: clusters() returns None"),
        ({"fault": ("initialize", raises())}, "the start of provider 'fake' failed"),
        ({"fault": ("list_clusters", raises())}, "list_clusters of provider 'fake' failed"),
        ({"fault": ("list_clusters", answers("junk"))}, "list_clusters answered a str"),
    ],
)
def test_what_goes_wrong_is_told(run: Run, settings: dict[str, Any], what: str) -> None:
    code, out, err = run(**settings)
    assert (code, out) == (1, "")
    assert what in err


def test_a_cloud_that_hangs_costs_the_time(run: Run) -> None:
    code, out, err = run("--timeout=0.1", fault=("list_clusters", hangs(soft=True)))
    assert (code, out) == (1, "")
    assert "no answer in time" in err


def test_wrong_usage(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("master")[0] == 2
    assert run("slave", "one")[0] == 2
    assert main(["clusters", "--cloud-provider=nimbus"]) == 2
    assert main(["clusters"]) == 2


@pytest.mark.parametrize(("method", "shown"), [("list_clusters", ""), ("master", "CLUSTER")])
def test_what_is_no_exception_is_told_as_one(run: Run, method: str, shown: str) -> None:
    code, out, err = run(fault=(method, raises(asyncio.CancelledError("the token is token=hunter2"))))
    assert code == 1
    assert out.startswith(shown)
    assert "CancelledError: the token is token=<redacted>" in err
    assert "Traceback" not in err
