"""A whole cluster starts, serves a page from a load balancer's address, and leaves nothing: real
nodes, our image, our chart."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.lab.cluster.provider import OURS
from tests.lab.envtest.build import CLUSTER_PROGRAMS, assets, cluster_program, kubelet, tool
from tests.support.tiers import need

REQUIRED = "REQUIRE_CLUSTER"
NAME = "whole"
LIMIT = 280.0
"""Seconds: a test that hangs is ended after 300."""


def _programs() -> None:
    assets()
    kubelet()
    tool("helm", always=True)
    for name in CLUSTER_PROGRAMS:
        cluster_program(name)


def test_a_cluster_starts_and_leaves_nothing() -> None:
    if not os.environ.get(REQUIRED):
        pytest.skip(f"a whole cluster: set {REQUIRED}=1 (Linux, root, 2 GB of memory, some minutes)")
    need("a whole cluster", _programs, required=REQUIRED)
    command = [sys.executable, "-m", "tests.lab.cluster", "--once", "--name", NAME, "--base", "10.150"]
    command += ["--pool", "198.18.150.0/24"]
    environment = {**os.environ, "PYTHONPATH": str(OURS)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            said, _ = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            process.terminate()  # it takes the cluster away
            said, _ = process.communicate()
    assert process.returncode == 0, said
    assert "The cluster is ready after" in said
    assert "its page fetched from this host" in said
    left = subprocess.run(["ip", "netns"], check=True, capture_output=True, text=True).stdout
    assert f"{NAME}-" not in left
