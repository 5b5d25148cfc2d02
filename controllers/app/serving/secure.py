"""HTTPS with authentication and authorization: --secure-port.

Stage: beside all of them. A request comes from `server.py`; who it is says `authentication.py`, whether they may
`authorization.py`, and what they get `endpoints.py`. Those who may not get the answers of k8s.io/apiserver: 401 for
wrong credentials, 403 for missing rights, 500 when the API server does not say. What is known here is answered at once;
where the API server must be asked, another crew of threads waits for it, so that probes never do.
"""

from __future__ import annotations

import json
import logging

from controllers.app.serving.authentication import ANONYMOUS, Authentication, Unauthenticated, User
from controllers.app.serving.authorization import Authorization, CannotTell
from controllers.app.serving.endpoints import Asked, Endpoints
from controllers.app.serving.http1 import Request, Response
from controllers.app.serving.reviews import AskFirst
from controllers.app.serving.server import Later, Server
from controllers.app.serving.tls import ServerTLS
from controllers.runtime.cleaning import one_line

__all__ = ["SecureServer"]

log = logging.getLogger(__name__)


class SecureServer:
    """Serves until stopped. `start()` binds and raises OSError when it cannot; `stop()` may be called twice.

    The first certificate may still be missing at `start()`: then `tls.load` is called before the first connection.
    """

    def __init__(
        self,
        address: tuple[str, int],
        endpoints: Endpoints,
        tls: ServerTLS,
        authentication: Authentication,
        authorization: Authorization,
        *,
        load: bool = False,
        share_port: bool = False,
    ) -> None:
        self._endpoints = endpoints
        self._authentication = authentication
        self._authorization = authorization
        prepare = tls.load if load else _nothing
        self._server = Server(
            address, self._answer, name="https", tls=tls.context, prepare=prepare, share_port=share_port
        )

    @property
    def address(self) -> tuple[str, int]:
        """Host and port bound; the asked-for ones before `start()`."""
        return self._server.address

    def start(self) -> None:
        """Bind and serve in the background."""
        self._server.start()
        host, port = self.address
        log.info("serving HTTPS on %s:%d", f"[{host}]" if ":" in host else host, port)

    def stop(self, timeout: float = 5.0) -> bool:
        """Close the listener and all connections; True when its thread has ended within `timeout`."""
        return self._server.stop(timeout)

    def _answer(self, request: Request) -> Response | Later:
        asked = self._endpoints.find(request)
        try:
            return self._admitted(request, asked, ask=False)
        except AskFirst:
            return lambda: self._admitted(request, asked, ask=True)

    def _admitted(self, request: Request, asked: Asked | Response, *, ask: bool) -> Response:
        """Raises AskFirst when the API server must be asked, and not `ask`."""
        if isinstance(asked, Response) and asked.status != 404:
            return asked
        # Whatever there is not has one name, so that inventing paths makes no questions.
        path = asked.path if isinstance(asked, Asked) else "/"
        verb = request.method.lower()
        try:
            user = self._authentication.user(request, ask=ask)
            if not self._authorization.is_open(path) and not self._authorization.may(user, verb, path, ask=ask):
                return _forbidden(user, verb, request)
        except Unauthenticated:
            return _status(401, "Unauthorized", "Unauthorized")
        except CannotTell as error:
            return Response(500, f'Internal Server Error: "{path}": {error}\n'.encode())
        if isinstance(asked, Response):
            return Response(404, asked.body + "\n".join(["paths:", *self._endpoints.paths, ""]).encode())
        return self._endpoints.answer(asked, details=self._may_see(user, asked, ask=ask))

    def _may_see(self, user: User, asked: Asked, *, ask: bool) -> bool:
        """The reasons of failed checks: for who has a right to the page of the check, or of all checks.

        That a path is open to everybody is not enough. Nobody is asked about those who gave no credentials, so that a
        probe is always answered at once.
        """
        if not asked.name or user == ANONYMOUS:
            return False
        try:
            return self._authorization.may(user, "get", f"/{asked.name}/{asked.part or '*'}", ask=ask)
        except CannotTell:
            return False


def _nothing() -> None:
    pass


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
