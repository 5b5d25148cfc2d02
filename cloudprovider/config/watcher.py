"""Loads a configuration again when one of its files changes: rotated credentials, a new ConfigMap
or Secret.

A thread looks at the files' contents, so it sees a file that is replaced, a link that is turned to
another folder (as the kubelet does with a volume), and one that is written in place. A change
counts when two looks in a row show the same. What cannot be used is named in the log, and the old
value stays. The thread ends with the stop signal of `Interface.initialize`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from cloudprovider.host import StopSignal

T = TypeVar("T")

logger = logging.getLogger(__name__)

_Contents = tuple[bytes | None, ...]


class ConfigWatcher(Generic[T]):
    """Keeps a value that is loaded from files up to date::

        config.watcher(source, client.use).start(stop)  # in Interface.initialize

    `value` is the present one, which may have been loaded long before the watcher is made: so the
    files are loaded once as they are then. `load` makes the next value; what it raises leaves the
    old one in place. `changed` is called with each new value that differs from the one before, in
    the watcher's thread; if it raises, that is logged and the value counts as taken.
    """

    def __init__(
        self,
        value: T,
        files: Sequence[str],
        load: Callable[[], T],
        changed: Callable[[T], object],
        *,
        period: float = 5.0,
    ) -> None:
        """`period` is in seconds between two looks. Raises ValueError when it is not positive."""
        if period <= 0:
            raise ValueError(f"period must be a positive number of seconds, not {period!r}")
        self._files = [Path(file) for file in files]
        self._load = load
        self._changed = changed
        self._period = period
        # What `value` was made from is not known: a standby may wait for days between its factory
        # and `initialize`, and its credentials rotate meanwhile.
        self._loaded: _Contents | None = None
        self._seen = self._read()
        self._value = value

    def start(self, stop: StopSignal) -> threading.Thread:
        """Watch in a thread until `stop` is set. To be called once. Returns the thread, a
        daemon."""
        thread = threading.Thread(target=self.run, args=(stop,), name="config-watcher", daemon=True)
        thread.start()
        return thread

    def run(self, stop: StopSignal) -> None:
        """Watch in this thread until `stop` is set."""
        while not stop.wait(self._period):
            self.look()

    def look(self) -> None:
        """Look once. For tests, and for programs with a loop of their own; not from two threads."""
        now = self._read()
        # Two looks alike: a file that is being written is not read half.
        settled, self._seen = now == self._seen, now
        if not settled or now == self._loaded:
            return
        self._loaded = now
        names = ", ".join(str(file) for file in self._files)
        try:
            value = self._load()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - the vendor's checks run in it: the old value stays
            text = "; ".join(str(error).splitlines()) or type(error).__name__
            logger.warning("%s changed and cannot be used; the old configuration stays: %s", names, text)
            return
        # A comment was changed, or the same token written: no need to log in again.
        if value == self._value:
            return
        self._value = value
        logger.info("%s changed; the new configuration is used", names)
        try:
            self._changed(value)
        except KeyboardInterrupt:
            raise
        except BaseException:  # asyncio.CancelledError, say: the thread goes on to watch
            logger.exception("%s changed; the provider failed to take the new configuration", names)

    def _read(self) -> _Contents:
        return tuple(_content(file) for file in self._files)


def _content(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError:  # `load` says why; until it is there again the old value stays
        return None
