"""The workqueue_* families: client-go's names, counted where client-go counts, computed when
scraped."""

import gc

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cloudprovider.internal.backoff import Backoff
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import WorkQueue
from tests.support.clock import FakeClock


def new(clock: FakeClock, metrics: Metrics, name: str = "Nodes", interval: float = 0.0) -> WorkQueue[str]:
    return WorkQueue(name, clock=clock, metrics=metrics, backoff=Backoff(1.0, 60.0, 0.0), min_interval=interval)


def test_the_families_are_those_of_client_go(clock: FakeClock, metrics: Metrics) -> None:
    queue = new(clock, metrics)
    families = {f.name: f for f in text_string_to_metric_families(metrics.text().decode())}
    assert {name: family.type for name, family in families.items()} == {
        "workqueue_adds": "counter",
        "workqueue_depth": "gauge",
        "workqueue_longest_running_processor_seconds": "gauge",
        "workqueue_queue_duration_seconds": "histogram",
        "workqueue_retries": "counter",
        "workqueue_unfinished_work_seconds": "gauge",
        "workqueue_work_duration_seconds": "histogram",
    }
    samples = {s.name for f in families.values() for s in f.samples}
    assert {"workqueue_adds_total", "workqueue_retries_total"} <= samples
    assert all(s.labels["name"] == "Nodes" for f in families.values() for s in f.samples)
    bounds = [s.labels["le"] for s in families["workqueue_work_duration_seconds"].samples if s.name.endswith("_bucket")]
    assert [float(bound) for bound in bounds] == [
        1e-08, 1e-07, 1e-06, 9.999999999999999e-06, 9.999999999999999e-05,
        0.001, 0.01, 0.1, 1.0, 10.0, float("inf"),
    ]  # fmt: skip
    assert not queue.shutting_down


def test_counts_and_durations(clock: FakeClock, metrics: Metrics) -> None:
    queue = new(clock, metrics)

    def value(name: str, **labels: str) -> float | None:
        return metrics.value(f"workqueue_{name}", name="Nodes", **labels)

    for key in ("a", "b", "a"):
        queue.add(key)
    assert value("adds_total") == 2
    assert value("depth") == 2
    clock.advance(0.05)
    queue.get(0)
    queue.add("a")
    assert value("adds_total") == 3
    assert value("depth") == 2, "b, and a once more"
    assert value("queue_duration_seconds_count") == 1
    assert value("queue_duration_seconds_sum") == pytest.approx(0.05)
    assert value("queue_duration_seconds_bucket", le="0.01") == 0
    assert value("queue_duration_seconds_bucket", le="0.1") == 1

    clock.advance(4)
    queue.get(0)
    clock.advance(1)
    assert value("unfinished_work_seconds") == pytest.approx(5 + 1)
    assert value("longest_running_processor_seconds") == pytest.approx(5)
    queue.done("a")
    queue.done("b")
    assert value("work_duration_seconds_sum") == pytest.approx(6)
    assert value("work_duration_seconds_count") == 2
    assert value("work_duration_seconds_bucket", le="1.0") == 1
    assert value("unfinished_work_seconds") == 0
    assert value("longest_running_processor_seconds") == 0


def test_delayed_keys_count_as_retries_and_when_due_as_added(clock: FakeClock, metrics: Metrics) -> None:
    queue = new(clock, metrics)
    queue.add_after("a", 3.0)
    queue.add_rate_limited("b")
    assert metrics.value("workqueue_retries_total", name="Nodes") == 2
    assert metrics.value("workqueue_depth", name="Nodes") == 0
    clock.advance(3)
    assert metrics.value("workqueue_depth", name="Nodes") == 2, "due keys wait, though nobody called the queue"
    assert metrics.value("workqueue_adds_total", name="Nodes") == 2
    clock.advance(1)
    assert queue.get_many(2, 0) == ["b", "a"]
    waited = metrics.value("workqueue_queue_duration_seconds_sum", name="Nodes")
    assert waited == pytest.approx(1 + 3), "a since 3 s, b since 1 s"


def test_a_parked_key_stays_visible_as_unfinished(clock: FakeClock, metrics: Metrics) -> None:
    queue = new(clock, metrics)
    queue.add("a")
    queue.get(0)
    queue.park("a")
    clock.advance(9)
    assert metrics.value("workqueue_longest_running_processor_seconds", name="Nodes") == 9


def test_a_key_under_its_interval_counts_in_the_depth(clock: FakeClock, metrics: Metrics) -> None:
    queue = new(clock, metrics, interval=10.0)
    queue.add("a")
    queue.get(0)
    queue.done("a")
    queue.add("a")
    assert metrics.value("workqueue_depth", name="Nodes") == 1
    assert len(queue) == 0
    queue.shut_down(drain=False)
    assert metrics.value("workqueue_depth", name="Nodes") == 0


def test_queues_share_the_families_and_counters_outlive_their_queue(clock: FakeClock, metrics: Metrics) -> None:
    first, second, other = new(clock, metrics), new(clock, metrics), new(clock, metrics, "service")
    for key in ("a", "b"):
        first.add(key)
    second.add("a")
    other.add("a")
    assert metrics.value("workqueue_adds_total", name="Nodes") == 3
    assert metrics.value("workqueue_depth", name="Nodes") == 3
    assert metrics.value("workqueue_adds_total", name="service") == 1
    first.get(0)
    clock.advance(2)
    second.get(0)
    clock.advance(3)
    assert metrics.value("workqueue_longest_running_processor_seconds", name="Nodes") == 5
    assert metrics.value("workqueue_unfinished_work_seconds", name="Nodes") == 5 + 3
    second.done("a")
    second.add("a")
    del first
    gc.collect()
    assert metrics.value("workqueue_adds_total", name="Nodes") == 4
    assert metrics.value("workqueue_depth", name="Nodes") == 1
