"""The rounds: list, delete what is there, list again, until nothing is left or the time is over.

What is still listed after its deletion is deleted again: the cloud's list is the proof, as for a
manager that comes after one that was killed."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final

from attrs import define

from cloudprovider import LoadBalancerKept, NotImplementedByProvider, StopSignal
from cloudprovider.internal.cleaning import one_line
from cloudprovider.threads import NoThreadLeft, ThreadPool
from controllers.cloudcalls import CLOUD_ERRORS, CallsClosed
from controllers.runtime.clock import Clock
from controllers.runtime.queue import retry_after_of, seconds_text
from controllers.teardown.items import Inventory, Item

log = logging.getLogger(__name__)

AT_ONCE: Final = 8
"""Deletions at the same time. The gateway slows them down where the cloud throttles."""
SHORTEST: Final = 1.0
LONGEST: Final = 30.0
"""Seconds between two deletions of the same thing, where the cloud names none."""
LISTS: Final = 3
"""Times that the first list may fail: mostly it is the credentials."""


@define
class Trial:
    """What became of one item."""

    times: int = 0
    said: str = ""
    """What the cloud answered last; "" for success."""
    due: float = 0.0
    over: bool = False
    """Another try does not help."""


class Deletion:
    """Deletes what `find` finds. One thread calls it."""

    def __init__(
        self, find: Callable[[], Inventory], clock: Clock, stop: StopSignal, *, shortest: float = SHORTEST
    ) -> None:
        self._find = find
        self._clock = clock
        self._stop = stop
        self._shortest = shortest
        self.trials: dict[Item, Trial] = {}

    def first(self) -> Inventory:
        """What there is before anything is done. Raises what the last of a few lists raised."""
        for _ in range(LISTS - 1):
            try:
                return self._find()
            except CLOUD_ERRORS as error:
                log.warning("listing what the cluster owns failed, asking again: %s", one_line(str(error)))
                if self._stop.wait(self._delay(error, 1)):
                    raise
        return self._find()

    def run(self, inventory: Inventory, seconds: float) -> Inventory:
        """Delete until nothing is left to be deleted, `seconds` are over, or it is time to stop.
        Returns what is there then. Raises what the last list raised."""
        until = self._clock.monotonic() + seconds
        while True:
            open_ = [one for one in inventory.to_delete if not self._trial(one).over]
            stage = min((one.stage for one in open_), default=0)
            # Nothing of a later stage while what uses it may be there.
            open_ = [one for one in open_ if one.stage == stage]
            # Between two rounds nothing is under way: here it can end without a half-done call.
            if not open_ or self._stop.is_set():
                return inventory
            now = self._clock.monotonic()
            self._delete([one for one in open_ if self._trial(one).due <= now])
            inventory = self._listed(until)
            due = min((self._trial(one).due for one in open_ if one in inventory.items), default=0.0)
            wait = max(0.0, due - self._clock.monotonic())
            if self._clock.monotonic() + wait >= until:
                return inventory
            # Stopped while it waits: what is there is known, so it is shown.
            if wait and self._stop.wait(wait):
                return inventory

    def _listed(self, until: float) -> Inventory:
        """What there is now. Asked until there is an answer: without one nobody knows what is to be
        deleted again."""
        for times in itertools.count(1):
            try:
                return self._find()
            except CLOUD_ERRORS as error:
                delay = self._delay(error, times)
                log.warning("listing what is left failed: %s", one_line(str(error)))
                if self._clock.monotonic() + delay >= until or self._stop.wait(delay):
                    raise
        raise AssertionError("it counts on")

    def _delete(self, items: Sequence[Item]) -> None:
        """Ask the cloud to delete these, several at once, and wait for all answers: each has its
        deadline in the gateway."""
        pool = ThreadPool("teardown", AT_ONCE)
        ended = threading.Semaphore(0)

        def work(item: Item) -> None:
            try:
                self._try(item)
            finally:
                ended.release()

        begun = 0
        for item in items:
            try:
                pool.run(lambda item=item: work(item))  # type: ignore[misc]  # bound now
            # The system has no thread left now; the others of this round go on.
            except NoThreadLeft as error:
                trial = self._trial(item)
                trial.times += 1
                self._later(item, trial, error)
            else:
                begun += 1
        for _ in range(begun):
            ended.acquire()
        pool.close()

    def _try(self, item: Item) -> None:
        trial = self._trial(item)
        trial.times += 1
        called = f"{item.kind} {item.name}"
        try:
            item.delete()
        except (LoadBalancerKept, NotImplementedByProvider, CallsClosed) as error:
            # The provider has said its last word: asking again would end the same.
            trial.over, trial.said = True, one_line(str(error))
            log.warning("%s stays: %s", called, trial.said)
        except CLOUD_ERRORS as error:
            self._later(item, trial, error)
        else:
            # A failure before it is over: what is left then is left by the cloud's list alone.
            trial.said = ""
            # Listed still: the cloud's lists lag behind, or it was made again.
            trial.due = self._clock.monotonic() + self._delay(None, trial.times)
            log.info("deleted %s%s", called, f" of {item.what_for}" if item.what_for else "")

    def _later(self, item: Item, trial: Trial, error: Exception) -> None:
        trial.said = one_line(str(error))
        delay = self._delay(error, trial.times)
        trial.due = self._clock.monotonic() + delay
        log.info(
            "%s %s is not deleted yet, asking again in %s: %s", item.kind, item.name, seconds_text(delay), trial.said
        )

    def _trial(self, item: Item) -> Trial:
        return self.trials.setdefault(item, Trial())

    def _delay(self, error: Exception | None, times: int) -> float:
        # The cloud's word comes first: it knows how long its deletions take.
        asked = retry_after_of(error) if error is not None else None
        return asked if asked is not None else min(self._shortest * 2 ** (times - 1), LONGEST)
