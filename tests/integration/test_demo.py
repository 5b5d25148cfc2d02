"""`make run` as a process, in plain mode: what it shows, its exit codes, and that nothing survives it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from tests.integration.conftest import Cluster
from tests.support.api import NODES
from tests.support.nodes import small_node
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "examples" / "demo.py"


def _takes_interrupts() -> None:
    """A shell has its background jobs ignore SIGINT, and so their children: this test may run in one."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def demo(tmp_path: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The demo with its temporary files under tmp_path, so that its manager can be found by its command line."""
    process = subprocess.Popen(
        [sys.executable, str(DEMO), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        preexec_fn=_takes_interrupts,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(60)
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()


def pids(tmp_path: Path) -> list[int]:
    """The manager's process: the one with flags in this test's directory."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"={tmp_path}" in line:
            found.append(int(entry.parent.name))
    return found


def test_every_node_is_initialised_before_ones_eyes(tmp_path: Path) -> None:
    began = time.monotonic()
    with demo(tmp_path) as process:
        out, err = process.communicate(timeout=90)
    assert process.returncode == 0, out + err
    assert time.monotonic() - began < 60  # about 9 s on a machine of its own
    assert err == ""
    assert len(re.findall(r"joined, with the uninitialized taint", out)) == 24
    done = re.findall(r"(\S+) +initialised in [\d.]+ s: fake://i-(\S+)  10\.0\.\d+\.\d+  \S+  north-1[abc]\n", out)
    assert len(done) == 24
    assert all(name == instance for name, instance in done)
    assert "\x1b" not in out
    assert "Normal   Synced" in out
    assert "Warning  FailedToInitializeNode" in out
    assert "24 nodes were initialised" in out
    assert "the manager drained and ended with 0" in out
    assert "Where to go next" in out
    for line in re.findall(r"^  (examples/\S+|docs/\S+)", out.partition("Where to go next")[2], re.MULTILINE):
        assert (ROOT / line).exists()
    assert pids(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_manager_that_dies_on_the_way_ends_the_demo_with_a_reason(tmp_path: Path) -> None:
    with demo(tmp_path) as process:
        [pid] = eventually(lambda: pids(tmp_path), 30)
        os.kill(pid, signal.SIGKILL)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "The demo failed: the manager ended with exit code -9" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_takes_its_manager_along(tmp_path: Path, number: int) -> None:
    with demo(tmp_path) as process:
        eventually(lambda: pids(tmp_path), 30)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Interrupted" in err
    assert "Traceback" not in err
    assert pids(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_with_a_kubeconfig_only_the_tainted_nodes_of_that_cluster_are_touched(api: Cluster, tmp_path: Path) -> None:
    for number in range(3):
        api.create(NODES, small_node(f"mine-{number}"))
    other = small_node("theirs", taints=[])
    other["spec"]["providerID"] = "other://i-1"
    before = api.create(NODES, other)
    with demo(tmp_path, "--kubeconfig", str(api.kubeconfig)) as process:
        out, err = process.communicate(timeout=90)
    assert process.returncode == 0, out + err
    assert "3 nodes were initialised" in out
    assert "a provider ID can never be changed" in out
    assert out.index("mine-1") < out.index("python -m controllers.app")  # told before anything is written
    for number in range(3):
        assert api.get(f"{NODES}/mine-{number}")["spec"]["providerID"].startswith("fake://")
    after = api.get(f"{NODES}/theirs")
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[EmbeddedAPIServer]:
    with EmbeddedAPIServer() as server:
        server.write_kubeconfig(tmp_path / "kubeconfig")
        yield server


def test_a_cluster_whose_nodes_the_fake_cloud_would_take_is_left_alone(
    embedded: EmbeddedAPIServer, tmp_path: Path
) -> None:
    embedded.create(small_node("bare-metal", taints=[]))
    before = embedded.get("nodes", "bare-metal")
    with demo(tmp_path, "--kubeconfig", str(tmp_path / "kubeconfig")) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "neither the taint nor a provider ID: bare-metal" in err
    assert "python -m controllers.app" not in out  # the manager was not even started
    assert embedded.get("nodes", "bare-metal") == before


def test_a_cluster_with_nothing_to_do_is_said_to_be_so(embedded: EmbeddedAPIServer, tmp_path: Path) -> None:
    with demo(tmp_path, "--kubeconfig", str(tmp_path / "kubeconfig")) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "no node carries the taint" in out


def test_a_manager_that_cannot_start_ends_the_demo_with_its_words(embedded: EmbeddedAPIServer, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    with demo(tmp_path, "--kubeconfig", str(tmp_path / "empty")) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "The demo failed: " in err
    assert "empty" in err
    assert "Traceback" not in err
