"""A vendor's package as a user installs it: into a fresh environment, beside a broken one, and run
by our program.

The environment holds our wheel, the sample provider's and a broken plugin's; their dependencies are
borrowed from the environment that runs the tests, so that nothing is downloaded.
"""

from __future__ import annotations

import fcntl
import json
import signal
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from cloudprovider.testing.waiting import eventually
from tests.integration.conftest import Cluster
from tests.support.api import NODES
from tests.support.nodes import small_node
from tests.support.process import Start

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
BROKEN_PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "brokencloud"
version = "1.2.3"

[project.entry-points."cloudprovider.providers"]
brokencloud = "brokencloud:new_provider"
"""


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A virtual environment with the three distributions; returns its folder of programs.

    It is made once for all workers: the first one holds the lock while it builds.
    """
    shared = tmp_path_factory.getbasetemp()
    folder = (shared if worker_id == "master" else shared.parent) / "plugin"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            _make(folder)
            (folder / "ready").touch()
    return folder / "env" / "bin"


def _make(folder: Path) -> None:
    broken = folder / "broken"
    (broken / "brokencloud").mkdir(parents=True)
    (broken / "pyproject.toml").write_text(BROKEN_PROJECT)
    (broken / "brokencloud" / "__init__.py").write_text('raise RuntimeError("this plugin is broken")\n')
    home = folder / "env"
    venv.create(home, with_pip=False)
    programs = home / "bin"
    site = home / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    wheels = folder / "wheels"
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(wheels)]
    subprocess.run([*build, str(ROOT), str(ROOT / "examples" / "samplecloud"), str(broken)], check=True)
    install = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "install", "--quiet", "--no-deps"]
    subprocess.run([*install, "--force-reinstall", *map(str, sorted(wheels.glob("*.whl")))], check=True)


def test_the_wheel_holds_the_two_packages_and_nothing_else(environment: Path) -> None:
    (wheel,) = (environment.parents[1] / "wheels").glob("kubernetes_cloud_provider-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"cloudprovider", "controllers"}
    assert {"cloudprovider/py.typed", "controllers/py.typed"} <= set(names)


def test_an_installed_provider_initialises_nodes_beside_a_broken_one(
    api: Cluster, environment: Path, start: Start, tmp_path: Path
) -> None:
    config = {
        "region": "north",
        "state_file": "state.json",
        "load_balancer_range": "198.51.100.0/24",
        "instances": [{"id": "i-1", "name": "node-1", "zone": "north-1", "type": "small", "addresses": ["10.0.0.1"]}],
    }
    (tmp_path / "cloud.json").write_text(json.dumps(config))
    api.create(NODES, small_node("node-1"))
    flags = ["--cloud-provider=samplecloud", "--cloud-config=cloud.json", f"--kubeconfig={api.kubeconfig}"]
    process = start(*flags, "--leader-elect=false", command=[str(environment / "cloud-controller-manager")])
    eventually(
        lambda: api.get(f"{NODES}/node-1")["spec"].get("providerID") == "samplecloud://i-1", 60, lambda: process.log
    )
    process.signal(signal.SIGTERM)
    assert process.ended() == 0, process.log
    labels = api.get(f"{NODES}/node-1")["metadata"]["labels"]
    assert labels["topology.kubernetes.io/zone"] == "north-1"


def test_an_installed_provider_is_proved_by_its_own_tests(environment: Path, tmp_path: Path) -> None:
    """The suite and its report are in the wheel; the entry point is the installed one."""
    tests = ROOT / "examples" / "samplecloud" / "tests"
    command = [str(environment / "python"), "-m", "pytest", "-q", "--rootdir", str(tmp_path), "-p", "no:cacheprovider"]
    command += ["-W", "error", f"--conformance-report={tmp_path}", "-k", "not test_e", str(tests)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "conformance-samplecloud.json").read_text())
    assert report["provider"]["distribution"] == f"samplecloud {VERSION}"
    assert report["summary"]["failed"] == 0
    assert report["summary"]["passed"] > 70


def test_the_broken_one_is_blamed_by_name(environment: Path, tmp_path: Path) -> None:
    command = [str(environment / "cloud-controller-manager"), "--cloud-provider=brokencloud", "--leader-elect=false"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (1, 2)
    assert "brokencloud 1.2.3" in done.stderr
    assert "this plugin is broken" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_vendors_own_program_has_its_flags_its_controller_and_its_default(
    api: Cluster, environment: Path, start: Start, tmp_path: Path
) -> None:
    instance = {"id": "i-2", "name": "node-2", "zone": "north-1", "type": "small", "addresses": ["10.0.0.2"]}
    state = {"instances": {"i-2": {**instance, "region": "north"}}, "balancers": {}, "rules": {}}
    (tmp_path / "state.json").write_text(json.dumps(state))
    api.create(NODES, small_node("node-2") | {"metadata": {"name": "node-2", "labels": {"gang": "blue"}}})
    flags = ["--samplecloud-state-file=state.json", "--samplecloud-pool-label=gang", "--samplecloud-pool-period=200ms"]
    flags += [f"--kubeconfig={api.kubeconfig}", "--leader-elect=false", "--health-bind-address=127.0.0.1:0"]
    process = start(*flags, command=[str(environment / "samplecloud-controller-manager")])
    eventually(
        lambda: api.get(f"{NODES}/node-2")["spec"].get("providerID") == "samplecloud://i-2", 60, lambda: process.log
    )
    eventually(lambda: process.metric("samplecloud_pool_nodes", pool="blue") == 1, 10, lambda: process.log)
    process.signal(signal.SIGTERM)
    assert process.ended() == 0, process.log
    assert "flags that differ from the defaults: " in process.log
    assert "--samplecloud-state-file=state.json" in process.log
    command = [str(environment / "samplecloud-controller-manager"), "--help"]
    text = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "Samplecloud flags:" in text
    assert "(default 10s)" in text
