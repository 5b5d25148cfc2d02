"""Managers as processes of their own over one cloud, with short leases, and what the API server
says of them. The cloud is shared by the fixture `share`."""

from __future__ import annotations

from pathlib import Path

from tests.integration.conftest import Cluster
from tests.support.api import NODES
from tests.support.nodes import is_tainted, small_node
from tests.support.process import Process, Start

LEASE_SECONDS, RETRY = 4.0, 0.5


class Managers:
    """Starts them, and asks the API server. `flags` are those of each."""

    def __init__(self, api: Cluster, start: Start, folder: Path, *flags: str) -> None:
        self.api = api
        self._start = start
        self._flags = (
            f"--cloud-config={folder / 'cloud.json'}",
            "--health-bind-address=127.0.0.1:0",
            "--secure-port=0",
            f"--leader-elect-lease-duration={LEASE_SECONDS:g}s",
            "--leader-elect-renew-deadline=2500ms",
            f"--leader-elect-retry-period={RETRY}s",
            *flags,
        )

    def __call__(self, *flags: str, kubeconfig: Path | None = None) -> Process:
        return self._start(f"--kubeconfig={kubeconfig or self.api.kubeconfig}", *self._flags, *flags)

    def add_node(self, name: str) -> None:
        self.api.create(NODES, small_node(name))

    def is_initialised(self, name: str) -> bool:
        return not is_tainted(self.api.get(f"{NODES}/{name}"))
