"""One measurement: a contender's process over a cluster, watched by the two witnesses and bounded
by a timeout."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import field, frozen

from tests.lab.bench.cluster import BenchCluster
from tests.lab.bench.contenders import ROOT, Contender, journal
from tests.lab.bench.spent import Spent
from tests.lab.bench.witness import JournalReader, Seen
from tests.lab.envtest.server import Identity
from tests.support.failover.audit import AuditLog

POLL = 0.1
LOG_LINES = 20
_STOP_SECONDS = 60


class Unfinished(Exception):
    """A contender did not do its work, or not rightly; `short` is for the table, the message has
    the end of its log."""

    def __init__(self, short: str, log: str = "") -> None:
        super().__init__(f"{short}\n{log}".rstrip())
        self.short = short


@frozen
class Trial:
    """A contender at work."""

    contender: Contender
    process: subprocess.Popen[bytes]
    started: float
    """Unix seconds, just before its process."""
    audit: AuditLog
    seen: Seen
    """What stands in that log of its writes on nodes."""
    spent: Spent
    journal: JournalReader
    log: Path
    _deadline: float = field()

    def wait(self, done: Callable[[], bool], what: str) -> None:
        """Look at `done` until it holds. Raises `Unfinished` when the time is up, or the contender
        ends before that."""
        while not done():
            code = self.process.poll()
            if code is not None and not (self.contender.kind == "limit" and code == 0):
                raise Unfinished(f"ended with {code} before {what}", self._tail())
            if time.monotonic() > self._deadline:
                raise Unfinished(f"> {self.contender.timeout:.0f} s until {what}", self._tail())
            time.sleep(POLL)  # the witnesses must not load the machine that is measured

    def _tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_LINES:])


@contextmanager
def trial(
    contender: Contender, cluster: BenchCluster, *flags: str, identity: Identity | None = None
) -> Iterator[Trial]:
    """Run a contender, with these flags besides its own, until the with statement ends; its process
    is then ended."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        command = [*contender.command(cluster, folder, identity), *flags]
        audit = AuditLog(cluster.server.audit_log)
        with (folder / "log").open("wb") as log:
            deadline = time.monotonic() + contender.timeout
            started = time.time()
            process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
            try:
                yield Trial(
                    contender,
                    process,
                    started,
                    audit,
                    Seen(audit),
                    Spent(process.pid, cluster.server),
                    JournalReader(journal(folder)),
                    folder / "log",
                    deadline,
                )
            finally:
                process.terminate()
                try:
                    process.wait(_STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
