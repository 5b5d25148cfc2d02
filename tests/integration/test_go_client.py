"""A Go program works with the embedded API server: the Go cloud-controller-manager, whose client sends Protobuf.

Go clients send tokens over TLS only. The program is built from `tests/bench/goccm`; where it cannot be, the test is
skipped, or fails where CI requires the real API server.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.testing.waiting import eventually
from tests.envtest.build import AssetsMissing, go_manager
from tests.support.process import Start

UNINITIALIZED = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def program() -> Path:
    try:
        return go_manager()
    except AssetsMissing as problem:
        if os.environ.get("REQUIRE_REAL_API_SERVER"):
            pytest.fail(f"REQUIRE_REAL_API_SERVER is set, but {problem}")
        pytest.skip(str(problem))


def test_the_go_manager_takes_its_lease_and_initializes_a_node(program: Path, tmp_path: Path, start: Start) -> None:
    config = tmp_path / "cloud.json"
    config.write_text(json.dumps({"latencyMs": 0, "gonePrefix": "gone", "journal": str(tmp_path / "journal")}))
    with EmbeddedAPIServer(tls=True) as server:
        server.create({"kind": "Node", "metadata": {"name": "n"}, "spec": {"taints": [UNINITIALIZED]}})
        manager = start(
            f"--kubeconfig={server.write_kubeconfig(tmp_path / 'kubeconfig')}",
            "--cloud-provider=bench",
            f"--cloud-config={config}",
            "--controllers=cloud-node-controller",
            "--leader-elect=true",
            command=[str(program)],
        )

        def initialized() -> bool:
            lease = server.get("leases", "cloud-controller-manager", "kube-system")
            assert lease["spec"]["holderIdentity"]
            node = server.get("nodes", "n")
            assert UNINITIALIZED not in node["spec"]["taints"]
            return bool(node["spec"].get("providerID"))

        eventually(lambda: server.list("leases") and initialized(), 30, lambda: manager.log)
        events = eventually(lambda: server.list("events"), 10, lambda: manager.log)
        assert {one["reason"] for one in events} & {"LeaderElection", "Synced"}
