"""`make week`: a manager lives through a simulated week, and whether anything grows.

`python -m tests.lab.bench.scale.week --days 7`. The whole manager runs in this process, on a clock
that jumps to the next moment for which somebody waits as soon as nothing is left to do. The API
server is the real one, and has its own time.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

from attrs import field, frozen

from cloudprovider.testing.fake import FakeCloud, FakeConfig
from controllers.app import CATALOG, Manager, parse
from controllers.endpoints import health
from controllers.manager import assembly
from controllers.runtime.api import ClientBuilder, RestClient
from tests.lab.bench.report import lines_with_time
from tests.lab.bench.scale.page import PAGE
from tests.lab.cluster.trials.result import Result, judged
from tests.lab.envtest.server import Identity, RealAPIServer
from tests.support.api import API, NODES
from tests.support.clock import FakeClock
from tests.support.failover.agreement import disagreement
from tests.support.failover.audit import AuditLog, username
from tests.support.failover.churn import POD_RANGE, Churn, node
from tests.support.sampling import Life
from tests.support.usage import usage

COMMAND = "make week"
METHOD = (
    "The whole manager in one process over the real API server, with a fake cloud that answers at once, and its "
    "default flags but for two that make most of the steps: the Lease is renewed every 30 s, and nodes that are not "
    "ready are looked at each minute. Its clock jumps to the next moment "
    "for which one of its threads waits, by 15 s at least, as soon as no request is under way and nothing computes. "
    "Every ten minutes of it a node joins or leaves with its machine, or a Service is made, changed or deleted; on "
    "the last day nothing is done. The process is sampled every hour of it. A value grows if a straight line through "
    "the means of twelve parts, from the end of the first day on, rises by more than is allowed, and by more than its"
    " error (95 %). The API server's own times, those of its watches and Events, are real ones."
)
DAY = 86400.0
HOUR = 3600.0
ACT_EVERY = 600.0
AT_LEAST = 15.0
"""Seconds of the clock in one jump: some threads look at something each second."""
INSTANCES, MOST_JOINED = 50, 20
ALLOWED = {"memory, MB": 6.0, "threads": 3.0, "open files": 4.0, "series of metrics": 10.0}
_FLAGS = (
    "--cloud-provider=fake",
    "--secure-port=0",
    "--cluster-name=week",
    "--leader-elect-lease-duration=180s",
    "--leader-elect-renew-deadline=120s",
    "--leader-elect-retry-period=30s",
    "--node-monitor-period=1m",
    "--allocate-node-cidrs",
    f"--cluster-cidr={POD_RANGE}",
)
_SEED = 23


class UnderWay:
    """How many requests of this process to the API server wait for their answer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0

    def counted(self, request: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                self.count += 1
            try:
                return request(*args, **kwargs)
            finally:
                with self._lock:
                    self.count -= 1

        return call


class Mover:
    """Lets time pass."""

    def __init__(self, clock: FakeClock, under_way: UnderWay) -> None:
        self._clock, self._under_way = clock, under_way
        self.steps = 0

    def to(self, moment: float) -> None:
        """Up to this moment of the clock, from one deadline to the next."""
        while (left := moment - self._clock.monotonic()) > 0:
            self.settle()
            self._clock.advance(min(max(self._clock.next_deadline() or left, AT_LEAST), left))
            self.steps += 1

    def settle(self) -> None:
        """Until no request is under way, and nothing computes: twice in a row."""
        quiet = 0
        while quiet < 2:
            time.sleep(0.0005)
            quiet = 0 if self._under_way.count or _computing() else quiet + 1


def _computing() -> bool:
    """Whether another thread of this process runs, or would if it had a core."""
    mine = threading.get_native_id()
    for task in Path("/proc/self/task").iterdir():
        try:
            state = (task / "stat").read_bytes().rpartition(b") ")[2][:1]
        except OSError:
            continue  # it has just ended
        if state in b"RD" and int(task.name) != mine:
            return True
    return False


@frozen
class Day:
    """What was asked for in one day of the clock."""

    requests: Counter[str] = field(factory=Counter)
    """Of the manager, by verb and resource."""
    calls: int = 0

    @property
    def renewals(self) -> int:
        return self.requests["update leases"]

    @property
    def writes(self) -> Counter[str]:
        """But for those of the Lease."""
        changing = ("create", "update", "patch", "delete")
        return Counter({
            what: count
            for what, count in self.requests.items()
            if what.startswith(changing) and not what.endswith(("leases", "reviews"))
        })  # fmt: skip


class Week:
    """The stage, and what is done on it."""

    def __init__(self, folder: Path, server: RealAPIServer, manager: Identity) -> None:
        self.clock, self.under_way = FakeClock(unix=time.time()), UnderWay()
        self.mover = Mover(self.clock, self.under_way)
        self.cloud = FakeCloud(FakeConfig.model_validate({"generate": [{"count": INSTANCES}]}))
        self.api = API(server.url, server.token, server.ca_file)
        self.life = Life()
        self._audit = AuditLog(server.audit_log, username)
        self._kubeconfig = server.write_kubeconfig(folder / "kubeconfig", token=manager.token)
        self._name = manager.user
        self._stop = threading.Event()
        self._manager: Manager | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the manager."""
        outcome = parse([*_FLAGS, f"--kubeconfig={self._kubeconfig}"], CATALOG)
        assert outcome.options is not None, outcome.problems
        with mock.patch.object(assembly, "SYSTEM_CLOCK", self.clock):
            clients = ClientBuilder.from_options(str(self._kubeconfig))
            self._manager = Manager(outcome.options, self.cloud, clients, catalog=CATALOG)
        self._thread = threading.Thread(target=self._manager.run, args=(self._stop,), name="manager", daemon=True)
        self._thread.start()
        ready, end = self._manager.health.endpoint("readyz"), time.monotonic() + 60.0
        while not all(check.ok for check in ready()):
            assert time.monotonic() < end, "the manager is not ready"
            self.mover.to(self.clock.monotonic() + 0.1)

    def stop(self) -> None:
        """End it."""
        self._stop.set()
        end = time.monotonic() + 60.0
        while self._thread is not None and self._thread.is_alive() and time.monotonic() < end:
            self._thread.join(0.01)
            self.clock.advance(0.1)

    def day(self, churn: Churn | None, say: Callable[[str], None]) -> Day:
        """Live one day."""
        asked: Counter[str] = Counter()
        calls = 0
        for _ in range(int(DAY / HOUR)):
            for _ in range(int(HOUR / ACT_EVERY)):
                if churn is not None:
                    churn.act()  # first: what follows from a day's last act is not the next day's
                self.mover.to(self.clock.monotonic() + ACT_EVERY)
            self.mover.settle()
            # Each hour, so that this process holds little of it.
            asked.update(f"{one.verb} {one.resource}" for one in self._audit.by(self._name))
            self._audit.requests.clear()
            calls += len(self.cloud.calls.log())
            self.cloud.calls.clear()
            self._sample()
        found = Day(asked, calls)
        say(f"{calls} calls; {self.life.used[-1]}; {dict(found.requests.most_common())}")
        return found

    def _sample(self) -> None:
        assert self._thread is not None
        assert self._thread.is_alive(), "the manager ended"
        assert self._manager is not None
        self.life.at.append(self.clock.time())
        self.life.used.append(usage())
        self.life.more.append({"series of metrics": float(self._manager.metrics.text().count(b"\n"))})


def live(days: int, say: Callable[[str], None]) -> Result:
    """The whole run: all days but the last with changes."""
    result = Result()
    manager = Identity("week-manager", "week-manager", ("system:masters",))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="week-")))
        server = RealAPIServer(audit_level="Metadata", identities=[manager])
        stack.callback(server.stop)
        server.start()
        week = Week(folder, server, manager)
        counted = week.under_way.counted(RestClient.request)
        stack.enter_context(mock.patch.object(RestClient, "request", counted))
        # The API server's bookmarks come each minute of its own time.
        stack.enter_context(mock.patch.object(health, "SILENT_SECONDS", math.inf))
        for number in range(INSTANCES):
            week.api.create(NODES, node(f"node-{number:04d}", number))
        churn = Churn(week.api, week.cloud, INSTANCES, seed=_SEED, most=MOST_JOINED)
        stack.callback(week.stop)
        began = time.monotonic()
        week.start()
        found = [week.day(churn if number < days - 1 else None, say) for number in range(days)]
        wrong = disagreement(week.api, "fake", week.cloud.console)
        result.check(not wrong, f"cloud and cluster differ at the end: {wrong}")
        nodes = len(week.api.items(NODES))
        result.add("simulated", f"{days} days in {time.monotonic() - began:.0f} s, {week.mover.steps:,} steps")
        result.add("acts", f"{churn.acts:,}; {nodes} nodes at the end")
        judge(result, found, week.life)
    return result


def judge(result: Result, days: Sequence[Day], life: Life) -> None:
    """What was asked for each day, what the last day changed, and whether anything grew. Pure."""
    result.add("writes a day, but for the Lease", ", ".join(f"{day.writes.total():,}" for day in days))
    result.add("Events written a day", ", ".join(f"{_events(day):,}" for day in days))
    result.add("calls to the cloud a day", ", ".join(f"{day.calls:,}" for day in days))
    quiet = days[-1].writes
    result.add("writes on the last day, on which nothing was done", quiet.total())
    result.check(not quiet, f"writes on a day on which nothing was done: {dict(quiet)}")
    held = [day.renewals for day in days]
    result.add("renewals of the Lease a day", ", ".join(f"{count:,}" for count in held))
    result.check(min(held) > 0.9 * DAY / 30, f"the Lease was not renewed all the time: {held}")
    result.check_growth(life, int(DAY / HOUR), ALLOWED, since=", after the first day")


def _events(day: Day) -> int:
    return sum(count for what, count in day.writes.items() if what.endswith(" events"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it, and put its table on the page; 1 where something grew."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.bench.scale.week", description=__doc__)
    parser.add_argument("--days", type=int, default=7, help="how many, three at least (%(default)s)")
    parser.add_argument("--no-page", action="store_true", help="only print the table")
    given = parser.parse_args(arguments)
    if given.days < 3:
        parser.error("--days: three at least: one that warms up, one with changes, one without")
    say, page = lines_with_time(), None if given.no_page else PAGE
    result = judged(lambda: live(given.days, say), "week", "A simulated week", METHOD, command=COMMAND, page=page)
    return int(bool(result.problems))


if __name__ == "__main__":
    sys.exit(main())
