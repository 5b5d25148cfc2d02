"""Stage 4, its decision: what becomes of a key after its run. The only place that requeues on
behalf of a reconcile: one that wants its key to run again says so in its `Result`. Events and other
keys' work add keys themselves.

A reconcile function takes a key, does one unit of work and returns, or raises; :class:`Requeuer`
reads from that what to tell the queue:

===================================  ================================================  ==================
the run ended with                   then                                              ``result``
===================================  ================================================  ==================
None or ``DONE``                     backoff forgotten                                 success
``Result(requeue_after=s)``          backoff forgotten, again in s seconds, with       requeue_after
                                     `priority`, or that of this run if it is None;
                                     if `early`, the backoff stays
RetryError                           again in that many seconds, at least, and later   retry_after
                                     ever more seldom (`failurelog.py`): nothing failed
exception with `retry_after` over 0  again in that many seconds, at least, and         retry_after
                                     an ApiError no sooner than with backoff
``TerminalError``                    backoff forgotten, not again                      terminal
``Parked``                           closed until its future ends, then backoff        parked
any other exception                  again with backoff                                error
===================================  ================================================  ==================
"""

import logging
import math
import random
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, Final, Generic, ParamSpec, TypeGuard, TypeVar

from attrs import field, frozen

from cloudprovider.errors import (
    CloudProviderError,
    DiskNotFound,
    InstanceNotFound,
    InvalidService,
    QuotaExceeded,
    RetryError,
)
from cloudprovider.internal.cleaning import text_of
from controllers.runtime.api import ApiError
from controllers.runtime.clock import Clock
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue.failurelog import FailureLog, OnWait, Waits, seconds_text
from controllers.runtime.queue.workqueue import WorkQueue

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
P = ParamSpec("P")

_RESULTS = ("success", "requeue_after", "retry_after", "terminal", "parked", "error")
_EXPECTED = (ApiError, CloudProviderError, OSError)
_DEFINITE = (InstanceNotFound, DiskNotFound, InvalidService, QuotaExceeded)

LEAST_WAIT = 1.0
"""Seconds that a key waits at least when an error names a time."""
OUTAGE_SPREAD: Final = 2.0
"""Seconds over which keys come back after an outage of the API server, so that they do not arrive
all at once at a server that has just started."""
_ADDED_SHARE = 0.1
"""The share of a named time that is added at most, by chance."""


def _seconds(instance: object, attribute: object, value: float | None) -> None:
    if value is not None and not _is_delay(value):
        raise ValueError(f"requeue_after must be a number of seconds from 0, or None, got {value!r}")


@frozen
class Result:
    """What a reconcile that succeeded returns. `requeue_after` (seconds) has the key run again
    without an event, with `priority`; None keeps the priority of this run."""

    requeue_after: float | None = field(default=None, validator=_seconds)
    priority: int | None = None
    routine: bool = False
    """Nothing is left to do: it runs again only because time passes."""
    early: bool = False
    """What failed before was not tried again, as it is not time yet: it counts as failing still."""


DONE = Result()


class TerminalError(Exception):
    """Not retried: the key rests until its next event. Logged and counted as an error."""


class AskAgain(Exception):
    """The answer that came with the key is about another object than is there now. Nothing failed:
    the key goes through its fetch again at once."""


class Parked(Exception):
    """The work on the key goes on elsewhere, in a call that nobody waits for any longer.

    `until` ends, in whatever way, when that call does. Until then no worker gets the key."""

    def __init__(self, until: Future[Any], message: str = "") -> None:
        super().__init__(message or "the work goes on in a call that has not ended")
        self.until = until


class Aborted(Exception):
    """A run ended with something meant to end a thread or the process (SystemExit ...)."""


def aborted(error: BaseException) -> Aborted:
    """What a BaseException is to its key: one more failure."""
    wrapped = Aborted(f"the run ended with {type(error).__name__}: {text_of(error)}")
    wrapped.__cause__ = error
    return wrapped


def retry_after_of(error: BaseException) -> float | None:
    """The seconds that an exception asks for, None where it has no usable `retry_after`."""
    value: object = getattr(error, "retry_after", None)
    return float(value) if _is_delay(value) else None


def _is_delay(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


@frozen(kw_only=True)
class FailureHandling(Generic[K]):
    """What is done about runs that fail, besides another try."""

    on_error: Callable[[K, Exception], None] | None = None
    """Called for every exception but RetryError, Parked and TerminalError among them, while the key
    is still closed to others; what it raises is logged."""

    on_wait: OnWait[K] | None = None
    """The same for RetryError, when its words change, and every 15 minutes. Without it `on_error` is
    called every 15 minutes."""

    expected: tuple[type[Exception], ...] = ()
    """Exceptions of these classes, and ApiError, CloudProviderError, TerminalError and OSError, are
    logged without the stack; others with it, as they look like mistakes in the code."""

    noun: str = "key"
    """What the keys are for the log: what fails again and again is few lines (`failurelog.py`)."""

    controller: str = ""
    """Whose work it is: the name in --controllers, at each line's begin; empty: the queue's."""


class AwaitingServer(Generic[K]):
    """The keys of one queue that failed because the API server gave no answer. Thread-safe.

    During an outage each key backs off, a minute in the end. `bring_back(key, delay)` requeues
    them when the server answers again, so that none waits on after the outage is over.
    """

    def __init__(self, bring_back: Callable[[K, float], object], chance: Callable[[], float] = random.random) -> None:
        self._bring_back = bring_back
        self._chance = chance
        self._lock = threading.Lock()
        self._keys: set[K] = set()

    def add(self, key: K, error: Exception) -> None:
        """The key failed so, and backs off; nothing happens unless the server gave no answer."""
        recovery = error.recovery if isinstance(error, ApiError) else None
        if recovery is None:
            self.discard(key)
            return
        with self._lock:
            self._keys.add(key)
        recovery.then(self._release)  # at once where the server came back before this failure was settled

    def discard(self, key: K) -> None:
        """The key no longer waits for the server."""
        if self._keys:
            with self._lock:
                self._keys.discard(key)

    def _release(self) -> None:
        with self._lock:
            keys, self._keys = self._keys, set()
        for key in keys:
            self._bring_back(key, OUTAGE_SPREAD * self._chance())


class Requeuer(Generic[K]):
    """Runs reconciles and settles what comes of them. Thread-safe."""

    def __init__(
        self,
        queue: WorkQueue[K],
        failures: FailureHandling[K],
        *,
        metrics: Metrics,
        clock: Clock,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._queue = queue
        self._chance = chance
        self._name = queue.name
        queue.noun, queue.controller = failures.noun, failures.controller or queue.name
        self._on_error = failures.on_error
        self._failures: FailureLog[K] = FailureLog(
            failures.controller or queue.name, logger, clock=clock, noun=failures.noun
        )
        self._waits: Waits[K] = Waits(
            failures.controller or queue.name,
            logger,
            clock=clock,
            noun=failures.noun,
            tell=failures.on_wait or (lambda key, error, long: self._report(key, error) if long else None),
        )
        self._awaiting_server: AwaitingServer[K] = AwaitingServer(self._return)
        self.expected = (*_EXPECTED, TerminalError, Parked, Aborted, *failures.expected)
        self._clock = clock
        self.last_settled = clock.monotonic()
        runs = metrics.counter(
            "controller_reconcile_total", f"Reconciles by their result: {', '.join(_RESULTS)}.", ["name", "result"]
        )
        self._runs = {result: runs.labels(self._name, result) for result in _RESULTS}
        self._errors = metrics.counter(
            "controller_reconcile_errors_total",
            "Reconciles that failed: with backoff, or for good.",
            ["name"],
        ).labels(self._name)
        self._parked = metrics.gauge(
            "controller_parked_keys", "Keys whose cloud call is overdue and has not ended yet.", ["name"]
        ).labels(self._name)

    def run(self, key: K, reconcile: Callable[P, Result | None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Run the reconcile of a key that the queue handed out, and settle it.

        Raises only what is no Exception (SystemExit, KeyboardInterrupt, ...), after the key is
        settled as failed.
        """
        outcome: object
        try:
            outcome = reconcile(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - whatever it is, it costs this key and no other
            outcome = error
        except BaseException as error:
            self.settle(key, aborted(error))
            raise
        self.settle(key, DONE if outcome is None else outcome)
        # An exception's stack, and that of its cause, hold this frame, and those of all that was
        # called: would one of them hold the exception, all would stay until the collector comes.
        if isinstance(outcome, Exception):
            outcome.__traceback__ = None
        del outcome

    def settle(self, key: K, outcome: object, *, stack: bool = True) -> None:
        """Requeue, count, log and report, then end the key's work. Once per key handed out.

        `outcome` is a Result or an exception; `stack` False leaves its stack out of the log."""
        parked = isinstance(outcome, Parked)
        if isinstance(outcome, AskAgain):
            logger.info("%s: %s is asked about again: %s", self._name, key, outcome)
            outcome = Result(requeue_after=0.0)
        try:
            if isinstance(outcome, Result):
                self._succeeded(key, outcome)
            elif isinstance(outcome, Exception):
                self._failed(key, outcome, stack)
            else:
                error = TypeError(f"reconcile must return a Result or None, not {text_of(repr(outcome))}")
                self._failed(key, error, stack)
        except Exception:
            logger.exception("%s: handling the result of %s failed; retrying", self._name, key)
            self._queue.add_rate_limited(key)
            parked = False
        finally:
            self.last_settled = self._clock.monotonic()
            if not parked:
                self._queue.done(key)

    def _succeeded(self, key: K, result: Result) -> None:
        if not result.early:
            self._queue.forget(key)
            self._failures.succeeded(key)
            self._waits.over(key, done=True)
            self._awaiting_server.discard(key)
        if result.requeue_after is None:
            self._runs["success"].inc()
        else:
            self._queue.add_after(key, result.requeue_after, result.priority, routine=result.routine)
            self._runs["requeue_after"].inc()

    def _failed(self, key: K, error: Exception, stack: bool) -> None:
        """Requeue the key first, then count, log and report: nothing there may lose it."""
        level, result = logging.WARNING, "error"
        delay: float | None = None
        if isinstance(error, RetryError):
            self._wait(key, error)
            return
        self._waits.over(key, done=False)
        if isinstance(error, Parked):
            self._queue.park(key)
            result, next_step = "parked", "parked until its call ends"
        elif isinstance(error, TerminalError):
            self._queue.forget(key)
            level, result, next_step = logging.ERROR, "terminal", "not tried again before its next event"
        elif asked := retry_after_of(error):  # 0 names no time: then the key backs off
            delay = self._as_asked(key, error, asked)
            level, result, next_step = logging.INFO, "retry_after", f"retrying in {seconds_text(delay)} as asked"
        else:
            delay = self._back_off(key, error)
            next_step = f"retrying in {seconds_text(delay)}"
        if self._queue.shutting_down and result != "parked":
            next_step = "not tried again, as this controller stops"
        try:
            self._runs[result].inc()
            if result in ("error", "terminal"):
                self._errors.inc()
            expected = result == "retry_after" or isinstance(error, self.expected)
            self._tell(level if expected else logging.ERROR, key, next_step, delay, error, expected, stack)
            self._report(key, error)
        finally:
            if isinstance(error, Parked):
                error.until.add_done_callback(lambda _: self._unpark(key, error))
                self._parked.inc()

    def _wait(self, key: K, error: RetryError) -> None:
        """The cloud is at work on it: requeue the key, count and tell."""
        delay = self._as_asked(key, error, max(error.retry_after, self._waits.pause(key)))
        self._runs["retry_after"].inc()
        stops = self._queue.shutting_down
        next_step = "not asked again, as this controller stops" if stops else f"asking again in {seconds_text(delay)}"
        try:
            self._waits.told(key, next_step, error, text_of(error))
        except Exception:
            logger.exception("%s: %s: reporting that it waits failed", self._name, key)

    def _as_asked(self, key: K, error: Exception, asked: float) -> float:
        """Requeue the key for the time named for it, and return the seconds until it can run.

        No sooner than that, nor than a second, and up to a tenth of it is added, to spread keys
        with the same time. An API server that names the same time again and again is busy, so
        against it the key backs off all the same."""
        delay = max(asked, LEAST_WAIT) * (1.0 + _ADDED_SHARE * self._chance())
        if isinstance(error, ApiError):
            return self._queue.add_rate_limited(key, least=delay, problem=_unknown(error))
        # After a definite answer nothing is left to do: the same question is asked by time alone.
        self._queue.add_after(key, delay, problem=_unknown(error), routine=isinstance(error, _DEFINITE))
        return delay

    def _back_off(self, key: K, error: Exception) -> float:
        """Requeue the key, and return the seconds until it can run."""
        self._queue.add_rate_limited(key, problem=_unknown(error))
        self._awaiting_server.add(key, error)
        return self._queue.next_run(key)

    def _return(self, key: K, delay: float) -> None:
        """The API server answers again: end the back-off of a key that failed without it."""
        self._queue.forget(key)
        self._queue.add_after(key, delay)

    def _unpark(self, key: K, error: Parked) -> None:
        """The call of a parked key ended. Runs in the thread that ended it."""
        self._parked.dec()
        try:
            self._back_off(key, error)
        finally:
            self._queue.done(key)
        logger.debug("%s: %s: the overdue call has ended, the key is tried again", self._name, key)

    def _tell(
        self, level: int, key: K, next_step: str, delay: float | None, error: Exception, expected: bool, stack: bool
    ) -> None:
        fields = {} if delay is None else {"retry_in": round(delay, 3)}
        words = text_of(error)
        self._failures.failed(key, next_step, error, words, level=level, stack=stack and not expected, fields=fields)
        if expected and stack and logger.isEnabledFor(logging.DEBUG):
            logger.debug("%s: %s: the stack of this failure", self._name, key, exc_info=error)

    def _report(self, key: K, error: Exception) -> None:
        if self._on_error is not None:
            try:
                self._on_error(key, error)
            except Exception:
                logger.exception("%s: %s: reporting its failure failed", self._name, key)


def _unknown(error: Exception) -> str:
    """What is not known because of this failure; "" where it is a definite answer."""
    return "" if isinstance(error, _DEFINITE) else text_of(error)
