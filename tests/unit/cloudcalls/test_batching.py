"""Which keys are asked about together: poison found in few calls, no storm when the cloud is
down."""

import math
import random
from collections.abc import Callable, Collection, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudprovider import CallCancelled, NotImplementedByProvider, RetryError, Throttled
from controllers.cloudcalls.answers import CallFailed, CallsClosed
from controllers.cloudcalls.nodes import Batch, Batcher, concerns_all


class Cloud:
    """A cloud whose batches fail whenever they hold a poison key; asks until no key is left
    open."""

    def __init__(self, batcher: Batcher, fails: Callable[[Sequence[str]], bool]) -> None:
        self.batcher = batcher
        self.fails = fails
        self.calls: list[tuple[str, ...]] = []

    def fetch(self, names: Sequence[str], max_batch: int) -> tuple[set[str], set[str]]:
        """(answered, failed) names."""
        pending = set(names)
        good: set[str] = set()
        first = self.batcher.form(names, max_batch)
        waiting: list[Batch] = list(first)
        while waiting:
            group = waiting.pop(0)
            self.calls.append(group.names)
            if not self.fails(group.names):
                self.batcher.answered(group)
                good |= set(group.names) & pending
                pending -= set(group.names)
                continue
            smaller = self.batcher.failed(group, max_batch)
            pending -= set(group.names) - {n for part in smaller for n in part.names}
            waiting += smaller
        self.batcher.finished(first)
        assert not pending
        return good, set(names) - good


def names(count: int) -> list[str]:
    return [f"n{i}" for i in range(count)]


def poisoned(keys: Collection[str]) -> Callable[[Sequence[str]], bool]:
    return lambda group: any(name in keys for name in group)


@given(st.data(), st.integers(1, 120))
def test_any_poison_is_isolated_and_every_good_key_answered(data: st.DataObject, count: int) -> None:
    everyone = names(count)
    poison = data.draw(st.sets(st.sampled_from(everyone)))
    cloud = Cloud(Batcher(), poisoned(poison))
    good, bad = cloud.fetch(everyone, 120)
    assert bad == poison
    assert good == set(everyone) - poison
    assert len(cloud.calls) <= max(1, 2 * count - 1)
    assert len(cloud.calls) <= 1 + 4 * len(poison) * math.ceil(math.log(max(count, 2), 4))


@given(st.data(), st.integers(1, 60), st.integers(1, 15))
def test_the_same_over_many_batches(data: st.DataObject, count: int, max_batch: int) -> None:
    everyone = names(count)
    levels = max(1, math.ceil(math.log(max_batch, 4)))
    poison = data.draw(st.sets(st.sampled_from(everyone), max_size=max_batch // levels))
    cloud = Cloud(Batcher(), poisoned(poison))
    assert cloud.fetch(everyone, max_batch) == (set(everyone) - poison, poison)
    assert all(len(call) <= max_batch for call in cloud.calls)


def test_a_suspect_is_asked_alone_next_time_and_last() -> None:
    batcher = Batcher()
    cloud = Cloud(batcher, poisoned({"n3"}))
    cloud.fetch(names(100), 100)
    assert batcher.suspects() == ("n3",)
    cloud.calls.clear()
    _, bad = cloud.fetch(names(100), 100)
    assert cloud.calls == [tuple(n for n in names(100) if n != "n3"), ("n3",)]
    assert bad == {"n3"}
    assert batcher.suspects() == ("n3",)


def test_a_suspect_that_is_well_again_rejoins_the_others() -> None:
    batcher = Batcher()
    Cloud(batcher, poisoned({"n3"})).fetch(names(10), 10)
    cured = Cloud(batcher, poisoned(()))
    cured.fetch(names(10), 10)
    assert batcher.suspects() == ()
    cured.calls.clear()
    cured.fetch(names(10), 10)
    assert len(cured.calls) == 1


def test_nobody_is_suspect_when_most_fail_or_when_a_lone_node_fails() -> None:
    batcher = Batcher()
    Cloud(batcher, poisoned(names(12))).fetch(names(20), 20)
    assert batcher.suspects() == ()
    Cloud(batcher, lambda group: True).fetch(["alone"], 20)
    assert batcher.suspects() == ()


def test_suspects_are_bounded() -> None:
    batcher = Batcher()
    for i in range(400):
        mine = [f"a{i}", f"b{i}", f"c{i}"]
        Cloud(batcher, poisoned({f"a{i}"})).fetch(mine, 3)
    assert len(batcher.suspects()) == 256
    assert batcher.suspects()[-1] == "a399"


def test_a_cloud_that_is_down_is_not_asked_a_hundredfold() -> None:
    cloud = Cloud(Batcher(), lambda group: True)
    good, _ = cloud.fetch(names(5000), 100)
    assert not good
    first = len(cloud.calls)
    assert first == 50 + 4 * 100
    cloud.calls.clear()
    cloud.fetch(names(5000), 100)
    assert len(cloud.calls) == 100, "each batch, and one probe for it"


def test_after_an_outage_poison_is_found_again() -> None:
    random.seed(1)
    batcher = Batcher()
    Cloud(batcher, lambda group: True).fetch(names(1000), 100)
    cloud = Cloud(batcher, poisoned({"n5", "n105"}))
    bad: set[str] = set()
    for _ in range(5):  # a batch in which only the probe succeeds has to come again, as its keys are retried
        _, bad = cloud.fetch(names(200), 100)
    assert bad == {"n5", "n105"}


def test_even_if_every_batch_holds_poison_after_an_outage() -> None:
    random.seed(1)
    batcher = Batcher()
    Cloud(batcher, lambda group: True).fetch(names(1000), 10)
    poison = {f"n{i}" for i in range(0, 100, 10)}
    answered: set[str] = set()
    bad: set[str] = set()
    for _ in range(20):
        good, bad = Cloud(batcher, poisoned(poison)).fetch(names(100), 10)
        answered |= good
    assert answered == set(names(100)) - poison
    assert bad == poison


def test_the_parts_of_a_batch_are_nearly_equal() -> None:
    batcher = Batcher()
    (batch,) = batcher.form(names(10), 10)
    assert [len(part.names) for part in batcher.failed(batch, 10)] == [3, 3, 2, 2]
    (alone,) = batcher.form(["x"], 10)
    assert batcher.failed(alone, 10) == []


@pytest.mark.parametrize(
    "error", [Throttled(), RetryError("x", 1), NotImplementedByProvider(), CallCancelled(), CallsClosed()]
)
def test_some_errors_say_nothing_about_keys(error: Exception) -> None:
    assert concerns_all(error)
    assert not concerns_all(CallFailed())
