"""Health and metrics over plain HTTP, to anyone who can reach the port: --health-bind-address.

Stage: beside all of them. What is answered is `endpoints.py`'s. There is no authentication here: the reasons of failed
checks are for this machine alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from controllers.app.serving.checks import Checks
from controllers.app.serving.endpoints import Endpoints, Page
from controllers.app.serving.http1 import Request, Response
from controllers.app.serving.pages import metrics_page
from controllers.app.serving.server import Server

__all__ = ["HealthServer", "MaySee", "from_this_machine"]

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
    do to each other is bounded by `server.py`.
    """

    def __init__(
        self,
        address: tuple[str, int],
        endpoints: Mapping[str, Checks],
        metrics: Callable[[], bytes],
        *,
        pages: Mapping[str, Page] | None = None,
        may_see: MaySee = from_this_machine,
    ) -> None:
        """`endpoints`: the checks of "healthz" and its like; `metrics` the text of /metrics; `pages` further paths."""
        self._endpoints = Endpoints(endpoints, {"/metrics": metrics_page(metrics), **(pages or {})})
        self._may_see = may_see
        self._server = Server(address, self._answer, name="health")

    @property
    def address(self) -> tuple[str, int]:
        """Host and port bound; the asked-for ones before `start()`."""
        return self._server.address

    @property
    def url(self) -> str:
        """The base URL for people and tests."""
        host, port = self.address
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def start(self) -> None:
        """Bind and serve in the background."""
        self._server.start()
        log.info("serving health and metrics on %s", self.url)

    def stop(self, timeout: float = 5.0) -> bool:
        """Close the listener and all connections; True when its thread has ended within `timeout`."""
        return self._server.stop(timeout)

    def _answer(self, request: Request) -> Response:
        asked = self._endpoints.find(request)
        if isinstance(asked, Response):
            return asked
        return self._endpoints.answer(asked, details=self._may_see(request))
