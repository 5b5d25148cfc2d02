"""Log lines of the process: klog's text or JSON, on standard error, without secrets.

Stage: beside all of them. Data comes from every module's logger, from Python's warnings and from exceptions that nobody
caught; it goes to one stream, cleaned by `controllers.runtime.cleaning` (loaded by `setup`: nothing of `cloudprovider`
may be imported before it is known to be ours). Only the app calls `setup`; as a library, these packages log through the
standard library and configure nothing.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import IO, Any, Final

log = logging.getLogger(__name__)

OURS: Final = ("cloudprovider", "controllers")
_LETTERS: Final = {logging.DEBUG: "I", logging.INFO: "I", logging.WARNING: "W", logging.ERROR: "E"}
_LEVELS: Final = {logging.DEBUG: "debug", logging.INFO: "info", logging.WARNING: "warning", logging.ERROR: "error"}


FIELDS: Final = (
    "node",
    "service",
    "route",
    "key",
    "provider",
    "provider_id",
    "attempt",
    "retry_in",
    "duration",
    "error",
)
"""What a log call may hand over with `extra`; a key each in a JSON log. Times in seconds."""


class _Formatter(logging.Formatter):
    def __init__(self, prefix: str = "") -> None:
        from controllers.runtime.cleaning import one_line, stack_of

        super().__init__()
        self._prefix = prefix
        self._line, self._stack = one_line, stack_of

    def message(self, record: logging.LogRecord) -> str:
        """The message on one line: names of users' objects cannot forge a second one."""
        return self._prefix + self._line(record.getMessage())

    def trace(self, record: logging.LogRecord) -> str:
        """The traceback, of which no line can pass for a log line; "" without one."""
        if not record.exc_info or record.exc_info[1] is None:
            return ""
        return self._stack(record.exc_info[1])


class TextFormatter(_Formatter):
    """klog's header: I1121 03:49:00.123456   12345 file.py:12] message; a traceback follows, on indented lines."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as text."""
        stamp = datetime.fromtimestamp(record.created).strftime("%m%d %H:%M:%S.%f")
        letter = _LETTERS.get(record.levelno, "F" if record.levelno > logging.ERROR else "I")
        head = f"{letter}{stamp} {record.process or 0:>7} {record.filename}:{record.lineno}] "
        trace = self.trace(record)
        return head + self.message(record) + (f"\n{trace}" if trace else "")


class JSONFormatter(_Formatter):
    """One object per line: ts (UTC), level, logger, msg, caller, and those of `FIELDS` that are known.

    A traceback is `error`, or `stack` where the error has been said.
    """

    def format(self, record: logging.LogRecord) -> str:
        """One record as a line of JSON."""
        stamp = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")
        line: dict[str, Any] = {
            "ts": stamp.replace("+00:00", "Z"),
            "level": _LEVELS.get(record.levelno, record.levelname.lower()),
            "logger": record.name,
            "msg": self.message(record),
            "caller": f"{record.filename}:{record.lineno}",
        }
        for name in FIELDS:
            value = getattr(record, name, None)
            if isinstance(value, int | float):
                line[name] = value
            elif value not in (None, ""):
                line[name] = self._line(str(value))
        trace = self.trace(record)
        if trace:
            line["stack" if "error" in line else "error"] = trace
        return json.dumps(line)


class _Handler(logging.StreamHandler[IO[str]]):
    """A class of its own, so that a second `setup` finds and replaces the first one's."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name that the base class calls
        """Tell of a record that could not be written; the base class's way shows its arguments as they are."""
        from controllers.runtime.cleaning import one_line

        where = f"a log line of {record.name} at {record.filename}:{record.lineno} could not be written"
        try:
            self.stream.write(one_line(f"{where}: {one_line(sys.exc_info()[1])}") + "\n")
            self.flush()
        except (OSError, ValueError):  # the stream is closed or broken: there is nobody to tell
            return


def setup(
    format: str = "text", verbosity: int = 0, stream: IO[str] | None = None, *, prefix: str = ""
) -> logging.Handler:
    """Send every logger's records to `stream` (standard error); may be called again, the last call counts.

    Verbosity 0-3: information and worse; 4 and more: all of ours; 6 and more: the HTTP library's connections too. The
    official client's own loggers stay at warnings, because at debug level they print whole answers, Secrets included.
    Each message begins with `prefix`.
    """
    handler = _Handler(stream if stream is not None else sys.stderr)
    handler.setFormatter((JSONFormatter if format == "json" else TextFormatter)(prefix))
    root = logging.getLogger()
    for old in [h for h in root.handlers if isinstance(h, _Handler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    for name in OURS:
        logging.getLogger(name).setLevel(logging.DEBUG if verbosity >= 4 else logging.INFO)
    logging.getLogger("urllib3").setLevel(logging.DEBUG if verbosity >= 6 else logging.WARNING)
    logging.getLogger("kubernetes").setLevel(logging.WARNING)
    logging.captureWarnings(True)
    return handler


@contextmanager
def uncaught() -> Iterator[None]:
    """In the body, exceptions of threads and finalizers that nobody caught become log lines, cleaned as any other."""
    old = threading.excepthook, sys.unraisablehook
    threading.excepthook, sys.unraisablehook = _uncaught_in_thread, _unraisable
    try:
        yield
    finally:
        threading.excepthook, sys.unraisablehook = old


def _uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is None or issubclass(args.exc_type, SystemExit):
        return
    name = args.thread.name if args.thread is not None else "?"
    log.error(
        "thread %s ended with an unhandled exception",
        name,
        exc_info=(args.exc_type, args.exc_value, args.exc_traceback),
    )


def _unraisable(args: sys.UnraisableHookArgs) -> None:
    error = args.exc_value
    if error is not None:
        log.error("%s", args.err_msg or "an exception was ignored", exc_info=(type(error), error, args.exc_traceback))
