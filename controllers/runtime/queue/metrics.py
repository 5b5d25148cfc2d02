"""Stage 3, its numbers: the ``workqueue_*`` families of client-go, computed when scraped.

A queue counts in plain integers under its own lock (:class:`QueueStats`), which costs a tenth of
what the metrics library's locked children would. Names, documentation and bounds follow
component-base ``metrics/prometheus/workqueue``."""

import weakref
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.utils import floatToGoString

from controllers.runtime.metrics import Metrics, exponential_buckets
from controllers.runtime.queue.lanes import Running, Unfinished

BOUNDS = exponential_buckets(10e-9, 10, 10)
_LE = [*map(floatToGoString, BOUNDS), "+Inf"]


class Durations:
    """A histogram of seconds without a lock of its own."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * len(_LE)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound, observations up to it) pairs, as the text format wants them."""
        seen, pairs = 0, []
        for bound, count in zip(_LE, self.counts, strict=True):
            seen += count
            pairs.append((bound, float(seen)))
        return pairs

    def merged(self, other: "Durations") -> "Durations":
        both = Durations()
        both.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        both.total = self.total + other.total
        return both


class QueueStats:
    """What a queue counts, always under the queue's lock. It outlives the queue."""

    __slots__ = ("adds", "queued", "retries", "worked")

    def __init__(self) -> None:
        self.adds = 0
        self.retries = 0
        self.queued = Durations()
        self.worked = Durations()

    def copy(self) -> "QueueStats":
        return QueueStats().merged(self)

    def merged(self, other: "QueueStats") -> "QueueStats":
        both = QueueStats()
        both.adds, both.retries = self.adds + other.adds, self.retries + other.retries
        both.queued, both.worked = self.queued.merged(other.queued), self.worked.merged(other.worked)
        return both


class QueueGauges(NamedTuple):
    """What holds at this moment: keys waiting, and the seconds that those in work have run."""

    depth: int
    unfinished: float
    longest: float

    def merged(self, other: "QueueGauges") -> "QueueGauges":
        return QueueGauges(
            self.depth + other.depth, self.unfinished + other.unfinished, max(self.longest, other.longest)
        )


class MeasuredQueue(Protocol):
    """The side of a queue that the collector sees."""

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
    def of(cls, metrics: Metrics) -> "WorkQueueCollector":
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
            row = queue.measure() if queue is not None else (stats, QueueGauges(0, 0.0, 0.0))
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
            queued.add_metric([name], stats.queued.buckets(), stats.queued.total)
            retries.add_metric([name], stats.retries)
            unfinished.add_metric([name], gauges.unfinished)
            worked.add_metric([name], stats.worked.buckets(), stats.worked.total)
        return [adds, depth, longest, queued, retries, unfinished, worked]
