"""`make run` as a process: what it shows, its exit codes, and that nothing survives it."""

from __future__ import annotations

import importlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.testing.waiting import eventually
from tests.integration.conftest import EMBEDDED, Cluster
from tests.support.api import NODES
from tests.support.nodes import small_node
from tests.support.services import SERVICES, lb_service

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "examples" / "demo.py"


TAKES_INTERRUPTS = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.executable, sys.argv[1:])"
)
"""A shell has its background jobs ignore SIGINT, and so their children: this test may run in one.

No `preexec_fn`: it runs between fork and exec, where a lock of another thread stays locked for
good.
"""


@contextmanager
def demo(tmp_path: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The demo with its temporary files under tmp_path, so that its manager can be found by its
    command line."""
    process = subprocess.Popen(
        [sys.executable, "-c", TAKES_INTERRUPTS, sys.executable, str(DEMO), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
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


def test_the_story_comes_true_act_by_act(tmp_path: Path) -> None:
    with demo(tmp_path) as process:
        out, err = process.communicate(timeout=250)  # about 25 s on a machine of its own
    assert process.returncode == 0, out + err
    assert err == ""
    assert "\x1b" not in out  # no colours where nobody looks
    acts = re.findall(r"^(\d)/(\d)  \S", out, re.MULTILINE)
    assert [int(number) for number, _ in acts] == list(range(1, len(acts) + 1))
    assert {total for _, total in acts} == {str(len(acts))}
    done = re.findall(r"node (\S+): initialised in [\d.]+ s: fake://i-(\S+)  10\.0\.16\.\d+  \S+  north-1[abc]\n", out)
    assert len(done) >= 6
    assert all(name == instance for name, instance in done)
    assert "Event Warning FailedToInitializeNode Node/worker-03: the cloud's database is busy" in out
    assert len(re.findall(r"has a route for its pods, 10\.244\.\d+\.0/24", out)) >= 6
    assert "Event Normal EnsuredLoadBalancer Service/web" in out
    assert re.search(r"Service web: has the address 192\.0\.2\.\d+", out)
    assert out.index("load balancer of web: 6 targets") < out.index("load balancer of web: 5 targets")
    assert "node worker-02: deleted" in out
    assert "Event Normal DeletingNode Node/worker-02" in out
    assert "OK its route is deleted" in out
    killed = re.search(r"> kill -9 \d+   \((manager [AB]), the leader\)", out)
    assert killed
    other = {"manager A": "manager B", "manager B": "manager A"}[killed[1]]
    after = out[killed.end() :]
    assert f"{killed[1]} was killed" in after
    for text in (
        f"OK {other} is the leader",
        "OK worker-06 is initialised and has its route",
        "OK Service shop has an address",
        "OK web keeps its address, and worker-06 becomes its target",
        "OK manager C is the leader",
        f"OK {other} has ended with exit code 0",
        "OK its load balancer is deleted in the cloud, then the Service",
        "OK no two managers changed the cloud at the same time",
        f"times: by {killed[1]}, then {other}, then manager C",
    ):
        assert text in after
    assert "Where to go next" in out
    for line in re.findall(r"^  (examples/\S+|docs/\S+)", out.partition("Where to go next")[2], re.MULTILINE):
        assert (ROOT / line).exists()
    assert pids(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_manager_that_dies_on_the_way_ends_the_demo_with_a_reason(tmp_path: Path) -> None:
    with demo(tmp_path) as process:
        pid, *_ = eventually(lambda: pids(tmp_path), 60)
        os.kill(pid, signal.SIGKILL)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert re.search("The demo failed: manager [AB] ended with exit code -9", err)
    assert "Traceback" not in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_takes_its_managers_along(tmp_path: Path, number: int) -> None:
    with demo(tmp_path) as process:
        eventually(lambda: pids(tmp_path), 60)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Interrupted" in err
    assert "Traceback" not in err
    assert pids(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@EMBEDDED
def test_with_a_kubeconfig_only_the_tainted_nodes_of_that_cluster_are_touched(api: Cluster, tmp_path: Path) -> None:
    for number in range(3):
        api.create(NODES, small_node(f"mine-{number}"))
    before = api.create(NODES, small_node("theirs", provider_id="other://i-1"))
    waiting = api.create(SERVICES, lb_service("waiting"))
    with demo(tmp_path, "--kubeconfig", str(api.kubeconfig)) as process:
        out, err = process.communicate(timeout=90)
    assert process.returncode == 0, out + err
    assert "3 nodes were initialised" in out
    assert "A provider ID can never be changed" in out
    assert out.index("mine-1") < out.index("python -m controllers.app")  # told before anything is written
    for number in range(3):
        assert api.get(f"{NODES}/mine-{number}")["spec"]["providerID"].startswith("fake://")
    after = api.get(f"{NODES}/theirs")
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    service = api.get(f"{SERVICES}/waiting")
    assert service["metadata"]["resourceVersion"] == waiting["metadata"]["resourceVersion"]


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


def test_a_manager_that_cannot_start_ends_the_demo_with_its_words(embedded: EmbeddedAPIServer, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    with demo(tmp_path, "--kubeconfig", str(tmp_path / "empty")) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "The demo failed: " in err
    assert "empty" in err
    assert "Traceback" not in err


def test_a_signal_while_a_manager_is_started_leaves_none_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if it came between the process's birth and the moment in which it has a name here."""
    monkeypatch.syspath_prepend(str(DEMO.parent))
    module = importlib.import_module("livedemo.manager")
    born: list[subprocess.Popen[str]] = []

    def start(*arguments: Any, **more: Any) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", "input()"]
        born.append(subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        signal.raise_signal(signal.SIGINT)
        return born[0]

    monkeypatch.setattr(module, "subprocess", SimpleNamespace(Popen=start, PIPE=subprocess.PIPE, DEVNULL=-3))
    manager = module.ManagerProcess("manager A", [])
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            manager.start()
        manager.kill()
        assert born[0].wait(10) == -signal.SIGKILL
    finally:
        signal.signal(signal.SIGINT, before)
        for process in born:
            process.kill()
            process.communicate(timeout=30)
