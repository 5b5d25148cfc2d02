"""What a manager did in one phase, and what it cost: by the audit log, the cloud's journal and
/proc."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator

from tests.lab.bench.scenario import Figures
from tests.lab.bench.spent import Spent
from tests.lab.bench.trial import Trial
from tests.lab.bench.witness import Call
from tests.lab.envtest.server import RealAPIServer
from tests.support.failover.audit import AuditLog, Request
from tests.support.usage import forget_peak, usage

BALANCING = ("ensure_load_balancer", "update_load_balancer")
"""Calls that carry a list of hosts."""
_QUIET = 3.0
"""Seconds without a request or a call after which the manager has nothing to do."""


class Span:
    """From its making on: the requests of one manager, its calls and its CPU. For one thread.

    `who` is the UID of the manager's token. What is new is read by `look`, and each line once: a
    large cluster writes hundreds of thousands.
    """

    def __init__(self, run: Trial, who: str, audit: AuditLog, server: RealAPIServer) -> None:
        self.run, self.began = run, time.time()
        self.wrote: dict[str, dict[str, float]] = {}
        """By "verb resource" and name: when the last such request was answered."""
        self.watches: dict[str, float] = {}
        """By resource: when the last watch was answered."""
        self.whole: list[Request] = []
        """Lists of everything of a kind."""
        self.first_write: Request | None = None
        self._who, self._audit = who, audit
        self._counts: Counter[str] = Counter()
        self._busy = self.began
        self._at, self._calls_at = len(audit.read()), len(run.journal.read())
        forget_peak(run.process.pid)
        self._spent = Spent(run.process.pid, server)

    def look(self) -> None:
        """Take in what is new."""
        for one in self._new():
            self._busy = max(self._busy, one.ended)
            if one.verb == "watch":
                self.watches[one.resource] = max(one.began, self.watches.get(one.resource, 0.0))
            if one.lists:
                self.whole.append(one)
            if one.writes:
                self._counts["writes"] += 1
                if one.code < 300:
                    self.wrote.setdefault(f"{one.verb} {one.resource}", {})[one.name] = one.ended
                if one.resource.startswith("nodes"):
                    self.first_write = self.first_write or one
            else:
                self._counts["reads"] += 1

    def _new(self) -> Iterator[Request]:
        requests = self._audit.read()
        for number in range(self._at, len(requests)):
            one = requests[number]
            ends = one.verb == "watch" and one.code == 200 and one.ended - one.began > 1.0  # it began earlier
            if one.who == self._who and one.resource != "leases" and not ends:
                yield one
        self._at = len(requests)

    def calls(self, *methods: str) -> list[Call]:
        """The calls to the cloud, of these methods or all."""
        calls = self.run.journal.read()
        found = (calls[number] for number in range(self._calls_at, len(calls)))
        return [call for call in found if not methods or call.method in methods]

    def written(self, resource: str, *verbs: str) -> dict[str, float]:
        """By name: when the manager's last request of these verbs was answered."""
        self.look()
        found: dict[str, float] = {}
        for verb in verbs:
            found |= self.wrote.get(f"{verb} {resource}", {})
        return found

    def initialised(self) -> dict[str, float]:
        """By name: when the taint of each node was taken off."""
        return self.written("nodes", "patch", "update")

    def wait(self, done: Callable[[], bool], what: str) -> None:
        """Until it holds. Raises Unfinished."""
        self.run.wait(done, what)

    def settle(self) -> None:
        """Wait until the manager has had nothing to do for a while."""

        def quiet() -> bool:
            self.look()
            last = max((call.ended for call in self.run.journal.read()[-50:]), default=0.0)
            return time.time() - max(last, self._busy) > _QUIET

        self.run.wait(quiet, "it had nothing more to do")

    def figures(self, seconds: float, **more: float) -> Figures:
        """`seconds` and what was spent until now."""
        self.look()
        used = usage(self.run.process.pid)
        return {
            "seconds": seconds,
            **more,
            "cpu": self._spent.by_process(),
            "server_cpu": self._spent.by_server(),
            "peak": used.peak,
            "memory": used.memory,
            "calls": len(self.calls()),
            "writes": self._counts["writes"],
            "reads": self._counts["reads"],
            "unpaged": sum(not _is_paged(one) for one in self.whole),
            "load": os.getloadavg()[0],
        }


def _is_paged(one: Request) -> bool:
    """Whether a list came in pages, or as the first events of a watch."""
    return "limit=" in one.uri or "continue=" in one.uri or one.verb == "watch"
