"""The service controller as a program of one's own, from the environment to the exit code; its
cloud is a file."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cloudprovider.testing.waiting import eventually
from tests.integration.conftest import REAL, Cluster
from tests.support.api import NODES
from tests.support.nodes import small_node
from tests.support.services import SERVICES, addresses, lb_service

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAM = EXAMPLES / "service_only.py"


def _environment(**variables: str) -> dict[str, str]:
    own = ("VPC_ID", "SUBNET_ID", "STATE_FILE", "CLUSTER_NAME", "KUBECONFIG", "KUBERNETES_SERVICE_HOST")
    kept = {name: value for name, value in os.environ.items() if name not in own}
    return {**kept, "PYTHONPATH": str(EXAMPLES / "samplecloud"), **variables}


@contextmanager
def _running(folder: Path, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """The program at work, its output in `folder`/log."""
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM)], cwd=folder, env=_environment(**variables), stdout=log, stderr=log
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


def _balancers(folder: Path) -> list[dict[str, Any]]:
    return list(json.loads((folder / "state.json").read_text())["balancers"].values())


@pytest.mark.parametrize(
    ("api", "number"),
    [("embedded", signal.SIGINT), pytest.param("real", signal.SIGTERM, marks=REAL.marks)],
    indirect=["api"],
)
def test_a_service_gets_its_load_balancer_and_loses_it_and_a_signal_ends_it_with_0(
    api: Cluster, tmp_path: Path, number: int
) -> None:
    api.create(NODES, small_node("node-1", provider_id="samplecloud://i-1"))
    variables = {
        "VPC_ID": "vpc-1",
        "SUBNET_ID": "subnet-1",
        "STATE_FILE": "state.json",
        "CLUSTER_NAME": "blue",
        "KUBECONFIG": str(api.kubeconfig),
    }
    with _running(tmp_path, **variables) as process:

        def log() -> str:
            return f"exit code {process.poll()}\n{(tmp_path / 'log').read_text()}"

        uid = api.create(SERVICES, lb_service("web"))["metadata"]["uid"]
        [address] = eventually(lambda: addresses(api.get(f"{SERVICES}/web")), 60, log)
        [balancer] = _balancers(tmp_path)
        assert address == balancer["address"]
        assert (balancer["vpc"], balancer["subnet"], balancer["cluster"]) == ("vpc-1", "subnet-1", "blue")
        assert (balancer["service"], balancer["uid"], balancer["targets"]) == ("default/web", uid, ["i-1"])
        api.delete(f"{SERVICES}/web")
        eventually(lambda: api.find(f"{SERVICES}/web") is None, 60, log)
        assert _balancers(tmp_path) == []
        process.send_signal(number)
        assert process.wait(45) == 0, log()
        assert "Traceback" not in log()
        assert {"EnsuredLoadBalancer", "DeletedLoadBalancer"} <= set(api.reasons("web"))


@pytest.mark.parametrize(
    ("variables", "missing"),
    [({}, ["VPC_ID", "SUBNET_ID"]), ({"VPC_ID": "vpc-1", "SUBNET_ID": " "}, ["SUBNET_ID"])],
)
def test_what_is_missing_is_named_at_once_and_ends_it_with_1(
    tmp_path: Path, variables: dict[str, str], missing: list[str]
) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM)],
        cwd=tmp_path, env=_environment(**variables), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert [name for name in ("VPC_ID", "SUBNET_ID") if f"{name} is not set" in done.stderr] == missing
    assert "Traceback" not in done.stderr


def test_it_has_sixteen_lines() -> None:
    text = PROGRAM.read_text()
    docstring = ast.parse(text).body[0].end_lineno
    code = [line for line in text.splitlines()[docstring:] if line.strip() and not line.lstrip().startswith("#")]
    assert len(code) <= 16
