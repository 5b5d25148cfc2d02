"""Health and metrics over plain HTTP: /healthz, /livez, /readyz and /metrics.

Stage: beside all of them. Data comes from the checks that the manager names and from the metrics registry; it goes to
kubelets, load balancers and scrapers. `?verbose` gives the lines of all checks in any case, `?exclude=NAME` leaves a
check out, `/healthz/NAME` asks one alone. There is no authentication here: details are for this machine.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from controllers.app.serving.checks import Check, Checks, report
from controllers.app.serving.http1 import Request, Response
from controllers.app.serving.reception import Reception
from controllers.runtime.cleaning import one_line
from controllers.runtime.metrics import Metrics

log = logging.getLogger(__name__)

_FORWARDED: Final = frozenset(("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip"))

MaySee = Callable[[Request], bool]
"""Whether who sent this request may see the details of checks. Called in the thread that answers."""


def from_this_machine(request: Request) -> bool:
    """Who asks over the loopback, and not on behalf of somebody else. Without authentication nobody else is known."""
    return request.peer in ("127.0.0.1", "::1", "::ffff:127.0.0.1") and not _FORWARDED & request.headers.keys()


class HealthServer:
    """Serves until stopped. `start()` binds and raises OSError when it cannot; `stop()` may be called twice.

    `may_see` decides who gets the details of checks; the names, and what is well, everybody may know. What clients can
    do to each other is bounded by `reception.py`.
    """

    def __init__(
        self,
        address: tuple[str, int],
        endpoints: dict[str, Checks],
        metrics: Callable[[], bytes],
        *,
        may_see: MaySee = from_this_machine,
    ) -> None:
        self._endpoints = endpoints
        self._metrics = metrics
        self._may_see = may_see
        self._reception = Reception(address, self._answer, name="health")

    @property
    def address(self) -> tuple[str, int]:
        """Host and port bound; the asked-for ones before `start()`."""
        return self._reception.address

    @property
    def url(self) -> str:
        """The base URL for people and tests."""
        host, port = self.address
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def start(self) -> None:
        """Bind and serve in the background."""
        self._reception.start()
        log.info("serving health and metrics on %s", self.url)

    def stop(self, timeout: float = 5.0) -> bool:
        """Close the listener and all connections; True when its thread has ended within `timeout`."""
        return self._reception.stop(timeout)

    def _answer(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            return Response(501, b"only GET and HEAD\n")
        try:
            url = urlsplit(request.target)
        except ValueError:  # a stranger's nonsense is no line in our log
            return Response(400, b"not a path\n")
        endpoint, _, part = url.path.strip("/").partition("/")
        if endpoint == "metrics" and not part:
            return Response(200, self._metrics(), Metrics.CONTENT_TYPE)
        if endpoint not in self._endpoints:
            return Response(404, b"not found\n")
        query = parse_qs(url.query, keep_blank_values=True)
        checks = self._ask(endpoint)
        if part:
            checks = [check for check in checks if check.name == unquote(part)]
            if not checks:
                return Response(404, b"no such check\n")
        status, text = report(
            endpoint,
            checks,
            verbose="verbose" in query,
            details=self._may_see(request),
            excluded=query.get("exclude", ()),
        )
        return Response(status, text.encode())

    def _ask(self, endpoint: str) -> list[Check]:
        try:
            return list(self._endpoints[endpoint]())
        except Exception as error:  # a thread's top: a check that fails to answer is a failed check
            log.exception("a health check raised")
            return [Check("checks", False, f"{type(error).__name__}: {one_line(error)}")]
