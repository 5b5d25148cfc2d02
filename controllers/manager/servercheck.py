"""Does the API server answer, and take our credentials? /healthz shows it, /livez where a restart
may help, and a log line says what to look at. Where the kubeconfig now names another server, the
process ends once the former one cannot be used any more."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from cloudprovider.host import StopSignal
from controllers.endpoints.health import Check
from controllers.runtime.api import ApiError, CredentialsUnavailable, RestClient, Unauthorized, Unreachable
from controllers.runtime.clock import Clock

log = logging.getLogger(__name__)

ASK_SECONDS: Final = 5.0
"""Between two questions while the server answers."""
_ASK_AGAIN: Final = 1.0  # seconds until the next question while it does not
_TIMEOUT: Final = 4.0
# Seconds without an answer until it counts: one broken connection is nothing.
_PATIENCE: Final = 2.0
# Seconds for which our credentials fail until it counts: they rotate, and a server starts.
_REFUSED: Final = 10.0
# Seconds after which a restart may help: who leads has lost the lease long before.
_LOST: Final = 60.0


def advice(rest: RestClient, server: str) -> str:
    """What to look at while the API server gives no first answer, for the end of a log line; ""
    while it answers."""
    if rest.reachability.down_since is None:
        return ""
    return (
        f". The manager keeps trying. Check that {server} is the API server's address (server: in the kubeconfig, or "
        "--master), that it runs, and that DNS, a firewall or a proxy does not keep this process from it"
    )


class ServerCheck:
    """Asks every few seconds whether the API server answers, so that /healthz knows it soon.

    Every request of every client reports how it ended to `runtime/api/reachability.py`. Where
    nothing else is asked, or an answer never comes (a server that stands still, a network that
    swallows), the question from here does. `run` once in a thread; `checks` from any."""

    def __init__(
        self,
        rest: RestClient,
        clock: Clock,
        *,
        needs_restart: Callable[[], str] = str,
        end: Callable[[str], object] = lambda _why: None,
    ) -> None:
        """`needs_restart()` says what has changed that this process cannot use, or "";
        `end(why)` ends the process."""
        self._rest = rest
        self._clock = clock
        self._needs_restart = needs_restart
        self._end = end
        self._refused: tuple[float, str] | None = None  # since when our credentials fail, and how

    def run(self, stop: StopSignal) -> None:
        """Ask /readyz, whose answer may be anything but 401: what counts is that there is one."""
        while True:
            try:
                self._rest.request("GET", "/readyz", accept="*/*", timeout=_TIMEOUT)
                self._refused = None
            except ApiError as error:
                log.debug("the API server's /readyz: %s", error)
                # Since the first of a row: credentials rotate, and a server that starts refuses
                # good ones.
                if isinstance(error, Unauthorized | CredentialsUnavailable):
                    since = self._clock.monotonic() if self._refused is None else self._refused[0]
                    self._refused = since, str(error)
                elif not isinstance(error, Unreachable):  # no answer says nothing of them
                    self._refused = None
            # While the former server answers, this process works on: only without it a restart
            # helps.
            if (changed := self._needs_restart()) and (why := self._lost()):
                self._end(f"{changed}, and {why}; only a restart takes that over")
                return
            if stop.wait(ASK_SECONDS if self._rest.reachability.down_since is None else _ASK_AGAIN):
                return

    def checks(self) -> list[Check]:
        """One check, `api-server`."""
        reachability = self._rest.reachability
        since, error, refused = reachability.down_since, reachability.error, self._refused_for(_REFUSED)
        if since is not None and self._clock.monotonic() - since >= _PATIENCE:
            return [Check("api-server", False, f"no answer: {error}")]
        return [Check("api-server", not refused, refused)]

    def liveness(self) -> list[Check]:
        """One check, `credentials`: a new process reads everything again."""
        refused = self._refused_for(_LOST)
        return [Check("credentials", not refused, refused)]

    def _lost(self) -> str:
        """Why there is nothing left to wait for, or ""."""
        since = self._rest.reachability.down_since
        if since is not None and self._clock.monotonic() - since >= _LOST:
            return f"the former server does not answer: {self._rest.reachability.error}"
        return self._refused_for(_REFUSED)

    def _refused_for(self, seconds: float) -> str:
        """How our credentials have failed for so long, or ""."""
        refused = self._refused
        if refused is None or self._clock.monotonic() - refused[0] < seconds:
            return ""
        return f"our credentials fail: {refused[1]}"
