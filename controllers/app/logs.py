"""Log lines of the process: klog's text or JSON, on standard error, without secrets.

Stage: beside all of them. Data comes from every module's logger; it goes to one stream. Only the app calls `setup`;
as a library, these packages log through the standard library and configure nothing.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import traceback
from datetime import UTC, datetime
from typing import IO, Any, Final

OURS: Final = ("cloudprovider", "controllers")
_LETTERS: Final = {logging.DEBUG: "I", logging.INFO: "I", logging.WARNING: "W", logging.ERROR: "E"}
_LEVELS: Final = {logging.DEBUG: "debug", logging.INFO: "info", logging.WARNING: "warning", logging.ERROR: "error"}
_SECRETS: Final = (
    # Credentials in a header or a message that quotes one, and in a URL: the scheme or host stays readable.
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{16,}"), r"\1 <redacted>"),
    (re.compile(r"(?i)((?:token|password|secret|api[_-]?key)[\"']?\s*[:=]\s*[\"']?)[^\s\"',;}]{3,}"), r"\1<redacted>"),
    (re.compile(r"(://)[^/\s@:]+:[^/\s@]+@"), r"\1<redacted>@"),
    (
        re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
        "<redacted>",
    ),
)


def redact(text: str) -> str:
    """`text` without what looks like a credential. A second line of defence: nothing of ours logs one."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


class _Formatter(logging.Formatter):
    def message(self, record: logging.LogRecord) -> str:
        """The message on one line: names of users' objects cannot forge a second one."""
        text = redact(record.getMessage())
        if text.isprintable():
            return text
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)

    def trace(self, record: logging.LogRecord) -> str:
        if not record.exc_info or record.exc_info[0] is None:
            return ""
        return redact("".join(traceback.format_exception(*record.exc_info)).rstrip())


class TextFormatter(_Formatter):
    """klog's header: I1121 03:49:00.123456   12345 file.py:12] message; a traceback follows on its own lines."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as text."""
        stamp = datetime.fromtimestamp(record.created).strftime("%m%d %H:%M:%S.%f")
        letter = _LETTERS.get(record.levelno, "F" if record.levelno > logging.ERROR else "I")
        head = f"{letter}{stamp} {record.process or 0:>7} {record.filename}:{record.lineno}] "
        trace = self.trace(record)
        return head + self.message(record) + (f"\n{trace}" if trace else "")


class JSONFormatter(_Formatter):
    """One object per line: ts (UTC), level, logger, msg, caller, and error with the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as a line of JSON."""
        stamp = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")
        line: dict[str, Any] = {
            "ts": stamp.replace("+00:00", "Z"),
            "level": _LEVELS.get(record.levelno, record.levelname.lower()),
            "logger": record.name,
            "msg": redact(record.getMessage()),
            "caller": f"{record.filename}:{record.lineno}",
        }
        trace = self.trace(record)
        if trace:
            line["error"] = trace
        return json.dumps(line)


class _Handler(logging.StreamHandler[IO[str]]):
    """A class of its own, so that a second `setup` finds and replaces the first one's."""


def setup(format: str = "text", verbosity: int = 0, stream: IO[str] | None = None) -> logging.Handler:
    """Send every logger's records to `stream` (standard error); may be called again, the last call counts.

    Verbosity 0-3: information and worse; 4 and more: all of ours; 6 and more: the HTTP library's connections too. The
    official client's own loggers stay at warnings, because at debug level they print whole answers, Secrets included.
    """
    handler = _Handler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JSONFormatter() if format == "json" else TextFormatter())
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
