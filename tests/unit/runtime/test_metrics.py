"""One registry per Metrics, families shared by name, and the text that a scrape sees."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from controllers.runtime.metrics import Metrics, exponential_buckets


def test_the_same_name_is_the_same_family() -> None:
    metrics = Metrics()
    first = metrics.counter("calls_total", "Calls.", ["name"])
    assert metrics.counter("calls_total", "Another text.", ("name",)) is first
    first.labels("a").inc()
    assert metrics.value("calls_total", name="a") == 1
    assert metrics.gauge("depth", "Depth.") is metrics.gauge("depth", "Depth.")
    assert metrics.histogram("h", "H.", buckets=[1, 2]) is metrics.histogram("h", "H.", buckets=(1, 2))


def test_another_shape_under_a_known_name_is_refused() -> None:
    metrics = Metrics()
    metrics.counter("calls_total", "Calls.", ["name"])
    metrics.histogram("seconds", "S.", ["name"], buckets=[1, 2])
    with pytest.raises(ValueError, match=r"calls_total.*'name'.*'code'"):
        metrics.counter("calls_total", "Calls.", ["code"])
    with pytest.raises(ValueError, match=r"counter.*gauge"):
        metrics.gauge("calls_total", "Calls.", ["name"])
    with pytest.raises(ValueError, match="seconds"):
        metrics.histogram("seconds", "S.", ["name"], buckets=[1, 3])


def test_two_metrics_never_mix() -> None:
    one, other = Metrics(), Metrics()
    one.counter("calls_total", "Calls.").inc()
    assert other.value("calls_total") is None


def test_text_has_no_created_series_and_parses() -> None:
    metrics = Metrics()
    metrics.counter("calls_total", "Calls.", ["name"]).labels("a").inc()
    metrics.histogram("seconds", "S.", buckets=exponential_buckets(1, 4, 6)).observe(2)
    metrics.gauge("objects_created", "A gauge of ours may carry this name.").set(1)
    text = metrics.text().decode()
    assert "calls_created" not in text
    assert "seconds_created" not in text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert set(families) == {"calls", "seconds", "objects_created"}
    bounds = [s.labels["le"] for s in families["seconds"].samples if s.name == "seconds_bucket"]
    assert bounds == ["1.0", "4.0", "16.0", "64.0", "256.0", "1024.0", "+Inf"]


def test_a_collector_is_made_once_per_key() -> None:
    class Late:
        def collect(self) -> Iterable[Metric]:
            yield GaugeMetricFamily("late", "Computed at the scrape.", value=7)

    metrics = Metrics()
    first = metrics.collector("late", Late)
    assert metrics.collector("late", Late) is first
    assert metrics.value("late") == 7
    with pytest.raises(ValueError, match="late"):
        metrics.collector("another key, same family", Late)


def test_many_threads_get_one_family() -> None:
    metrics = Metrics()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: metrics.counter("calls_total", "C.", ["n"]).labels(str(i % 4)).inc(), range(400)))
    assert [metrics.value("calls_total", n=str(n)) for n in range(4)] == [100] * 4


@pytest.mark.parametrize(("start", "factor", "count"), [(0, 2, 3), (1, 1, 3), (1, 2, 0)])
def test_buckets_that_make_no_sense(start: float, factor: float, count: int) -> None:
    with pytest.raises(ValueError, match="buckets need"):
        exponential_buckets(start, factor, count)


def test_bounds_are_gos_floats() -> None:
    # What a Go binary shows for its work queues: ten bounds from 10e-9, rounding errors included.
    assert exponential_buckets(10e-9, 10, 10)[:5] == (1e-08, 1e-07, 1e-06, 9.999999999999999e-06, 9.999999999999999e-05)
    assert len(exponential_buckets(10e-9, 10, 10)) == 10
