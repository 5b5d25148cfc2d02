"""The work queue against a plain model of it, over sequences of calls that hypothesis makes up.

Every call holds the queue's one lock from begin to end, so any interleaving of threads is some
sequence of calls. The model is slow and obvious; it says after every step what may be handed out,
and at the end that no key got lost.
"""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cloudprovider.internal.backoff import Backoff
from controllers.runtime.fairqueue import FAIR_SHARE
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import ShutDown, WorkQueue
from tests.support.clock import FakeClock

KEYS = st.sampled_from("abcdef")
PRIORITIES = st.integers(-1, 1)
DELAYS = st.sampled_from([0.0, 1.0, 2.0, 3.0, 5.0, 8.0])


@dataclass
class Key:
    """The model of one key."""

    priority: int | None = None  # of the run it needs; None: needs none
    added: float = 0.0
    run_priority: int | None = None  # of its run; None: not in work
    since: float = 0.0
    parked: bool = False
    due: tuple[float, int] | None = None  # time, and order of setting
    due_priority: int = 0
    failures: int = 0
    free_at: float = 0.0
    cooling: bool = False
    ended: int = 0  # which run of all ended this key's last one


@dataclass
class Model:
    interval: float
    now: float
    keys: dict[str, Key] = field(default_factory=lambda: {key: Key() for key in "abcdef"})
    ready: list[str] = field(default_factory=list)
    past_lower: int = 0
    order: int = 0
    closed: bool = False
    draining: bool = True
    adds: int = 0
    retries: int = 0

    def mark(self, name: str, priority: int, since: float) -> None:
        key = self.keys[name]
        if key.priority is None:
            key.priority, key.added = priority, since
            self.adds += 1
            if key.run_priority is None and key.free_at <= self.now:
                self.ready.append(name)
        elif priority > key.priority:
            key.priority = priority
            if name in self.ready:
                self.ready.remove(name)
                self.ready.append(name)

    def add_after(self, name: str, delay: float, priority: int | None) -> None:
        key = self.keys[name]
        self.retries += 1
        if priority is None:
            priority = 0 if key.run_priority is None else key.run_priority
        if delay <= 0:
            self.mark(name, priority, self.now)
            return
        key.due_priority = priority if key.due is None else max(priority, key.due_priority)
        if key.due is None or self.now + delay < key.due[0]:
            self.order += 1
            key.due = (self.now + delay, self.order)

    def advance(self, seconds: float) -> None:
        """Let time pass from one end of a delay or interval to the next."""
        end = self.now + seconds
        while not self.closed:
            events = [(key.due[0], 0, key.due[1], name) for name, key in self.keys.items() if key.due]
            events += [(key.free_at, 1, key.ended, name) for name, key in self.keys.items() if key.cooling]
            events = [event for event in events if event[0] <= end]
            if not events:
                break
            self.now, interval, _, name = min(events)
            key = self.keys[name]
            if interval:
                key.cooling = False
                if key.priority is not None and key.run_priority is None and name not in self.ready:
                    self.ready.append(name)
            else:
                key.due = None
                self.mark(name, key.due_priority, self.now)
        self.now = end

    def take(self) -> str:
        def first(priority: int) -> str:
            return next(name for name in self.ready if self.keys[name].priority == priority)

        levels = sorted({self.keys[name].priority or 0 for name in self.ready})
        name = first(levels[-1])
        if len(levels) > 1:
            self.past_lower += 1
            if self.past_lower == FAIR_SHARE:
                self.past_lower = 0
                name = min(map(first, levels), key=lambda n: self.keys[n].added)
        key = self.keys[name]
        self.ready.remove(name)
        key.run_priority, key.priority, key.since = key.priority, None, self.now
        return name

    def done(self, name: str) -> None:
        key = self.keys[name]
        if self.closed and key.parked:
            key.priority = None  # the end does not wait for it
        key.run_priority, key.parked = None, False
        if not self.closed:
            key.free_at = self.now + self.interval
            self.order += 1
            key.ended, key.cooling = self.order, self.interval > 0
        if key.priority is not None and (self.closed or not self.interval):
            self.ready.append(name)

    def running(self) -> list[str]:
        return [name for name, key in self.keys.items() if key.run_priority is not None]

    def more_to_come(self) -> bool:
        return not self.closed or any(
            self.keys[n].priority is not None and not self.keys[n].parked for n in self.running()
        )


class QueueMachine(RuleBasedStateMachine):
    @initialize(interval=st.sampled_from([0.0, 2.0]))
    def start(self, interval: float) -> None:
        self.clock = FakeClock()
        self.queue: WorkQueue[str] = WorkQueue(
            "q",
            clock=self.clock,
            metrics=Metrics(),
            backoff=Backoff(1.0, 4.0, 0.5),
            min_interval=interval,
            chance=lambda: 0.0,
        )
        self.model = Model(interval, self.clock.monotonic())

    @rule(key=KEYS, priority=PRIORITIES)
    def add(self, key: str, priority: int) -> None:
        self.queue.add(key, priority)
        if not self.model.closed:
            self.model.mark(key, priority, self.model.now)

    @rule(key=KEYS, delay=DELAYS, priority=st.none() | PRIORITIES)
    def add_after(self, key: str, delay: float, priority: int | None) -> None:
        self.queue.add_after(key, delay, priority)
        if not self.model.closed:
            self.model.add_after(key, delay, priority)

    @rule(key=KEYS)
    def add_rate_limited(self, key: str) -> None:
        delay = self.queue.add_rate_limited(key)
        failures = self.model.keys[key].failures
        assert delay == min(4.0, 2.0**failures)
        if not self.model.closed:
            self.model.keys[key].failures += 1
            self.model.add_after(key, delay, None)

    @rule(key=KEYS)
    def forget(self, key: str) -> None:
        self.queue.forget(key)
        self.model.keys[key].failures = 0

    @rule(seconds=st.sampled_from([0.5, 1.0, 2.0, 7.0]))
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.model.advance(seconds)

    @rule()
    def get(self) -> None:
        if self.model.ready:
            assert self.queue.get(0) == self.model.take()
        elif self.model.more_to_come():
            assert self.queue.get(0) is None
        else:
            try:
                found = self.queue.get(0)
            except ShutDown:
                return
            raise AssertionError(f"{found!r} instead of ShutDown")

    @rule(batch=st.integers(1, 4))
    def get_many(self, batch: int) -> None:
        if self.model.ready or self.model.more_to_come():
            expected = [self.model.take() for _ in range(min(batch, len(self.model.ready)))]
            assert self.queue.get_many(batch, 0, timeout=0) == expected

    @precondition(lambda self: self.model.running())
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(self.model.running()))
        self.queue.done(key)
        self.model.done(key)

    @precondition(lambda self: self.model.running())
    @rule(data=st.data())
    def park(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(self.model.running()))
        self.queue.park(key)
        self.model.keys[key].parked = True

    @precondition(lambda self: self.steps > 10)  # else most sequences would be over soon
    @rule(drain=st.booleans())
    def shut_down(self, drain: bool) -> None:
        self.queue.shut_down(drain)
        model = self.model
        model.draining = drain and model.draining
        frozen = [
            n
            for n, k in model.keys.items()
            if k.priority is not None and k.run_priority is None and n not in model.ready
        ]
        model.closed = True
        for key in model.keys.values():
            key.due, key.free_at = None, 0.0
            if not model.draining:
                key.priority = None
        # Which of the keys set free by the shutdown comes first is nobody's business: take the
        # queue's order over.
        model.ready = [*model.ready, *sorted(frozen, key=list(self.queue._keys.items).index)] if model.draining else []

    @invariant()
    def count(self) -> None:
        self.steps = getattr(self, "steps", 0) + 1

    # A rule and no invariant: to look at the queue makes it catch up with the time, and it must be
    # right without.
    @rule()
    def look(self) -> None:
        model = self.model
        assert len(self.queue) == len(model.ready)
        assert {key: self.queue.num_requeues(key) for key in "abcdef"} == {n: k.failures for n, k in model.keys.items()}
        busy = [model.now - model.keys[n].since for n in model.running() if not model.keys[n].parked]
        assert self.queue.oldest_running().seconds == max(busy, default=0.0)
        assert sorted(self.queue.parked()) == [n for n in model.running() if model.keys[n].parked]
        stats, gauges = self.queue.measure()
        assert (stats.adds, stats.retries) == (model.adds, model.retries)
        assert gauges.depth == sum(key.priority is not None for key in model.keys.values())
        assert self.queue.wait_drained(0) == (not model.ready and not busy)

    def teardown(self) -> None:
        """Whatever happened: every key that had to run does, and then nothing of any key is
        left."""
        if not hasattr(self, "queue"):
            return
        model = self.model
        wanted = {n for n, k in model.keys.items() if k.priority is not None or k.due is not None}
        owed = {n for n in wanted if not (model.closed and model.keys[n].parked)}
        for key in model.running():
            self.queue.done(key)
        seen = set()
        for _ in range(10):
            self.clock.advance(10)
            try:
                while keys := self.queue.get_many(1, 0, timeout=0):
                    seen.update(keys)
                    self.queue.done(keys[0])
            except ShutDown:
                break
        for name in model.keys:
            self.queue.forget(name)
        self.clock.advance(10)
        assert seen == owed
        assert len(self.queue) == 0
        if not model.closed:
            assert not self.queue._keys.items


TestQueueAgainstModel = QueueMachine.TestCase
TestQueueAgainstModel.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
