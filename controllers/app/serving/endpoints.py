"""What is answered on each path; nothing about who may ask.

Stage: beside all of them. Data comes from the manager's checks and from functions that make a page; the answers go to
`plain.py` and `secure.py`. A health endpoint has a path for each of its checks too: `/healthz`, `/healthz/NAME`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

import attrs

from controllers.app.serving.checks import Check, Checks, report
from controllers.app.serving.http1 import Request, Response
from controllers.runtime.cleaning import one_line

__all__ = ["Asked", "Endpoints", "Page"]

log = logging.getLogger(__name__)

Page = Callable[[], Response]
"""Makes the answer of one path. Called in the threads that answer, several at once; must not block."""
METHODS: Final = ("GET", "HEAD")


@attrs.frozen
class Asked:
    """A request for something that there is."""

    path: str
    checks: Sequence[Check] = ()
    """Of a health endpoint, or the one of them that is asked for."""
    name: str = ""
    """The health endpoint; empty for a page."""
    part: str = ""
    """The check that is asked for alone."""
    verbose: bool = False
    excluded: tuple[str, ...] = ()


class Endpoints:
    """Thread-safe. `health` holds the checks of "healthz" and its like; `pages` the other paths, with their slash."""

    def __init__(self, health: Mapping[str, Checks], pages: Mapping[str, Page]) -> None:
        self._health = dict(health)
        self._pages = dict(pages)

    @property
    def paths(self) -> list[str]:
        """Every path, without those of single checks."""
        return sorted([*(f"/{name}" for name in self._health), *self._pages])

    def find(self, request: Request) -> Asked | Response:
        """What is asked for, or the answer to what cannot be asked: another method, no path at all, no such path."""
        if request.method not in METHODS:
            return Response(405, b"only GET and HEAD\n", headers=(("Allow", ", ".join(METHODS)),))
        try:
            url = urlsplit(request.target)
        except ValueError:  # a stranger's nonsense is no line in our log
            return Response(400, b"not a path\n")
        path = "/" + url.path.strip("/")
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
            checks,
            name,
            part,
            "verbose" in query,
            tuple(query.get("exclude", ())),
        )

    def answer(self, asked: Asked, *, details: bool) -> Response:
        """The answer; the reasons of failed checks only with `details`."""
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
