"""Metrics for every stage (1-6): each part asks a :class:`Metrics` for families; the server sends
``text()``.

There is no process-wide registry here: the program passes one Metrics to all of its controllers,
and two managers in one process (or two tests) never mix their numbers."""

import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, ClassVar, TypeVar, cast

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from cloudprovider.helpers.objects import uid_of
from controllers.runtime.clock import Clock

FINE_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
"""Seconds that people wait for a node or an address. Go's buckets are too coarse."""

C = TypeVar("C", bound=Collector)


def exponential_buckets(start: float, factor: float, count: int) -> tuple[float, ...]:
    """`count` upper bounds, the first being `start`, each `factor` times the one before (and +Inf).

    Go's ``ExponentialBuckets``, multiplied up one by one as there, so that bounds are the same
    floats and the ``le`` labels of dashboards go on matching."""
    if start <= 0 or factor <= 1 or count < 1:
        raise ValueError(f"buckets need start > 0, factor > 1, count >= 1, got {start=} {factor=} {count=}")
    bounds = [start]
    while len(bounds) < count:
        bounds.append(bounds[-1] * factor)
    return tuple(bounds)


class Metrics:
    """Get-or-create families in one registry.

    Asking again for a name returns the same family, so parts that share a family (two queues, two
    clients) need not know of each other; the documentation of the first wins. Asking for it with
    another kind, other labels or other buckets raises ValueError. All methods may be called from
    many threads.
    """

    CONTENT_TYPE: ClassVar[str] = CONTENT_TYPE_LATEST
    """The media type of what :meth:`text` returns."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self._lock = threading.Lock()
        self._families: dict[str, tuple[tuple[object, ...], Counter | Gauge | Histogram]] = {}
        self._collectors: dict[Hashable, Collector] = {}

    def counter(self, name: str, doc: str, labels: Sequence[str] = ()) -> Counter:
        """The counter `name`; write the name with its ``_total``."""
        labels = tuple(labels)
        family = self._family(name, (Counter, labels), lambda: Counter(name, doc, labels, registry=self.registry))
        return cast(Counter, family)

    def gauge(self, name: str, doc: str, labels: Sequence[str] = ()) -> Gauge:
        """The gauge `name`. For a value computed when scraped, give a child ``set_function``."""
        labels = tuple(labels)
        return cast(
            Gauge,
            self._family(name, (Gauge, labels), lambda: Gauge(name, doc, labels, registry=self.registry)),
        )

    def histogram(
        self,
        name: str,
        doc: str,
        labels: Sequence[str] = (),
        buckets: Sequence[float] = Histogram.DEFAULT_BUCKETS,
    ) -> Histogram:
        """The histogram `name` with these upper bounds, ascending, in the unit of the name."""
        labels, buckets = tuple(labels), tuple(buckets)
        family = self._family(
            name,
            (Histogram, labels, buckets),
            lambda: Histogram(name, doc, labels, buckets=buckets, registry=self.registry),
        )
        return cast(Histogram, family)

    def collector(self, key: Hashable, factory: Callable[[], C]) -> C:
        """The collector registered under `key`, made by `factory` at the first call.

        For families whose values are kept by their owner and read only at a scrape (the work
        queues'). Raises ValueError when its families clash with existing ones."""
        with self._lock:
            found = self._collectors.get(key)
            if found is None:
                found = factory()
                self.registry.register(found)
                self._collectors[key] = found
            return cast(C, found)

    def value(self, sample: str, **labels: str) -> float | None:
        """The value of one sample (``x_total``, ``y_count``, ...), or None without one."""
        return self.registry.get_sample_value(sample, labels)

    def text(self, only: Sequence[str] = ()) -> bytes:
        """Everything in the Prometheus text format, or `only` the samples of these names.

        The client library's ``_created`` series are left out.
        """
        registry = self.registry.restricted_registry(only) if only else self.registry
        return generate_latest(_WithoutCreated(registry))

    def _family(
        self, name: str, shape: tuple[object, ...], make: Callable[[], Counter | Gauge | Histogram]
    ) -> Counter | Gauge | Histogram:
        with self._lock:
            known = self._families.get(name)
            if known is None:
                known = self._families[name] = (shape, make())
            # Two parts that mean different things by one name would add up to nonsense.
            elif known[0] != shape:
                raise ValueError(f"metric {name!r} exists as {_describe(known[0])}, asked for {_describe(shape)}")
            return known[1]


def _describe(shape: tuple[object, ...]) -> str:
    kind, *rest = shape
    return " ".join([getattr(kind, "__name__", str(kind)).lower(), *map(str, rest)])


class _WithoutCreated:
    """A view of a registry that drops the creation-time samples, without the global switch."""

    def __init__(self, registry: Collector) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        for metric in self._registry.collect():
            # Twice as many series for times that nobody asks for.
            if metric.type in ("counter", "histogram", "summary"):
                metric.samples = [s for s in metric.samples if not s.name.endswith("_created")]
            yield metric


def watch_waiting(
    metrics: Metrics,
    count: tuple[str, str],
    oldest: tuple[str, str],
    objects: Callable[[], Iterable[Any]],
    waits: Callable[[Any], bool],
    clock: Clock,
) -> None:
    """Add two gauges, each (name, documentation): of the objects that wait to be served, and for
    how many seconds the first of them has waited.

    Computed when /metrics is read, so that nothing has to be kept up to date between. Histograms
    count what was served; what never is, shows here.
    """
    lock = threading.Lock()
    since: dict[str, float] | None = None  # by UID, of those that waited at the last look
    looked_at = clock.monotonic()

    def look() -> Iterable[float]:
        nonlocal looked_at, since
        with lock:
            now = clock.monotonic()
            if since is None or now - looked_at >= 1.0:  # the two gauges are read at one scrape
                before = since or {}
                # It may begin to wait long after its creation: then it counts from this look.
                since = {
                    uid: before[uid] if uid in before else now - _age(obj, clock, now - looked_at)
                    for obj in objects()
                    if waits(obj) and (uid := uid_of(obj))
                }
                looked_at = now
            return since.values()

    metrics.gauge(*count).set_function(lambda: len(tuple(look())))
    metrics.gauge(*oldest).set_function(lambda: max((clock.monotonic() - began for began in look()), default=0.0))


def _age(obj: Any, clock: Clock, most: float) -> float:
    """Seconds since the object's creation; 0.0 where those are plainly more than `most`."""
    created = obj.metadata.creation_timestamp
    age = clock.time() - created.timestamp() if created is not None else 0.0
    return min(age, most) if 0.0 <= age <= most + 1.0 else 0.0  # the API's times have whole seconds
