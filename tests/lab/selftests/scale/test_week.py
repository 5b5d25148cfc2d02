"""The verdict on a simulated week is seen to fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.lab.bench.scale.week import DAY, HOUR, Day, judge
from tests.lab.cluster.trials.result import Result
from tests.support.sampling import Life
from tests.support.usage import Usage

RENEWED = int(DAY / 30)


def life(memory: Callable[[int], float] = lambda hour: 80.0) -> Life:
    hours = range(3 * 24)
    used = [Usage(threads=20, files=30, memory=memory(hour)) for hour in hours]
    return Life([hour * HOUR for hour in hours], used, [{"series of metrics": 900.0}] * len(used))


def day(**requests: int) -> Day:
    return Day(Counter({"update leases": RENEWED, **{what.replace("_", " "): n for what, n in requests.items()}}), 9)


def test_a_quiet_end_and_flat_values_pass() -> None:
    result = Result()
    judge(result, [day(patch_nodes=7, create_events=3), day(), day(create_selfsubjectaccessreviews=5)], life())
    assert not result.problems
    assert ("writes a day, but for the Lease", "10, 0, 0") in result.figures
    assert ("Events written a day", "3, 0, 0") in result.figures


@pytest.mark.parametrize(
    ("last", "lived", "said"),
    [
        (day(patch_nodes=1), life(), "writes on a day on which nothing was done: {'patch nodes': 1}"),
        (Day(Counter({"update leases": 100})), life(), "the Lease was not renewed all the time"),
        (day(), life(memory=lambda hour: 80 + hour / 2), "memory, MB grew by +23"),
    ],
)
def test_what_must_not_be_is_a_problem(last: Day, lived: Life, said: str) -> None:
    result = Result()
    judge(result, [day(), day(), last], lived)
    (problem,) = result.problems
    assert said in problem
