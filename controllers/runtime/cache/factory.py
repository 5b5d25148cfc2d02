"""All informers of a program (stages 1 and 2): one for each kind, shared by all who ask, started
and stopped together.

Controllers, and providers by way of their listers, ask here for the informer of a kind."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, Final, cast

from cloudprovider.host import StopSignal
from controllers.runtime.api import RestClient
from controllers.runtime.cache.informer import Informer, InformerHealth
from controllers.runtime.cache.resources import Resource, T
from controllers.runtime.cache.retries import WatchOptions
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.metrics import Metrics

log = logging.getLogger(__name__)

_SYNC_POLL: Final = 0.005  # seconds


class InformerFactory:
    """One informer per kind, shared by all who ask. Thread-safe."""

    def __init__(
        self,
        rest: RestClient,
        *,
        metrics: Metrics,
        clock: Clock = SYSTEM_CLOCK,
        options: WatchOptions | None = None,
    ) -> None:
        self._rest = rest
        self._metrics = metrics
        self._clock = clock
        self._options = options
        self._lock = threading.Lock()
        self._informers: dict[tuple[str, str], Informer[Any]] = {}
        self._unclaimed: set[tuple[str, str]] = set()

    def informer(self, resource: Resource[T]) -> Informer[T]:
        """The informer of that kind, the same at each call. `start` it (again)."""
        with self._lock:
            # Asked for: it is kept, even if it was only warmed up before.
            self._unclaimed.discard((resource.prefix, resource.plural))
            return self._get(resource)

    def warm(self, resource: Resource[T]) -> None:
        """Begin to fill the cache of a kind that is probably asked for later."""
        with self._lock:
            if (resource.prefix, resource.plural) not in self._informers:
                self._unclaimed.add((resource.prefix, resource.plural))
            informer = self._get(resource)
        informer.start()

    def drop_unclaimed(self) -> None:
        """Stop, without waiting, the informers that were warmed and not asked for since."""
        with self._lock:
            # Taken out under the lock: who asks for the kind from now on gets a new informer.
            dropped = [self._informers.pop(key) for key in self._unclaimed]
            self._unclaimed.clear()
        for informer in dropped:
            log.info("%s: not needed, no longer watched", informer.resource.plural)
            informer.request_stop()

    def find(self, prefix: str, plural: str) -> Informer[Any] | None:
        """The informer of the kind that lives there, if anybody has asked for it."""
        with self._lock:
            return self._informers.get((prefix, plural))

    def busy(self) -> bool:
        """Whether a cache is not complete, or a handler has something before it or under way."""
        return any(not informer.has_synced() or informer.busy() for informer in self._all())

    def _get(self, resource: Resource[T]) -> Informer[T]:
        found = self._informers.get((resource.prefix, resource.plural))
        if found is None:
            found = Informer(
                self._rest,
                resource,
                metrics=self._metrics,
                clock=self._clock,
                options=self._options,
            )
            self._informers[resource.prefix, resource.plural] = found
        return cast("Informer[T]", found)

    def start(self) -> None:
        """Start the informers asked for so far; call again after asking for more."""
        for informer in self._all():
            informer.start()

    def has_synced(self) -> bool:
        """Whether every informer asked for holds a complete list."""
        return all(informer.has_synced() for informer in self._all())

    def wait_for_sync(self, stop: StopSignal, timeout: float | None = None) -> bool:
        """Wait for `has_synced`; False when `stop` was set, or `timeout` passed, before that."""
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        while not self.has_synced():
            if stop.wait(_SYNC_POLL) or (deadline is not None and self._clock.monotonic() >= deadline):
                return False
        return True

    def stop(self, timeout: float = 1.0) -> bool:
        """Stop all at once and wait at most `timeout` real seconds; False if a handler is busy."""
        informers = self._all()
        for informer in informers:
            informer.request_stop()
        # All are told before one is waited for, so that the time is that of the slowest and no sum.
        deadline = time.monotonic() + timeout
        ended = [informer.stop(max(0.0, deadline - time.monotonic())) for informer in informers]
        return all(ended)

    def health(self) -> list[InformerHealth]:
        """How each informer does."""
        return [informer.health() for informer in self._all()]

    def _all(self) -> list[Informer[Any]]:
        with self._lock:
            return list(self._informers.values())
