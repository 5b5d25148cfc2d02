"""Stage 4, its words: the one place that tells repeated failures, and of keys that wait for the
cloud, as a RetryError asked for. A thousand are few lines.

Failures are alike when their exceptions have one class and one text, names and numbers aside. Of
each kind the first one is logged at once; then of a single key the attempts 1, 2, 4, 8 ..., of many
keys one line whenever attempts or keys have doubled, and never two within `window` seconds; then
the end, when every key that failed so has succeeded. The rest is in the log at -v=4.

Where the cloud is at work nothing failed: :class:`Waits` says since when a key waits and when it is
asked about again. A build of an hour costs few questions, few lines and few Events, and one that
never ends shows."""

from __future__ import annotations

import logging
import math
import re
import threading
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, Generic, TypeAlias, TypeVar

from attrs import define, frozen

from cloudprovider.errors import Pending, RetryError
from controllers.runtime.clock import Clock

K = TypeVar("K", bound=Hashable)

WINDOW: Final = 3.0
"""Seconds between two lines about one kind of failure that concerns several keys."""

_NAMES: Final = 1000  # of keys that recovered while others of the kind go on failing; beyond that only their number
_KINDS: Final = 8  # of one class of exceptions; what differs still more is one kind
_WORD: Final = re.compile(r"[\w.:-]+")


class _Kind:
    """What is known of one kind of failure since it began."""

    __slots__ = ("began", "count", "ever", "failing", "forgotten", "last_line", "logged_attempt", "logged_keys")

    def __init__(self) -> None:
        self.failing: set[Hashable] = set()
        self.last_line = -math.inf
        self.reset(0.0)

    def reset(self, now: float) -> None:
        self.began = now
        self.ever: set[Hashable] = set()
        self.forgotten = 0
        self.count = 0
        self.logged_attempt = 0
        self.logged_keys = 0

    @property
    def keys(self) -> int:
        """How many keys have failed so; one that is forgotten and fails again counts twice."""
        return self.forgotten + len(self.ever)

    def recovered(self, key: Hashable) -> None:
        """One key that failed so has succeeded."""
        self.failing.discard(key)
        # Names are kept to count each key once; a kind that never ends must not keep them all.
        if self.failing and len(self.ever) > len(self.failing) + _NAMES:
            self.forgotten += len(self.ever) - len(self.failing)
            self.ever = set(self.failing)

    def is_due(self, attempt: int, now: float, window: float) -> bool:
        """Whether this failure is worth a line."""
        if self.logged_attempt and self.keys == 1:
            return attempt & (attempt - 1) == 0
        # Many keys fail together in an outage: the first line is told, the rest are a number.
        if now - self.last_line < window:
            return False
        doubled = attempt >= 2 * self.logged_attempt or self.keys >= 2 * self.logged_keys
        return not self.logged_attempt or doubled

    def logged(self, attempt: int, now: float) -> None:
        self.logged_attempt = max(self.logged_attempt, attempt)
        self.logged_keys = self.keys
        self.last_line = now


@frozen
class Words:
    """How the lines read: about one key, what is added of many, and the end."""

    line: str = "%s: %s failed (attempt %d), %s: %s: %s%s"
    many: str = " (%d such failures of %d %ss in %s)"
    over: str = "%s: over after %s: %s, %d failures of %s; the last one succeeded"


FAILING: Final = Words()
WAITING: Final = Words(
    "%s: %s waits for the cloud (answer %d), %s: %s: %s%s",
    " (%d such answers for %d %ss in %s)",
    "%s: the cloud was done after %s: %s, %d answers for %s",
)
"""Of keys that a RetryError asks to wait: nothing failed."""


class FailureLog(Generic[K]):
    """The failures of one kind of work, whose `name` begins each line. Thread-safe.

    `noun` names in a JSON log what the keys are: "node", "service".
    """

    def __init__(
        self,
        name: str,
        logger: logging.Logger,
        *,
        clock: Clock,
        noun: str = "key",
        window: float = WINDOW,
        words: Words = FAILING,
    ) -> None:
        self._words = words
        self._name = name
        self._logger = logger
        self._clock = clock
        self._noun = noun
        self._window = window
        self._lock = threading.Lock()
        self._kinds: dict[tuple[str, str], _Kind] = {}
        self._of_class: dict[str, int] = {}
        self._keys: dict[K, tuple[int, set[tuple[str, str]]]] = {}  # failing ones: attempts, and how they failed

    def attempts(self, key: K) -> int:
        """How often the key has failed since its last success."""
        known = self._keys.get(key)
        return 0 if known is None else known[0]

    def failed(
        self,
        key: K,
        next_step: str,
        error: Exception,
        text: str,
        *,
        level: int = logging.WARNING,
        stack: bool = False,
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        """One more failure; `next_step` says what follows, `text` is the error's own on one line.

        `stack` asks for the stack with the line, `fields` are further keys of a JSON log.
        """
        now = self._clock.monotonic()
        name = type(error).__name__
        with self._lock:
            label, kind = self._kind_of(key, name, text)
            attempt = self.attempts(key) + 1
            self._keys[key] = (attempt, {*self._keys.get(key, (0, ()))[1], label})
            # Nothing failed so for a while: what is told counts from here.
            if not kind.ever:
                kind.reset(now)
            kind.failing.add(key)
            kind.ever.add(key)
            kind.count += 1
            due = kind.is_due(attempt, now, self._window)
            if due:
                kind.logged(attempt, now)
            count, keys, since = kind.count, kind.keys, now - kind.began
        extra = {self._noun: str(key), "attempt": attempt, "error": f"{name}: {text}", **(fields or {})}
        many = "" if keys == 1 else self._words.many % (count, keys, self._noun, seconds_text(since))
        line, words = self._words.line, (self._name, key, attempt, next_step, name, text)
        trace = error if stack else None
        if due:
            self._logger.log(level, line, *words, many, exc_info=trace, extra=extra, stacklevel=2)
        elif self._logger.isEnabledFor(logging.DEBUG):
            self._logger.debug(line, *words, "", exc_info=trace, extra=extra, stacklevel=2)

    def succeeded(self, key: K, *, tell: bool = True) -> None:
        """The key's work is done, or no longer to be done; `tell` False: its end is not logged.
        Cheap for a key that has not failed."""
        if key not in self._keys:
            return
        now = self._clock.monotonic()
        over: list[tuple[str, str, int, int, float]] = []
        with self._lock:
            attempts, labels = self._keys.pop(key, (0, set()))
            for label in labels:
                kind = self._kinds[label]
                kind.recovered(key)
                if kind.failing or not kind.ever:
                    continue
                # A failure that was not logged needs no end.
                if tell and kind.logged_attempt and kind.count > 1:
                    over.append((*label, kind.count, kind.keys, now - kind.began))
                    kind.last_line = now
                kind.reset(now)
            if not self._keys:
                self._forget_old(now)
        for name, _, count, keys, since in over:
            what = f"{self._noun} {key}" if keys == 1 else f"{keys} {self._noun}s"
            self._logger.info(
                self._words.over,
                self._name, seconds_text(since), name, count, what,
                extra={"attempt": attempts + 1, "duration": round(since, 3)},
            )  # fmt: skip

    def _kind_of(self, key: K, name: str, text: str) -> tuple[tuple[str, str], _Kind]:
        # The key's own names stand in the text of most errors; without them thousands are one kind.
        own = set(_WORD.findall(str(key).replace("/", " ")))

        def common(word: re.Match[str]) -> str:
            found = word[0]
            return "#" if found in own or any(map(str.isdigit, found)) else found

        label = (name, _WORD.sub(common, text.replace("/", " ")))
        kind = self._kinds.get(label)
        if kind is None:
            number = self._of_class.get(name, 0)
            # Texts that differ beyond names and numbers (a vendor's own IDs, say) must not be kinds
            # without end.
            if number >= _KINDS:
                label = (name, "")
                kind = self._kinds.get(label)
            else:
                self._of_class[name] = number + 1
            if kind is None:
                kind = self._kinds[label] = _Kind()
        return label, kind

    def _forget_old(self, now: float) -> None:
        """Nothing fails: kinds whose last line is old need not be known any more."""
        self._kinds = {label: kind for label, kind in self._kinds.items() if now - kind.last_line < self._window}
        self._of_class = {}
        for name, _ in self._kinds:
            self._of_class[name] = self._of_class.get(name, 0) + 1


def seconds_text(seconds: float) -> str:
    """A time for people: 0.004 s, 1.2 s, 58 s."""
    digits = 0 if seconds >= 10 else 1 if seconds >= 0.1 else 3
    number = f"{seconds:.{digits}f}"
    return f"{number.rstrip('0').rstrip('.') if digits else number} s"


# ---- keys that wait for the cloud

LONG: Final = 900.0
"""Seconds after which a wait is a warning, each time that so many have passed."""
_SHARE: Final = 10
_LONGEST_PAUSE: Final = 60.0
_NUMBER: Final = re.compile(r"[\w.:-]*\d[\w.:-]*")

OnWait: TypeAlias = Callable[[K, RetryError, bool], None]
"""Tells the owner of a key what the cloud says; True: it has waited for long."""


def pending(what: str, error: RetryError, long: bool) -> tuple[str, str]:
    """Type and message of the Event about it; `what` is what waits, as "the load balancer"."""
    minutes = f"for more than {LONG / 60:.0f} minutes"
    if isinstance(error, Pending):
        message = f"The cloud is at work on {what}{f', {minutes}' if long else ''}: {error}"
    else:  # nothing was begun: it may wait for a node, or for its turn, and only the words say so
        waits = f"has had to wait {minutes}" if long else "has to wait"
        message = f"{what[:1].upper()}{what[1:]} {waits}: {error}"
    return "Warning" if long else "Normal", message


@define
class _Wait:
    since: float
    words: str = ""
    told: float = -math.inf


class Waits(Generic[K]):
    """Keys of one queue. Thread-safe, as long as each key is one thread's at a time."""

    def __init__(self, name: str, logger: logging.Logger, *, clock: Clock, noun: str, tell: OnWait[K] | None) -> None:
        self._log: FailureLog[K] = FailureLog(name, logger, clock=clock, noun=noun, words=WAITING)
        self._clock = clock
        self._tell = tell
        self._lock = threading.Lock()
        self._waits: dict[K, _Wait] = {}

    def pause(self, key: K) -> float:
        """The seconds until the key is asked about again, at least: a tenth of those that it has
        waited."""
        with self._lock:
            wait = self._waits.setdefault(key, _Wait(self._clock.monotonic()))
            return min((self._clock.monotonic() - wait.since) / _SHARE, _LONGEST_PAUSE)

    def told(self, key: K, next_step: str, error: RetryError, text: str) -> None:
        """Log it, and tell the owner where the words changed, or after long. Once for each
        `pause`."""
        now = self._clock.monotonic()
        words = _NUMBER.sub("#", text)  # a percentage, a time, a request's ID: only the words count
        with self._lock:
            wait = self._waits[key]
            long = now - wait.since >= LONG
            due = wait.words != words or now - wait.told >= LONG
            if due:
                wait.words, wait.told = words, now
        self._log.failed(key, next_step, error, text, level=logging.WARNING if long else logging.INFO)
        if due and self._tell is not None:
            self._tell(key, error, long)

    def over(self, key: K, *, done: bool) -> None:
        """The key no longer waits: it succeeded, or failed. Cheap for one that did not wait."""
        # Without the lock: it is asked about every key that is done, and hardly any waits.
        if key in self._waits:
            with self._lock:
                self._waits.pop(key, None)
            self._log.succeeded(key, tell=done)
