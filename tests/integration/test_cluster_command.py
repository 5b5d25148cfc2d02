"""`python -m cloudprovider cluster` and a manager beside it, each a process of its own, as a vendor
starts them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from cloudprovider.testing.fake import FakeCloud
from cloudprovider.testing.waiting import eventually
from tests.support.process import Start

PATIENCE = 60.0


class Command:
    """The command as a process; its lines are kept."""

    def __init__(self, cwd: Path, *flags: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "cloudprovider", "cluster", *flags],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip())

    def tells(self, part: str) -> None:
        eventually(lambda: any(part in line for line in self.lines), PATIENCE, lambda: "\n".join(self.lines))

    def interrupt(self) -> int:
        self._process.send_signal(signal.SIGINT)
        return self._process.wait(PATIENCE)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._reader.join(5)
        assert self._process.stdout is not None
        self._process.stdout.close()


def test_a_manager_beside_it_initialises_its_nodes(tmp_path: Path, start: Start) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    cluster = Command(tmp_path, "--nodes=3", "--service=web")
    try:
        cluster.tells("What changes in it:")
        with FakeCloud() as cloud:
            for name in ("node-1", "node-2", "node-3"):
                cloud.console.add_instance(name)
            cloud.share(tmp_path / "cloud.json")
            manager = start.manager(kubeconfig, "--node-monitor-period=300ms", "--node-deletion-young-grace=0s")
            for name in ("node-1", "node-2", "node-3"):
                cluster.tells(f"node {name}: initialised: fake://i-{name}")
            cluster.tells("Service default/web: ")
            # its kubelet falls silent as the machine goes
            cloud.console.remove_instance("node-2")
            silencing = Command(tmp_path, "--silence=node-2")
            try:
                silencing.tells("The kubelet of node node-2 is silent")
            finally:
                silencing.close()
            cluster.tells("node node-2: deleted")
            manager.signal(signal.SIGTERM)
            assert manager.ended() == 0
        assert cluster.interrupt() == 0
        assert cluster.lines[-1] == "The cluster has ended."
        assert not kubeconfig.exists()
    finally:
        cluster.close()
