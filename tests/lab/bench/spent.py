"""The CPU time that a contender and the API server take, from /proc."""

from __future__ import annotations

from tests.lab.envtest.server import RealAPIServer
from tests.support.usage import usage


class Spent:
    """Seconds of CPU from its making on: of one process, and of kube-apiserver, which may be
    started anew meanwhile."""

    def __init__(self, pid: int, server: RealAPIServer) -> None:
        self._pid, self._server = pid, server
        self._cpu = usage(pid).cpu
        self._server_pid = server.pid
        self._server_cpu = usage(server.pid).cpu

    def by_process(self) -> float:
        """Raises OSError or ValueError when the process has ended."""
        return usage(self._pid).cpu - self._cpu

    def by_server(self) -> float:
        pid = self._server.pid
        return usage(pid).cpu - (self._server_cpu if pid == self._server_pid else 0.0)
