"""What becomes of nodes, in simulated seconds: the controller's own parts beside a model of the Go
controller.

`Simulation` is the Bench with kubelets that fall silent and a cloud that may lie; `GoModel` the
same around Go's rule: every monitor period each node that is not Ready is asked about, and deleted
at the first "not found" (MonitorNodes in k8s.io/cloud-provider
controllers/nodelifecycle/node_lifecycle_controller.go). Each scenario runs in both; `table()` is
the one in docs/reports/node-deletions.md.
"""

from __future__ import annotations

import functools
import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import Any, Protocol

from attrs import field, frozen

from cloudprovider import InstanceState
from controllers.runtime.queue import Result
from tests.unit.nodelifecycle.support import PERIOD, Bench, node

ANNOUNCED = {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}
ZONE = "topology.kubernetes.io/zone"
READY_FOR = 45.0  # the Node of a terminated machine stays Ready, 5 s more or less


class Simulation(Bench):
    """Seconds pass one by one: kubelets fall silent, sweeps and timers come, keys are worked on at
    once."""

    def __init__(self, *, max_batch: int = 100, seed: int = 1, **fields: Any) -> None:
        super().__init__(max_batch=max_batch, **fields)
        self.samples._rng = random.Random(seed)
        self.began = self.clock.monotonic()
        self.silent_at: dict[str, float] = {}
        self.fields: dict[str, dict[str, object]] = {}
        self.answers: dict[str, list[float]] = defaultdict(list)
        self.max_batch = max_batch
        self.deleted_at: dict[str, float] = {}
        self._next_sweep = self.began

    def join(self, names: Iterable[str], zone: str = "a", *, ready: bool = True, announced: bool = False) -> None:
        for name in names:
            fields: dict[str, object] = {
                "provider_id": f"fake://{name}",
                "labels": {ZONE: zone},
                "taints": [ANNOUNCED] if announced else [],
            }
            self.fields[name] = fields
            self.put(name, ready="True" if ready else "False", **fields)

    def terminate(self, names: Collection[str], *, spread: float = 10.0) -> None:
        """The instances end; their Nodes stay Ready until 40 s after the last heartbeat, at most
        `spread` s ago."""
        rng = random.Random(2)
        for name in names:
            self.say_gone(name)
            self.silent_at[name] = self.now + 40 - rng.random() * spread

    def say_gone(self, name: str) -> None:
        """From now on the cloud says so, whether it is true or not."""
        self.cloud.says[name] = InstanceState.GONE

    def fall_silent(self, name: str) -> None:
        before = self.lister.objects[name]
        self.lister.objects[name] = after = node(name, ready="Unknown", **self.fields[name])
        self.triggers.on_update(before, after)

    @property
    def now(self) -> float:
        return self.clock.monotonic()

    def run_for(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            for name in [name for name, at in self.silent_at.items() if at <= self.now]:
                del self.silent_at[name]
                if name in self.lister.objects:
                    self.fall_silent(name)
            if self.now >= self._next_sweep:
                self._next_sweep += PERIOD
                self.survey()
            self.work()
            for name in self.server.deleted[len(self.deleted_at) :]:
                self.deleted_at[name] = self.now
            self.clock.advance(1.0)

    def work(self) -> None:
        while len(self.queue):
            keys = self.queue.get_many(self.max_batch, 0.0, timeout=0)
            if not keys:
                return
            self.clock.advance(0.001)
            asked = len(self.cloud.asked)
            results = self.run(*keys)
            for name in self.cloud.asked[asked:]:
                if self.cloud.says.get(name) is InstanceState.GONE:
                    self.answers[name].append(self.now)
            for name, result in results.items():
                self.queue.done(name)
                if isinstance(result, Result) and result.requeue_after is not None:
                    self.queue.add_after(name, result.requeue_after)
                elif isinstance(result, Exception):
                    self.queue.add_rate_limited(name)

    def last_confirmation(self, names: Iterable[str]) -> float:
        return max(
            next(at for at in self.answers[name] if at >= self.answers[name][0] + PERIOD - 0.1) for name in names
        )

    def run_until_gone(self, names: Collection[str], limit: float = 600.0) -> None:
        end = self.now + limit
        while self.now < end and not set(names) <= set(self.server.deleted):
            self.run_for(1.0)


class GoModel:
    """Go's rule, and nothing else."""

    def __init__(self) -> None:
        self.now = 0.0
        self.silent_at: dict[str, float] = {}
        self.deleted_at: dict[str, float] = {}
        self._ready: dict[str, bool] = {}
        self._gone: set[str] = set()

    def join(self, names: Iterable[str], zone: str = "a", *, ready: bool = True) -> None:
        self._ready.update(dict.fromkeys(names, ready))

    def say_gone(self, name: str) -> None:
        self._gone.add(name)

    def run_for(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            for name in [name for name, at in self.silent_at.items() if at <= self.now]:
                del self.silent_at[name]
                self._ready[name] = False
            if self.now % PERIOD == 0:
                for name in [name for name, ready in self._ready.items() if not ready and name in self._gone]:
                    del self._ready[name]
                    self.deleted_at[name] = self.now
            self.now += 1.0


class World(Protocol):
    """What a scenario does with either of them."""

    silent_at: dict[str, float]

    @property
    def deleted_at(self) -> dict[str, float]: ...
    @property
    def now(self) -> float: ...
    def join(self, names: Iterable[str], zone: str = "a", *, ready: bool = True) -> None: ...
    def say_gone(self, name: str) -> None: ...
    def run_for(self, seconds: float) -> None: ...


@frozen
class Story:
    """A world, and what is true of its machines."""

    world: World
    rng: random.Random = field(factory=lambda: random.Random(7))
    unready_at: dict[str, float] = field(factory=dict)  # machines that have ended: when their Nodes are not Ready

    def end(self, *names: str) -> None:
        """These machines end: the cloud says so at once, and their Nodes 40 to 50 s later."""
        for name in names:
            self.world.say_gone(name)
            self.unready_at[name] = self.world.silent_at[name] = self.world.now + READY_FOR + self.rng.randrange(-5, 6)

    def lie(self, names: Collection[str], silent: int) -> None:
        """The cloud calls these gone although they run; the kubelets of the first ones die 10 to 20
        s later."""
        for number, name in enumerate(names):
            self.world.say_gone(name)
            if number < silent:
                self.world.silent_at[name] = self.world.now + self.rng.randrange(10, 21)


@frozen
class Outcome:
    """Nodes, and seconds from NotReady to deletion."""

    ended: int
    deleted: int
    wrongly: int
    median: float
    longest: float
    sim: Simulation | None


def names(start: int, stop: int, prefix: str = "n") -> list[str]:
    return [f"{prefix}{number}" for number in range(start, stop)]


def rolling(story: Story, *, gap: int, count: int, total: int = 100) -> None:
    story.world.join(names(0, total))
    story.world.run_for(120)
    for number in range(count):
        story.end(f"n{number}")
        story.world.join([f"n{total + number}"])
        story.world.run_for(gap)
    story.world.run_for(120)


def scale_in(story: Story, *, total: int, left: int) -> None:
    story.world.join(names(0, total))
    story.world.run_for(120)
    story.end(*names(left, total))
    story.world.run_for(150)


def spot(story: Story) -> None:
    """Each minute a tenth of the zone is reclaimed at once, and replaced."""
    alive, made = names(0, 100), 100
    story.world.join(alive)
    story.world.run_for(120)
    for _ in range(10):
        reclaimed = story.rng.sample(alive, 10)
        story.end(*reclaimed)
        alive = [name for name in alive if name not in reclaimed] + names(made, made + 10)
        story.world.join(names(made, made + 10))
        made += 10
        story.world.run_for(60)
    story.world.run_for(120)


def lying(story: Story, *, share: float) -> None:
    story.world.join(names(0, 100))
    story.world.run_for(120)
    left_out = story.rng.sample(names(0, 100), int(share * 100))
    story.lie(left_out, silent=max(1, len(left_out) // 2))
    story.world.run_for(600)


def lying_after_a_rollout(story: Story, *, gap: int, count: int) -> None:
    """The cloud begins to lie about as many running machines as were replaced before."""
    rolling(story, gap=gap, count=count)
    left_out = story.rng.sample(names(count, 100 + count), count)
    story.lie(left_out, silent=10)
    story.world.run_for(600)


def wrong_account(story: Story, *, silent: int, known: bool = True) -> None:
    story.world.join(names(0, 100))
    story.world.run_for(120 if known else 0)
    story.lie(names(0, 100), silent)
    story.world.run_for(900)


def beside_a_liar(story: Story) -> None:
    """Zone a is lied about and has three nodes that are not Ready; zone b scales in."""
    story.world.join(names(0, 50, "a"), "a")
    story.world.join(names(0, 50, "b"), "b")
    story.world.run_for(120)
    story.lie(names(0, 25, "a"), silent=3)
    story.end(*names(0, 40, "b"))
    story.world.run_for(300)


def single(story: Story) -> None:
    story.world.join(["n0"])
    story.world.run_for(700)
    story.end("n0")
    story.world.run_for(120)


def none_ready(story: Story) -> None:
    """All of a zone's 40 nodes end at once, of 60 in the cluster."""
    story.world.join(names(0, 40, "a"), "a")
    story.world.join(names(0, 20, "b"), "b")
    story.world.run_for(700)
    story.end(*names(0, 40, "a"))
    story.world.run_for(300)


def stolen(story: Story) -> None:
    """A machine ends, and whoever has its kubelet's credential keeps its Node Ready; three other
    machines end."""
    story.world.join(names(0, 30))
    story.world.run_for(120)
    story.world.say_gone("n0")
    for number in range(1, 4):
        story.end(f"n{number}")
        story.world.run_for(120)


SCENARIOS: dict[str, Callable[[Story], None]] = {
    "rolling replacement, a machine every 120 s": functools.partial(rolling, gap=120, count=15),
    "the same, every 30 s": functools.partial(rolling, gap=30, count=40),
    "the same, every 20 s": functools.partial(rolling, gap=20, count=60),
    "the same, every 10 s": functools.partial(rolling, gap=10, count=99),
    "the same in a zone of 3 nodes, every 30 s": functools.partial(rolling, gap=30, count=3, total=3),
    "spot: a tenth of the zone reclaimed each minute": spot,
    "scale-in from 1,000 to 100 at once": functools.partial(scale_in, total=1000, left=100),
    "scale-in from 10 to 2 at once": functools.partial(scale_in, total=10, left=2),
    "a single node": single,
    "all 40 nodes of a zone, of 60 in all": none_ready,
    "a stolen kubelet credential keeps one Node Ready": stolen,
    "lie about 50 of 100; 25 turn NotReady": functools.partial(lying, share=0.5),
    "lie about 20 of 100; 10 turn NotReady": functools.partial(lying, share=0.2),
    "lie about 5 of 100; 2 turn NotReady": functools.partial(lying, share=0.05),
    "wrong about 2 of 100; 1 of these turns NotReady": functools.partial(lying, share=0.02),
    "20 machines replaced in 10 minutes, then a lie about 20; 10 turn NotReady": functools.partial(
        lying_after_a_rollout, gap=30, count=20
    ),
    "50 replaced, one in 10 s, then a lie about 50; 10 turn NotReady": functools.partial(
        lying_after_a_rollout, gap=10, count=50
    ),
    "wrong account, all Ready": functools.partial(wrong_account, silent=0),
    "wrong account, 10 turn NotReady": functools.partial(wrong_account, silent=10),
    "wrong account from the start, 10 turn NotReady": functools.partial(wrong_account, silent=10, known=False),
    "lie about zone a, 3 NotReady; zone b scales in by 40": beside_a_liar,
}


@functools.cache
def outcome(name: str, *, go: bool = False, max_batch: int = 100, seed: int = 7) -> Outcome:
    """One scenario played to its end."""
    world = GoModel() if go else Simulation(max_batch=max_batch, seed=seed)
    story = Story(world, random.Random(seed))
    SCENARIOS[name](story)
    delays = [world.deleted_at[name] - at for name, at in story.unready_at.items() if name in world.deleted_at]
    return Outcome(
        len(story.unready_at),
        len(delays),
        len(world.deleted_at.keys() - story.unready_at.keys()),
        statistics.median(delays) if delays else 0.0,
        max(delays, default=0.0),
        world if isinstance(world, Simulation) else None,
    )


CHANCE = {name: 10 for name in SCENARIOS if "lie about 20" in name or "lie about 5 " in name}
"""Runs of the scenarios where chance, who is asked about, decides what becomes of it."""


def wrongly(name: str) -> list[int]:
    """How many running machines lost their Nodes, in each run of a scenario."""
    return [outcome(name, seed=7 + run).wrongly for run in range(CHANCE.get(name, 1))]


def table() -> str:
    """Markdown, ending in a line feed."""
    lines = [
        "| in a zone of 100 nodes, if nothing else is said | machines gone | deleted: Go | here "
        "| median and longest wait: Go | here | running machines deleted: Go | here |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in SCENARIOS:
        go, here = outcome(name, go=True), outcome(name)
        waits = [f"{one.median:.0f} s, {one.longest:.0f} s" if one.deleted else "" for one in (go, here)]
        cells = [name, here.ended, go.deleted, here.deleted, *waits, go.wrongly, _runs(wrongly(name))]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def _runs(found: list[int]) -> str:
    if len(set(found)) == 1:
        return str(found[0])
    return f"0 in {found.count(0)} of {len(found)} runs, at most {max(found)}"
