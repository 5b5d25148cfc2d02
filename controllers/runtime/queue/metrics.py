"""Stage 3, its numbers: the ``workqueue_*`` families of client-go, computed when scraped.

Names, documentation and bounds follow component-base ``metrics/prometheus/workqueue``."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.utils import floatToGoString

from controllers.runtime.metrics import Metrics
from controllers.runtime.queue.keys import BOUNDS, Durations, QueueGauges, QueueStats, Running, Unfinished

_LE = [*map(floatToGoString, BOUNDS), "+Inf"]


class MeasuredQueue(Protocol):
    """The side of a queue that the collector sees; `workqueue.py` imports this module."""

    name: str
    noun: str
    controller: str

    def measure(self) -> tuple[QueueStats, QueueGauges]: ...

    def unfinished(self) -> list[Unfinished]: ...

    def oldest_running(self) -> Running: ...


class WorkQueueCollector:
    """All queues of one Metrics. Queues of one name (a controller built twice) add up."""

    def __init__(self) -> None:
        self._queues: list[tuple[str, QueueStats, weakref.ref[MeasuredQueue]]] = []

    @classmethod
    def of(cls, metrics: Metrics) -> WorkQueueCollector:
        return metrics.collector("workqueue", cls)

    def watch(self, queue: MeasuredQueue, stats: QueueStats) -> None:
        """Show this queue from now on. It is not kept alive by that."""
        self._queues.append((queue.name, stats, weakref.ref(queue)))  # list.append needs no lock

    def queues(self) -> list[MeasuredQueue]:
        """The queues that there are."""
        return [queue for _, _, reference in list(self._queues) if (queue := reference()) is not None]

    def _rows(self) -> Iterator[tuple[str, QueueStats, QueueGauges]]:
        rows: dict[str, tuple[QueueStats, QueueGauges]] = {}
        for name, stats, reference in list(self._queues):
            queue = reference()
            # A queue that is gone keeps what it counted: a counter that falls looks like a restart.
            row = queue.measure() if queue is not None else (stats, QueueGauges(0, 0.0, 0.0))
            # After a change of leadership in one process the controller is built again, with the
            # same names.
            if name in rows:
                row = (rows[name][0].merged(row[0]), rows[name][1].merged(row[1]))
            rows[name] = row
        for name, row in rows.items():
            yield name, *row

    def collect(self) -> Iterable[Metric]:
        labels = ["name"]
        adds = CounterMetricFamily("workqueue_adds", "Total number of adds handled by workqueue", labels=labels)
        depth = GaugeMetricFamily("workqueue_depth", "Current depth of workqueue", labels=labels)
        longest = GaugeMetricFamily(
            "workqueue_longest_running_processor_seconds",
            "How many seconds has the longest running processor for workqueue been running.",
            labels=labels,
        )
        queued = HistogramMetricFamily(
            "workqueue_queue_duration_seconds",
            "How long in seconds an item stays in workqueue before being requested.",
            labels=labels,
        )
        retries = CounterMetricFamily(
            "workqueue_retries", "Total number of retries handled by workqueue", labels=labels
        )
        unfinished = GaugeMetricFamily(
            "workqueue_unfinished_work_seconds",
            "Seconds of work in progress that work_duration has not seen yet. Large values mean stuck threads; their "
            "number is the rate at which this grows.",
            labels=labels,
        )
        worked = HistogramMetricFamily(
            "workqueue_work_duration_seconds",
            "How long in seconds processing an item from workqueue takes.",
            labels=labels,
        )
        for name, stats, gauges in self._rows():
            adds.add_metric([name], stats.adds)
            depth.add_metric([name], gauges.depth)
            longest.add_metric([name], gauges.longest)
            queued.add_metric([name], _buckets(stats.queued), stats.queued.total)
            retries.add_metric([name], stats.retries)
            unfinished.add_metric([name], gauges.unfinished)
            worked.add_metric([name], _buckets(stats.worked), stats.worked.total)
        return [adds, depth, longest, queued, retries, unfinished, worked]


def _buckets(durations: Durations) -> list[tuple[str, float]]:
    """(upper bound, observations up to it) pairs, as the text format wants them."""
    seen, pairs = 0, []
    for bound, count in zip(_LE, durations.counts, strict=True):
        seen += count
        pairs.append((bound, float(seen)))
    return pairs
