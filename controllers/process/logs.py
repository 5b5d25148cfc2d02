"""Log lines of the process: klog's text or JSON, on standard error, without secrets.

They are cleaned by `cloudprovider.internal.cleaning` (loaded by `setup`: nothing of `cloudprovider`
may be imported before it is known to be ours). Only the command line calls `setup`; as a library,
these packages log through the standard library and configure nothing."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import IO, Any, Final

from controllers.process.logwriter import LineWriter

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
        from cloudprovider.internal.cleaning import one_line, stack_of

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
    """klog's header: I1121 03:49:00.123456 12345 file.py:12] message; tracebacks indented."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as text."""
        stamp = datetime.fromtimestamp(record.created).strftime("%m%d %H:%M:%S.%f")
        letter = _LETTERS.get(record.levelno, "F" if record.levelno > logging.ERROR else "I")
        head = f"{letter}{stamp} {record.process or 0:>7} {record.filename}:{record.lineno}] "
        trace = self.trace(record)
        return head + self.message(record) + (f"\n{trace}" if trace else "")


class JSONFormatter(_Formatter):
    """One object per line: ts (UTC), level, logger, msg, caller, and what is known of `FIELDS`.

    A traceback is `error`, or `stack` where the error has been said."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as a line of JSON."""
        # UTC: JSON lines of many machines are sorted together; klog's text has local time, as in
        # Go.
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


class _Handler(logging.Handler):
    """A class of its own, so that a second `setup` finds and replaces the first one's."""

    def __init__(self, stream: IO[str], formatter: logging.Formatter, verbosity: int) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.verbosity = verbosity
        # What is no file has no reader who could stop reading.
        self._writer = LineWriter(stream, self._lost) if _has_file(stream) else None
        self._stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        """Hand the record's line over; never waits for the stream's reader."""
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001 - as every handler: a record that cannot be shown must not stop the program
            self.handleError(record)
        else:
            self._write(line + "\n")

    def flush(self, seconds: float = 1.0) -> None:
        """Wait until all lines are written, so long at most."""
        if self._writer is not None:
            self._writer.flush(seconds)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name that the base class calls
        """Report a record that could not be written; the base class shows its arguments."""
        from cloudprovider.internal.cleaning import one_line

        where = f"a log line of {record.name} at {record.filename}:{record.lineno} could not be written"
        self._write(one_line(f"{where}: {one_line(sys.exc_info()[1])}") + "\n")

    def unwritten(self, texts: Sequence[str]) -> tuple[int, bytes]:
        """See the function of this name."""
        before = self._writer.take() if self._writer is not None else ""
        lines = [self._line(logging.ERROR, "%s", text) for text in texts]
        text = "".join([before, *lines])
        return self._stream.fileno() if self._writer is not None else 2, text.encode(errors="replace")

    def _lost(self, count: int) -> str:
        return self._line(logging.WARNING, "%d log lines are lost: standard error was not read for a while", count)

    def _line(self, level: int, text: str, *args: object) -> str:
        return self.format(logging.LogRecord(log.name, level, __file__, 0, text, args, None)) + "\n"

    def _write(self, line: str) -> None:
        if self._writer is not None:
            self._writer.write(line)
            return
        try:
            self._stream.write(line)
        except (OSError, ValueError):  # the stream is closed or broken: nothing is left to write to
            return


def setup(
    format: str = "text", verbosity: int = 0, stream: IO[str] | None = None, *, prefix: str = ""
) -> logging.Handler:
    """Send every logger's records to `stream` (standard error); the last call counts.

    Verbosity 0-3: information and worse; 4 and more: debug of ours and of the provider's package
    too; 6 and more: the HTTP library's connections. Others stay at information, and the official
    client at warnings, because at debug level it prints whole answers, Secrets included. Each
    message begins with `prefix`. No log call waits for who reads the stream; `flush` does."""
    global _handler
    # Closed by who started us: lines go nowhere, and no socket gets its descriptor.
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - for the rest of the process
    formatter = (JSONFormatter if format == "json" else TextFormatter)(prefix)
    _handler = _Handler(stream if stream is not None else sys.stderr, formatter, verbosity)
    _take(_handler)
    return _handler


def set_verbosity(verbosity: int) -> bool:
    """Log at this verbosity from now on; False in a program with a log of its own. Thread-safe."""
    if _handler is None:
        return False
    _handler.verbosity = verbosity
    _take(_handler)
    return True


def follow(module: str) -> None:
    """The loggers of this module's package are the provider's: their debug lines are shown where
    ours are, unless the provider gives them a level of their own. Thread-safe."""
    package = module.partition(".")[0]
    if package and package not in OURS:
        _followed.setdefault(package, logging.NOTSET)
        if _handler is not None:
            _follow(_handler.verbosity)


def keep(whose: str) -> None:
    """After code of a vendor's ran: take the log back where that code has taken it, and warn,
    naming `whose` it is.

    Its handlers on standard output and standard error go: they would print what is not cleaned, and
    their loggers' lines come through ours. Its others stay. Does nothing before `setup`, in a
    program with a log of its own.
    """
    if _handler is not None and (changes := _take(_handler)):
        log.warning("%s has configured Python's logging, which is put back: %s", whose, ", ".join(changes))


def flush(seconds: float) -> None:
    """Wait until all lines are written, so long at most."""
    if _handler is not None:
        _handler.flush(seconds)


def unwritten(*texts: str) -> tuple[int, bytes]:
    """These errors as lines, after those that still wait; and the descriptor they belong to."""
    from cloudprovider.internal.cleaning import one_line

    if _handler is None:
        return 2, "".join(one_line(text) + "\n" for text in texts).encode(errors="replace")
    return _handler.unwritten(texts)


_handler: _Handler | None = None  # of the last `setup`
_followed: dict[str, int] = {}  # the level that we gave to the logger of each package of the provider's


def _follow(verbosity: int) -> None:
    wanted = logging.DEBUG if verbosity >= 4 else logging.NOTSET
    for package, given in list(_followed.items()):
        logger = logging.getLogger(package)
        if logger.level in (given, logging.NOTSET):
            logger.setLevel(wanted)
            _followed[package] = wanted


def _take(handler: _Handler) -> list[str]:
    """Make the log this handler's; returns what had to be changed."""
    changes = []
    root = logging.getLogger()
    if root.manager.disable > logging.NOTSET:
        changes.append("all lines up to a level were turned off")
        logging.disable(logging.NOTSET)
    # In one step: other threads make loggers meanwhile.
    known = list(root.manager.loggerDict.values())
    for logger in [root, *(one for one in known if isinstance(one, logging.Logger))]:
        name = logger.name
        for other in list(logger.handlers):
            if other is not handler and (isinstance(other, _Handler) or _is_standard(other)):
                logger.removeHandler(other)
                if not isinstance(other, _Handler):
                    logger.propagate = True
                    changes.append(f"{name} wrote to standard output or standard error")
        if name.partition(".")[0] in OURS and (logger.disabled or not logger.propagate):
            changes.append(f"{name} was turned off")
            logger.disabled, logger.propagate = False, True
    if handler not in root.handlers:
        root.addHandler(handler)
        changes.append("the manager's handler was gone")
    levels = {"": logging.INFO, **dict.fromkeys(OURS, logging.DEBUG if handler.verbosity >= 4 else logging.INFO)}
    levels["urllib3"] = logging.DEBUG if handler.verbosity >= 6 else logging.WARNING
    levels["kubernetes"] = logging.WARNING
    for name, level in levels.items():
        if logging.getLogger(name).level != level:
            logging.getLogger(name).setLevel(level)
            changes.append(f"{name or 'root'} had another level")
    _follow(handler.verbosity)
    logging.captureWarnings(True)
    # Of a logger that passes nothing on and has no handler; Python's own would print it uncleaned.
    logging.lastResort = handler
    return changes


def _is_standard(handler: logging.Handler) -> bool:
    stream = getattr(handler, "stream", None) if isinstance(handler, logging.StreamHandler) else None
    return stream is not None and stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)


def _has_file(stream: IO[str]) -> bool:
    try:
        stream.fileno()
    except (OSError, ValueError, AttributeError):
        return False
    return True


@contextmanager
def uncaught() -> Iterator[None]:
    """In the body, uncaught exceptions of threads and finalizers become log lines, cleaned."""
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
