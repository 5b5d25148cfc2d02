"""What is answered on each path, and the pages beside health: metrics, effective configuration,
flags, status, stacks of threads. Nothing about who may ask.

A health endpoint has a path for each of its checks too: `/healthz`, `/healthz/NAME`. /statusz has
the form of k8s.io/component-base zpages/statusz: lines of `name: value` for people.
"""

from __future__ import annotations

import json
import logging
import platform
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

import attrs

from cloudprovider.internal.cleaning import one_line
from controllers.endpoints.health import SLI_SAMPLES, Check, Checks, report
from controllers.httpserver.messages import Request, Response
from controllers.process import logs
from controllers.program import version
from controllers.runtime.metrics import Metrics

log = logging.getLogger(__name__)

MOST_VERBOSE: Final = 10
"""The greatest value of --v."""
_THREADS: Final = 1000
_FRAMES: Final = 50


Page = Callable[[], Response]
"""Makes the answer of one path. Called in threads that answer, several at once; never blocks."""
Setter = Callable[[bytes, str], Response]
"""Does what the body of a PUT says, for the user of this name; likewise."""
METHODS: Final = ("GET", "HEAD")


@attrs.frozen
class Asked:
    """A request for something that there is."""

    path: str
    body: bytes | None = None
    """Of a PUT."""
    checks: Sequence[Check] = ()
    """Of a health endpoint, or the one of them that is asked for."""
    name: str = ""
    """The health endpoint; empty for a page."""
    part: str = ""
    """The check that is asked for alone."""
    verbose: bool = False
    excluded: tuple[str, ...] = ()


class Endpoints:
    """Thread-safe. `health` holds the checks of "healthz" and its like; `pages` has other paths,
    and `setters` those that take PUT alone."""

    def __init__(
        self, health: Mapping[str, Checks], pages: Mapping[str, Page], setters: Mapping[str, Setter] | None = None
    ) -> None:
        self._health = dict(health)
        self._pages = dict(pages)
        self._setters = dict(setters or {})

    @property
    def paths(self) -> list[str]:
        """Every path, without those of single checks."""
        return sorted([*(f"/{name}" for name in self._health), *self._pages, *self._setters])

    def find(self, request: Request) -> Asked | Response:
        """What is asked for, or the answer to what cannot be asked: wrong method, no such path."""
        try:
            url = urlsplit(request.target)
        except ValueError:  # a stranger's nonsense is no line in our log
            return Response(400, b"not a path\n")
        # /healthz/ is /healthz, as for Go.
        path = "/" + url.path.strip("/")
        methods = ("PUT",) if path in self._setters else METHODS
        if request.method not in methods:
            text = f"only {' and '.join(methods)}\n"
            return Response(405, text.encode(), headers=(("Allow", ", ".join(methods)),))
        # Only PUT: a link that somebody opens must change nothing.
        if path in self._setters:
            return Asked(path, request.body)
        if path in self._pages:
            return Asked(path)
        name, _, part = path[1:].partition("/")
        if name not in self._health:
            return Response(404, b"not found\n")
        checks = self._ask(name)
        if part:
            part = unquote(part)
            checks = [check for check in checks if check.name == part]
            if not checks:
                return Response(404, b"no such check\n")
        query = parse_qs(url.query, keep_blank_values=True)
        return Asked(
            f"/{name}{'/' if part else ''}{part}",
            checks=checks,
            name=name,
            part=part,
            verbose="verbose" in query,
            excluded=tuple(query.get("exclude", ())),
        )

    def answer(self, asked: Asked, *, details: bool, user: str = "") -> Response:
        """The answer; the reasons of failed checks only with `details`."""
        if asked.body is not None:
            return self._setters[asked.path](asked.body, user)
        if not asked.name:
            return self._pages[asked.path]()
        status, text = report(asked.name, asked.checks, verbose=asked.verbose, details=details, excluded=asked.excluded)
        return Response(status, text.encode())

    def _ask(self, name: str) -> list[Check]:
        try:
            return list(self._health[name]())
        except Exception as error:  # a thread's top: a check that fails to answer is a failed check
            log.exception("a health check raised")
            return [Check("checks", False, f"{type(error).__name__}: {one_line(error)}")]


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


def set_verbosity(body: bytes, user: str) -> Response:
    """The log's verbosity becomes the number in the body, as with Go's /debug/flags/v."""
    text = body.decode("ascii", "replace").strip()
    if not text.isdecimal() or int(text) > MOST_VERBOSE:
        return Response(400, f"the body is to be the verbosity, a number from 0 to {MOST_VERBOSE}\n".encode())
    if not logs.set_verbosity(int(text)):
        return Response(409, b"this program has a log of its own\n")
    log.info("the log's verbosity is %d now: set by %s", int(text), one_line(user, 200))
    return Response(200, f"the verbosity is {int(text)} now\n".encode())


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
        f"Binary version: {version()}",
        f"Paths: {' '.join(paths)}",
    ]
    return "\n".join(lines) + "\n"


def threads() -> str:
    """The stack of every thread: files, lines and source, no values of variables."""
    known = {thread.ident: thread for thread in threading.enumerate()}
    frames = sorted(sys._current_frames().items(), key=lambda item: _name(known.get(item[0])))
    lines = [f"{len(frames)} threads"]
    # A manager that leaks threads is when this page is needed: it must not be endless.
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
    text = time.asctime(time.gmtime(seconds))
    return f"{text[:-4]}UTC {text[-4:]}"
