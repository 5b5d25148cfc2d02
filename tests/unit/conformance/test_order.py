"""A vendor's run: what says where the mistake is comes first, what would wait for it in vain is not
run, and a thread that never ends does not keep pytest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

VENDOR = """
import threading
import pytest
from cloudprovider import InstanceNotFound
from cloudprovider.testing.conformance import EndToEndConformance, Feature, Lab, ProviderConformance, new_node
from cloudprovider.testing.fake import FakeCloud, FakeConfig


class SmallLab(Lab):
    grace = 0.1

    def create_machine(self, name):
        return new_node(name)


@pytest.fixture(scope="module")
def lab():
    return SmallLab()


class Wrong(FakeCloud):
    def initialize(self, client_builder, stop):
        if THREAD:
            threading.Thread(target=threading.Event().wait, name="acme-poller").start()

    def instances_v2(self):
        return None if BROKEN else super().instances_v2()


class TestFake(ProviderConformance, EndToEndConformance):
    provider_name = "fake"
    features = Feature.INSTANCES_V2 | Feature.LOAD_BALANCER

    def make_provider(self, lab):
        offered = ["instances_v2", "load_balancer"]
        return Wrong(FakeConfig.model_validate({"capabilities": offered, "on_demand": {"names": "*-node-*"}}))

    @pytest.fixture
    def cluster(self):
        raise AssertionError("a cluster was made")
"""


def run(folder: Path, chosen: str, *, broken: bool = False, thread: bool = False) -> subprocess.CompletedProcess[str]:
    text = f"THREAD, BROKEN = {thread}, {broken}\n{VENDOR}"
    (folder / "test_fake.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-v", "--tb=line", "-rs", "-k", chosen, "--rootdir", str(folder)]
    return subprocess.run([*command, "-p", "no:cacheprovider"], cwd=folder, capture_output=True, text=True, timeout=120)


@pytest.mark.row("P10")
def test_what_needs_no_cluster_comes_first_and_spares_the_rest(tmp_path: Path) -> None:
    done = run(tmp_path, "g6_ or i1_ or i2_ or l4_ or e1_ or e4_", broken=True)
    ran = [
        line.split("::test_")[1].split("_")[0] for line in done.stdout.splitlines() if "::test_" in line and "%" in line
    ]
    assert ran == ["g6", "i1", "i2", "l4", "e1", "e4"], done.stdout
    assert "not run: I1, I2 failed, which this needs" in done.stdout
    assert done.stdout.count("a cluster was made") == 1, "of E4, as load balancers are right\n" + done.stdout


@pytest.mark.row("P10")
def test_a_thread_that_never_ends_does_not_keep_pytest(tmp_path: Path) -> None:
    done = run(tmp_path, "g6_ or g11_", thread=True)
    assert done.returncode == 1, done.stdout
    assert "1 failed, 1 passed" in done.stdout
    assert "the provider's threads acme-poller" in done.stderr
    assert "still run, so the process is ended by force" in done.stderr
