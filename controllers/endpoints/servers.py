"""The manager's own two ports: plain HTTP for probes and metrics, HTTPS with access control.

Refusals are those of k8s.io/apiserver: 401 for wrong credentials, 403 for missing permissions, 500
when the API server does not answer. What is known here is answered at once; where the API server
must be asked, another pool of threads waits for it, so that probes never do."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Final

from cloudprovider.internal.cleaning import one_line
from controllers.endpoints.access import (
    ANONYMOUS,
    Authentication,
    Authorization,
    TooManyTokens,
    Unauthenticated,
    Undecided,
    User,
)
from controllers.endpoints.health import Checks
from controllers.endpoints.pages import METHODS, Asked, Endpoints, Page, metrics_page
from controllers.endpoints.reviews import NeedsLookup
from controllers.httpserver.messages import Later, Limits, Request, Response
from controllers.httpserver.server import Server
from controllers.httpserver.tls import ServerTLS

log = logging.getLogger(__name__)

_FORWARDED: Final = frozenset(("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip"))


def from_this_machine(request: Request) -> bool:
    """Whether a request comes over the loopback, and not on behalf of someone else. Without
    authentication no other client is known."""
    return request.peer in ("127.0.0.1", "::1", "::ffff:127.0.0.1") and not _FORWARDED & request.headers.keys()


class HealthServer(Server):
    """Health and metrics over plain HTTP, to anyone who can reach the port: --health-bind-address.

    `may_see` decides who gets the details of checks; their names and results are public."""

    def __init__(
        self,
        address: tuple[str, int],
        endpoints: Mapping[str, Checks],
        metrics: Callable[[], bytes],
        *,
        pages: Mapping[str, Page] | None = None,
        may_see: Callable[[Request], bool] = from_this_machine,
    ) -> None:
        """`endpoints`: the checks of "healthz" and its like; `metrics` the text of /metrics;
        `pages` further paths."""
        super().__init__(address, self._respond, name="health")
        self._endpoints = Endpoints(endpoints, {"/metrics": metrics_page(metrics), **(pages or {})})
        self._may_see = may_see

    @property
    def url(self) -> str:
        """The base URL for people and tests."""
        return f"http://{self.place}"

    def start(self) -> None:
        """Bind and serve in the background. Raises OSError."""
        super().start()
        log.info("serving health and metrics on %s", self.url)

    def _respond(self, request: Request) -> Response:
        asked = self._endpoints.find(request)
        if isinstance(asked, Response):
            return asked
        return self._endpoints.answer(asked, details=self._may_see(request))


class SecureServer(Server):
    """HTTPS on --secure-port.

    With `load`, the first certificate may still be missing at `start`: then `tls.load` is called
    before the first connection.
    """

    def __init__(
        self,
        address: tuple[str, int],
        endpoints: Endpoints,
        tls: ServerTLS,
        guards: tuple[Authentication, Authorization],
        *,
        load: bool = False,
        share_port: bool = False,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(
            address,
            self._respond,
            name="https",
            tls=tls.context,
            prepare=tls.load if load else None,
            limits=limits,
            share_port=share_port,
        )
        self._endpoints = endpoints
        self._authentication, self._authorization = guards

    def start(self) -> None:
        """Bind and serve in the background. Raises OSError."""
        super().start()
        log.info("serving HTTPS on %s", self.place)

    def _respond(self, request: Request) -> Response | Later:
        asked = self._endpoints.find(request)
        try:
            return self._admitted(request, asked, ask=False)
        # In another pool: a probe that needs no answer must not wait behind one that does.
        except NeedsLookup:
            return lambda: self._admitted(request, asked, ask=True)

    def _admitted(self, request: Request, asked: Asked | Response, *, ask: bool) -> Response:
        """Raises NeedsLookup when the API server must be asked, and not `ask`."""
        # A wrong method says nothing of what there is; a 404 lists the paths, for those with
        # access.
        if isinstance(asked, Response) and asked.status != 404:
            return asked
        # All paths that do not exist have one name, so that inventing paths makes no questions.
        path = asked.path if isinstance(asked, Asked) else "/"
        verb = request.method.lower()
        try:
            user = self._authentication.user(request, ask=ask)
            # A path that is open to everybody can be read by everybody, not written.
            is_open = request.method in METHODS and self._authorization.is_open(path)
            if not is_open and not self._authorization.may(user, verb, path, ask=ask):
                return _forbidden(user, verb, request)
        except Unauthenticated:
            return _status(401, "Unauthorized", "Unauthorized")
        except TooManyTokens:
            return _status(429, "TooManyRequests", "too many unknown tokens; try again later")
        except Undecided as error:
            return Response(500, f'Internal Server Error: "{path}": {error}\n'.encode())
        if isinstance(asked, Response):
            return Response(404, asked.body + "\n".join(["paths:", *self._endpoints.paths, ""]).encode())
        return self._endpoints.answer(asked, details=self._may_see(user, asked, ask=ask), user=user.name)

    def _may_see(self, user: User, asked: Asked, *, ask: bool) -> bool:
        """Whether to show the reasons of failed checks: to users with access to the page of the
        check, or of all checks. That a path is open to everybody is not enough."""
        # Nothing is asked about clients without credentials: probes never wait.
        if not asked.name or user == ANONYMOUS:
            return False
        try:
            return self._authorization.may(user, "get", f"/{asked.name}/{asked.part or '*'}", ask=ask)
        except Undecided:
            return False


def _forbidden(user: User, verb: str, request: Request) -> Response:
    name, path = one_line(user.name, 200), one_line(request.target.partition("?")[0], 200)
    return _status(403, "Forbidden", f'forbidden: User "{name}" cannot {verb} path "{path}"')


def _status(code: int, reason: str, message: str) -> Response:
    """A Status object of the Kubernetes API."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    return Response(code, json.dumps(body, indent=2).encode() + b"\n", "application/json")
