"""A manager on a root file system that nothing can be written to, as the manifests run it
(readOnlyRootFilesystem)."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.testing.waiting import eventually
from tests.support.https import free_port
from tests.support.nodes import is_tainted, small_node
from tests.support.process import MODULE, Start

READ_ONLY = ("unshare", "--mount", "--propagation=private", "sh", "-c", 'mount -o remount,bind,ro / && exec "$@"', "sh")
"""Runs a command whose mounts are its own: there `/` is read-only, and so is all that is no mount
of its own."""


def _possible() -> bool:
    """Only root may do that, and not in every container."""
    return (
        shutil.which("unshare") is not None and not subprocess.run([*READ_ONLY, "true"], capture_output=True).returncode
    )


def test_a_manager_needs_to_write_nowhere(start: Start, tmp_path: Path) -> None:
    if not _possible():
        pytest.skip("a read-only root file system takes root and unshare")
    config = tmp_path / "cloud.json"
    config.write_text(json.dumps({"on_demand": {"types": ["m-2"], "zones": ["z-1"], "region": "r-1"}}))
    with EmbeddedAPIServer() as server:
        server.create(small_node("n0"))
        process = start(
            "--cloud-provider=fake",
            f"--cloud-config={config}",
            f"--kubeconfig={server.write_kubeconfig(tmp_path / 'kubeconfig')}",
            "--bind-address=127.0.0.1",
            f"--secure-port={free_port()}",
            command=(*READ_ONLY, *MODULE),
        )

        eventually(lambda: not is_tainted(server.get("nodes", "n0")), 60, lambda: process.log)
        mounts = [line.split() for line in Path(f"/proc/{process.pid}/mounts").read_text().splitlines()]
        assert ["ro" in options.split(",") for _, place, _, options, *_ in mounts if place == "/"][-1]
        assert "HTTPS on 127.0.0.1" in process.log
        assert "Read-only file system" not in process.log
