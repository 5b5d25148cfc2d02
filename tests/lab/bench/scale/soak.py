"""`make soak`: two managers on a real API server for hours, and whether anything grows.

`python -m tests.lab.bench.scale.soak --seconds 7200`. Nodes and Services come and go all the time,
and a proxy between managers and API server breaks, refuses and swallows. The leader is ended five
times at the beginning: the two processes that are left then live on, and their second half is
judged.
"""

from __future__ import annotations

import argparse
import itertools
import random
import re
import signal
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from attrs import frozen

from tests.lab.bench.contenders import compile_sources
from tests.lab.bench.report import lines_with_time
from tests.lab.bench.scale.page import PAGE
from tests.lab.cluster.trials.result import Result, judged
from tests.support.failover.fencing import Verdict
from tests.support.failover.stage import Stage, Timing, stage
from tests.support.failover.supervisor import Candidate
from tests.support.repeating import Repeating
from tests.support.sampling import Life, Sampler

COMMAND = "make soak"
METHOD = (
    "Two managers over the real API server, with a fake cloud that they share (20 ms a call) and a proxy between them "
    "and the API server. All the while nodes join and leave with their machines, and Services are made, changed and "
    "deleted. In turn the proxy breaks all connections, lets them lead nowhere, answers writes with 500 for five "
    "seconds, and is away for five; or kube-apiserver stands still for five. In the first quarter the leader is ended "
    "five times, by SIGKILL and SIGTERM. Both processes are sampled every five seconds, and judged from the half on. "
    "A value grows if a straight line through the means of twelve parts rises by more than is allowed, and by more "
    "than its error (95 %). What is remembered of Events may take its memory beside, as it takes more than an hour "
    "until that is full. At the end, nodes, load balancers and routes of the cloud must be the cluster's, and by the "
    "audit log and the cloud's log nobody may have written out of turn."
)
FAIL_OVERS = 5
NODES = 100
MOST_JOINED = 40
FAULT_SECONDS = 5.0
AGREED_WITHIN = 300.0
ALLOWED: Mapping[str, float] = {
    "memory, MB": 3.0,
    "threads": 3.0,
    "open files": 4.0,
    "keys in queues": 20.0,
    "series of metrics": 10.0,
}
"""By how much the line may rise. The number of Services and nodes itself goes up and down."""
EVENT_MB = 0.0009
"""Of each Event, group or budget that is remembered, up to 4,096 of each kind."""
_REMEMBERED = "Events remembered"
_URL = re.compile(r"on (http://127\.0\.0\.1:\d+)")
_SAMPLE = re.compile(r"^(\w+)(?:\{.*\})? (\S+)$", re.M)


@frozen
class _Plan:
    """Seconds, from the beginning."""

    seconds: float
    rate: float
    every: float
    """Between two faults."""
    timing: Timing
    seed: int


def soak(plan: _Plan, say: Callable[[str], None]) -> Result:
    """The whole run. Raises AssertionError where cloud and cluster do not agree in the end."""
    result = Result()
    flags = ("--health-bind-address=127.0.0.1:0", "--route-reconciliation-period=10s")
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder = Path(name)
        with stage(folder, ["ours", "ours"], nodes=NODES, timing=plan.timing, flags=flags, proxied=True) as played:
            began = time.time()

            def running() -> list[int]:
                return [one.process.pid for one in played.supervisor.running()]

            faults = _Faults(played, plan.seed, say)
            churn = played.churn(seed=plan.seed, rate=plan.rate, most=MOST_JOINED)
            with Sampler(running, lambda pid: _asked(_of(played, pid))) as sampler, churn:
                _fail_over(played, began, plan, say)
                with Repeating(faults.next, every=plan.every, name="faults"):
                    time.sleep(max(0.0, began + plan.seconds - time.time()))
                ended = time.time()
            took = played.await_agreement(AGREED_WITHIN)
            verdict = played.verdict(0.1)
            third = (ended - began) / 3
            _judge(result, played, sampler.lives, began + plan.seconds / 2, third / 3)
            _events(result, verdict, began + third, ended - third, ended)
            unasked = len(played.supervisor.candidates()) - 2 - FAIL_OVERS
            result.check(not unasked, f"{unasked} processes ended that nobody ended")
            result.add("duration", f"{(ended - began) / 60:.0f} min")
            result.add("changes of nodes and Services", f"{churn.acts:,} ({plan.rate:g} a second)")
            result.add("fail-overs asked for", FAIL_OVERS)
            result.add("processes that led", len(verdict.holds))
            result.add("faults of the connection", faults.count)
            result.add("cloud and cluster the same after the end", took)
            result.add("writes and changing calls", f"{len(verdict.acts):,}")
            result.check(not verdict.intruders, f"somebody wrote without leading: {verdict}")
            return result


class _Faults:
    def __init__(self, played: Stage, seed: int, say: Callable[[str], None]) -> None:
        assert played.proxy is not None
        self.count = 0
        self._played, self._proxy, self._say = played, played.proxy, say
        kinds = [self._cut, self._swallow, self._refuse, self._away, self._still]
        random.Random(seed).shuffle(kinds)
        self._kinds = itertools.cycle(kinds)

    def next(self) -> None:
        kind = next(self._kinds)
        self.count += 1
        self._say(f"fault {self.count}: {kind.__name__}")
        kind()

    def _cut(self) -> None:
        self._proxy.cut()

    def _swallow(self) -> None:
        self._proxy.swallow()

    def _refuse(self) -> None:
        self._proxy.refuse(r"^(PATCH|POST|PUT) .*/(nodes|services|events)")
        time.sleep(FAULT_SECONDS)
        self._proxy.refuse(None)

    def _away(self) -> None:
        self._proxy.go_away()
        time.sleep(FAULT_SECONDS)
        self._proxy.come_back()

    def _still(self) -> None:
        with self._played.server.paused():
            time.sleep(FAULT_SECONDS)


def _fail_over(played: Stage, began: float, plan: _Plan, say: Callable[[str], None]) -> None:
    """End the leader again and again, evenly over the first quarter."""
    for number in range(FAIL_OVERS):
        leader = played.await_leader(timeout=120.0)
        at = began + plan.seconds / 4 * (number + 1) / FAIL_OVERS
        time.sleep(max(0.0, at - time.time()))
        kind = signal.SIGTERM if number % 2 else signal.SIGKILL
        say(f"fail-over {number + 1}: {kind.name} for {leader.name}")
        leader.signal(kind)
        say(f"{played.await_leader(but=leader, timeout=120.0).name} leads")


def _of(played: Stage, pid: int) -> Candidate:
    (found,) = [one for one in played.supervisor.running() if one.process.pid == pid]
    return found


def _asked(candidate: Candidate) -> dict[str, float]:
    """What its /metrics say. Raises OSError while it starts or ends."""
    with candidate.log_file.open(errors="replace") as log:
        url = next((found[1] for line in log if (found := _URL.search(line))), None)
    if url is None:
        raise OSError(f"{candidate.name} has no endpoint yet")
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        samples = _SAMPLE.findall(answer.read().decode())
    return {
        "keys in queues": sum(float(value) for name, value in samples if name == "workqueue_depth"),
        "series of metrics": len(samples),
        _REMEMBERED: sum(float(value) for name, value in samples if name == "event_recorder_remembered"),
    }


def _judge(result: Result, played: Stage, lives: Mapping[int, Life], after: float, warm_up: float) -> None:
    """Whether anything of the processes that run now grew: from this time on, and when they are
    older than the warm-up."""
    ours = [one for one in played.supervisor.running() if one.process.pid in lives]
    result.check(len(ours) == 2, f"{len(ours)} processes run at the end, not two")
    for one in ours:
        life = lives[one.process.pid]
        since = max(after, one.started + warm_up)
        first = next((number for number, at in enumerate(life.at) if at >= since), len(life.at))
        role = "the leader" if played.leader() is one else "the other one"
        minutes = (life.at[-1] - life.at[first]) / 60 if first < len(life.at) else 0.0
        result.add(f"{role}: sampled for", f"{minutes:.0f} min")
        events = life.values(_REMEMBERED)[first:] or [0.0]
        result.add(f"{role}: {_REMEMBERED}", f"{events[0]:,.0f} to {events[-1]:,.0f}")
        memory = ALLOWED["memory, MB"] + EVENT_MB * max(0.0, events[-1] - events[0])
        result.check_growth(life, first, {**ALLOWED, "memory, MB": memory}, f"{role}: ")


def _events(result: Result, verdict: Verdict, begin: float, middle: float, end: float) -> None:
    """Whether as many Events are written in the last third as in the second."""
    written = [act.began for act in verdict.acts if act.what.partition(" ")[2].startswith("events")]
    second, last = (sum(a <= at < b for at in written) for a, b in ((begin, middle), (middle, end)))
    result.add("Events written in the second and in the last third", f"{second:,} and {last:,}")
    result.check(last <= 1.5 * second + 20, f"Events: {second} written in the second third, {last} in the last")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it, and put its table on the page; 1 where something grew."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.bench.scale.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=7200.0, help="how long (%(default)s)")
    parser.add_argument("--rate", type=float, default=2.0, help="changes of nodes and Services a second (%(default)s)")
    parser.add_argument("--fault-every", type=float, default=60.0, help="seconds between two faults (%(default)s)")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    lease = "duration, renewal deadline and retry period of the Lease, for a busy machine (%(default)s)"
    parser.add_argument("--lease", default="15,10,2", help=lease)
    parser.add_argument("--no-page", action="store_true", help="only print the table")
    given = parser.parse_args(arguments)
    duration, deadline, retry = map(float, given.lease.split(","))
    timing = Timing(int(duration), deadline, retry)
    compile_sources()
    say = lines_with_time()
    say(f"seed {given.seed}")
    plan = _Plan(given.seconds, given.rate, given.fault_every, timing, given.seed)
    method = f"{METHOD} Lease: {given.lease} s."
    page = None if given.no_page else PAGE
    result = judged(lambda: soak(plan, say), "soak", "A soak", method, command=COMMAND, page=page)
    return int(bool(result.problems))


if __name__ == "__main__":
    sys.exit(main())
