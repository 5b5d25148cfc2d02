"""The program: the vendor's ten-line main as a process of its own, from its flags to its exit
code."""

from __future__ import annotations

import json
import re
import signal
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.testing.fake import hangs
from cloudprovider.testing.waiting import eventually
from tests.integration.conftest import REAL, Cluster, Share
from tests.support.api import NODES
from tests.support.nodes import is_tainted, small_node
from tests.support.process import EXAMPLE, Start

PASSWORD = "correct-horse-battery-staple"


ON_DEMAND: dict[str, Any] = {"on_demand": {"types": ["m-2"], "zones": ["z-1"], "region": "r-1"}}


def cloud(path: Path, **more: Any) -> str:
    """A configuration of the fake cloud, with a password among it, as a flag."""
    config = {**ON_DEMAND, "caller": PASSWORD, **more}
    path.write_text(json.dumps(config))
    return f"--cloud-config={path}"


@pytest.mark.row("M1")
@pytest.mark.parametrize(
    ("api", "number"),
    [("embedded", signal.SIGINT), pytest.param("real", signal.SIGTERM, marks=REAL.marks)],
    indirect=["api"],
)
def test_nodes_are_initialised_and_a_signal_drains_and_ends_with_0(
    api: Cluster, start: Start, tmp_path: Path, number: int
) -> None:
    for index in range(5):
        api.create(NODES, small_node(f"n{index}"))
    process = start(f"--kubeconfig={api.kubeconfig}", "--leader_elect=false", cloud(tmp_path / "cloud.json"))
    eventually(lambda: all(not is_tainted(node) for node in api.items(NODES)), 60, lambda: process.log)
    process.signal(number)
    assert process.ended() == 0
    assert f"{signal.Signals(number).name}: draining" in process.log
    assert "nothing left behind" in process.log
    for index in range(5):  # what was reported before the signal is in the cluster
        assert api.reasons(f"n{index}") == ["Synced"]
    assert PASSWORD not in process.log
    assert api.server.token not in process.log


def test_a_node_being_initialised_at_the_signal_is_finished(
    embedded: EmbeddedAPIServer, start: Start, tmp_path: Path
) -> None:
    embedded.create(small_node("slow"))
    config = cloud(tmp_path / "cloud.json", latency={"instances_metadata": 1.0})
    process = start(f"--kubeconfig={tmp_path / 'kubeconfig'}", "--leader-elect=false", config)
    eventually(lambda: "is running" in process.log, 60, lambda: process.log)
    process.signal(signal.SIGTERM)
    assert process.ended() == 0
    assert not is_tainted(embedded.get("nodes", "slow"))


def test_a_second_signal_ends_it_at_once_with_1(
    embedded: EmbeddedAPIServer, start: Start, share: Share, tmp_path: Path
) -> None:
    embedded.create(small_node("hung"))
    share(ON_DEMAND).faults.on("instance*_metadata", hangs())
    config = f"--cloud-config={tmp_path / 'cloud.json'}"
    process = start(f"--kubeconfig={tmp_path / 'kubeconfig'}", "--leader-elect=false", config)
    eventually(lambda: "is running" in process.log, 60, lambda: process.log)
    process.signal(signal.SIGTERM)
    eventually(lambda: "draining" in process.log)
    process.signal(signal.SIGTERM)
    assert process.ended(5) == 1
    assert "SIGTERM again: ending at once" in process.log


@pytest.mark.row("N5", "O8")
def test_a_provider_that_hangs_on_one_node_costs_that_node_and_not_the_exit(
    embedded: EmbeddedAPIServer, start: Start, share: Share, tmp_path: Path
) -> None:
    for name in ("hung", "well-0", "well-1"):
        embedded.create(small_node(name))
    share({**ON_DEMAND, "capabilities": ["instances_v2"]}).faults.on("instance*_metadata", hangs(), key="hung")
    process = start(
        f"--kubeconfig={tmp_path / 'kubeconfig'}",
        "--leader-elect=false",
        "--cloud-api-timeout=500ms",
        f"--cloud-config={tmp_path / 'cloud.json'}",
    )
    eventually(lambda: "parked until its call ends" in process.log, 60, lambda: process.log)
    eventually(lambda: all(not is_tainted(embedded.get("nodes", f"well-{n}")) for n in range(2)), 60)
    assert is_tainted(embedded.get("nodes", "hung"))
    process.signal(signal.SIGTERM)
    assert process.ended(15) == 1
    assert "work that has not ended: a call for node/hung" in process.log
    assert "work is left behind that did not end in time: a call for node/hung" in process.log


@pytest.mark.row("M4")
def test_bad_flags_are_all_listed_and_nothing_is_touched(
    embedded: EmbeddedAPIServer, start: Start, share: Share, tmp_path: Path
) -> None:
    embedded.create(small_node("n0"))
    before = embedded.get("nodes", "n0")
    untouched = share(ON_DEMAND)
    process = start(
        f"--kubeconfig={tmp_path / 'kubeconfig'}",
        f"--cloud-config={tmp_path / 'cloud.json'}",
        "--concurrent-node-syncs=0",
        "--node-status-update-frequency=5",
        "--controllers=*,-cloud-nod",
        "--secure-port=102580",
        "--cloud-provider=fale",
        "--cloud-api-burst=7",
        "--logging-fromat=json",
        "--leader-elect-renew-deadline=20s",
    )
    assert process.ended() == 2
    lines = process.log.splitlines()
    assert lines[0] == "main.py: 8 problems with the flags; nothing was started:"
    assert len(lines) == 10
    assert "--cloud-provider=fale: unknown cloud provider" in process.log
    assert "Traceback" not in process.log
    assert embedded.get("nodes", "n0") == before
    assert untouched.calls.count() == 0


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        ([], "--kubeconfig"),  # outside a cluster
        (["--kubeconfig=missing"], "missing"),
        (["--kubeconfig=broken"], "broken"),
        (["--kubeconfig=kubeconfig", "--cloud-config=missing"], "there is no cloud config at 'missing'"),
        (["--kubeconfig=kubeconfig", "--cloud-config=broken"], "could not be started"),
    ],
)
def test_what_cannot_be_read_is_told_without_a_traceback_and_ends_with_1(
    embedded: EmbeddedAPIServer, start: Start, tmp_path: Path, flags: list[str], part: str
) -> None:
    (tmp_path / "broken").write_text(f"{{ password: {PASSWORD}: [")
    process = start("--leader-elect=false", *flags)
    assert process.ended() == 1
    assert part in process.log
    assert "Traceback" not in process.log
    assert PASSWORD not in process.log


def test_json_logs_are_one_object_a_line(embedded: EmbeddedAPIServer, start: Start, tmp_path: Path) -> None:
    embedded.create(small_node("n0"))
    process = start(
        f"--kubeconfig={tmp_path / 'kubeconfig'}",
        "--leader-elect=false",
        "--logging-format=json",
        "-v=6",
        "--allow-untagged-cloud",
        "--health-bind-address=127.0.0.1:0",
        cloud(tmp_path / "cloud.json", has_cluster_id=False),
    )
    eventually(lambda: not is_tainted(embedded.get("nodes", "n0")), 60, lambda: process.log)
    [url] = re.findall(r"on (http://127\.0\.0\.1:\d+)", process.log)  # a free port, which the log names
    with urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer:
        assert b"rest_client_requests_total" in answer.read()
    process.signal(signal.SIGTERM)
    assert process.ended() == 0
    lines = [json.loads(line) for line in process.log.splitlines()]
    assert all({"ts", "level", "logger", "msg"} <= set(line) for line in lines)
    assert any("is deprecated" in line["msg"] for line in lines)
    assert any("no cluster ID" in line["msg"] and line["level"] == "warning" for line in lines)
    assert any(line["level"] == "debug" for line in lines)
    assert PASSWORD not in process.log
    assert embedded.token not in process.log


def test_the_example_has_ten_lines() -> None:
    assert len(Path(EXAMPLE[1]).read_text().splitlines()) <= 10
