"""The pages beside health: metrics, effective configuration, flags, status, stacks of threads.

Stage: beside all of them. Data comes from the registry of metrics and from the process itself; the text goes to
`endpoints.py`. Nothing here blocks. /statusz has the form of k8s.io/component-base zpages/statusz: lines of
`name: value` for people.
"""

from __future__ import annotations

import json
import platform
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from types import FrameType
from typing import Any, Final

from controllers.app.serving.endpoints import Page
from controllers.app.serving.http1 import Response
from controllers.app.serving.slis import SLI_SAMPLES
from controllers.runtime.cleaning import one_line
from controllers.runtime.metrics import Metrics

__all__ = ["json_page", "metrics_page", "sli_page", "statusz", "text_page", "threads"]

_THREADS: Final = 1000
_FRAMES: Final = 50
_DISTRIBUTION: Final = "kubernetes-cloud-provider"
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def metrics_page(text: Callable[[], bytes]) -> Page:
    """What this function returns, as metrics in the Prometheus text format."""
    return lambda: Response(200, text(), Metrics.CONTENT_TYPE)


def sli_page(metrics: Metrics) -> Page:
    """What health came to, alone: cheap enough to be read every few seconds."""
    return metrics_page(lambda: metrics.text(only=SLI_SAMPLES))


def text_page(make: Callable[[], str]) -> Page:
    """What this function returns, as text."""
    return lambda: Response(200, make().encode("utf-8", "replace"))


def json_page(make: Callable[[], Mapping[str, Any]]) -> Page:
    """What this function returns, as JSON."""
    return lambda: Response(200, json.dumps(make()).encode() + b"\n", "application/json")


def statusz(program: str, started: float, now: float, paths: Sequence[str]) -> str:
    """Name, start, time since, versions and paths; the times in seconds since the epoch. Pure."""
    up = max(0, int(now - started))
    lines = [
        "",
        f"{program} statusz",
        "Warning: for people who look for a problem. This text is no interface: its form may change at any time.",
        "",
        f"Started: {_date(started)}",
        f"Up: {up // 3600} hr {up // 60 % 60:02d} min {up % 60:02d} sec",
        f"Python version: {platform.python_version()}",
        f"Binary version: {_version()}",
        f"Paths: {' '.join(paths)}",
    ]
    return "\n".join(lines) + "\n"


def threads() -> str:
    """The stack of every thread: files, lines and source, no values of variables."""
    known = {thread.ident: thread for thread in threading.enumerate()}
    frames = sorted(sys._current_frames().items(), key=lambda item: _name(known.get(item[0])))
    lines = [f"{len(frames)} threads"]
    for ident, frame in frames[:_THREADS]:
        thread = known.get(ident)
        lines += ["", f"{one_line(_name(thread), 200)}{' (daemon)' if thread is not None and thread.daemon else ''}"]
        lines += [f"  {one_line(line)}" for line in _stack(frame)]
    return "\n".join(lines) + "\n"


def _name(thread: threading.Thread | None) -> str:
    return "unknown to Python" if thread is None else thread.name


def _stack(frame: FrameType) -> list[str]:
    """Outermost first; of a deep one the innermost part."""
    summary = traceback.StackSummary.extract(traceback.walk_stack(frame), limit=_FRAMES, lookup_lines=True)
    summary.reverse()
    return [line for entry in summary.format() for line in entry.rstrip("\n").split("\n")]


def _date(seconds: float) -> str:
    """As Go's time.UnixDate, whatever the locale."""
    at = time.gmtime(seconds)
    return (
        f"{_DAYS[at.tm_wday]} {_MONTHS[at.tm_mon - 1]} {at.tm_mday:2d} "
        f"{at.tm_hour:02d}:{at.tm_min:02d}:{at.tm_sec:02d} UTC {at.tm_year}"
    )


def _version() -> str:
    try:
        return version(_DISTRIBUTION)
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "unknown"
