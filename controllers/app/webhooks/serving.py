"""The HTTPS server of the webhooks, with its certificate: built from the options, started, stopped.

Stage: beside all of them. Reviews come from the API server over `controllers/app/serving/server.py`, which bounds
clients and bodies, and are answered by `controllers/admission/`. It runs on every replica, because the API server calls
whichever its Service leads to. Who may reach the port may ask: the API server shows webhooks no credentials, unless an
admin gives it some, and all that can be had here is what a volume of that name would get.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from cloudprovider.host import StopSignal
from controllers.admission import MAX_BODY, Desk, Reply
from controllers.admission.desk import LONGEST
from controllers.app.serving.certificates import FilePair, PairSource, folder_pair
from controllers.app.serving.checks import Check
from controllers.app.serving.http1 import Request, Response
from controllers.app.serving.limits import Limits
from controllers.app.serving.server import Later, Server
from controllers.app.serving.setup import ServingError, minimum_version
from controllers.app.serving.tls import LOOK_SECONDS, ServerTLS
from controllers.app.webhooks.inspection import inspect
from controllers.app.webhooks.options import WebhookOptions
from controllers.app.webhooks.rights import NAME
from controllers.app.webhooks.sharedpair import DNS_NAMES, RETRY_SECONDS, SharedPair
from controllers.app.webhooks.trust import Trust
from controllers.runtime.api import RestClient
from controllers.runtime.cleaning import text_of
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.queue import seconds_text

__all__ = ["LIMITS", "WebhookServing"]

log = logging.getLogger(__name__)

_WAITING: Final = 64  # threads that wait for handlers, and reviews that wait for one of them
LIMITS: Final = Limits(
    max_body=MAX_BODY,
    all_bodies=2 * MAX_BODY,
    answer_seconds=LONGEST + 5.0,
    idle_seconds=120.0,  # API servers: 90
    slow_answerers=_WAITING,
    slow_places=2 * _WAITING,
    slow_per_peer=2 * _WAITING,  # all reviews come from a few API servers
)


class WebhookServing:
    """`start` once, `stop` any number of times; `run` in a thread of its own while it serves.

    `rest` is the guarded client, and `leads()` says whether this process may write now.
    """

    def __init__(
        self,
        options: WebhookOptions,
        desk: Desk,
        rest: RestClient,
        *,
        leads: Callable[[], bool],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Raises ServingError where the given certificate cannot be used."""
        self._options = options
        self._desk = desk
        self._leads = leads
        self._clock = clock
        self._trust = Trust(rest, clock)
        self._authorities: Callable[[], bytes] = bytes  # what the API server is to trust; empty: others see to it
        minimum = minimum_version(options.tls_min_version)
        self._tls = ServerTLS(self._pairs(rest), minimum=minimum, ciphers=options.tls_cipher_suites)
        self._loaded = False
        address = (options.bind_address, options.secure_port)
        self._server = Server(address, self._answer, name="webhooks", tls=self._tls.context, limits=LIMITS)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port bound; the asked-for ones before `start`."""
        return self._server.address

    def start(self) -> None:
        """Bind, and serve in the background; without a certificate connections are refused. Raises ServingError."""
        host, port = self._server.address
        try:
            self._server.start()
        except OSError as error:
            flags = f"--webhook-bind-address={host}, --webhook-secure-port={port}"
            raise ServingError(f"{flags}: cannot listen there: {error.strerror or error}") from error
        host, port = self._server.address
        names = ", ".join(f"{webhook.name} at {webhook.path}" for webhook in self._desk.webhooks)
        log.info("serving webhooks on %s:%d: %s", f"[{host}]" if ":" in host else host, port, names)

    def stop(self, seconds: float) -> bool:
        """Close the port and all connections; True when its thread has ended in time."""
        return self._server.stop(seconds)

    def run(self, stop: StopSignal) -> None:
        """Follow the certificate, and have the API server trust a self-signed one, until stopped."""
        while True:
            try:
                self._look()
            except Exception:  # a thread's top: the certificate before stays in use
                log.exception("the webhook server's certificate could not be looked at; trying again")
            if stop.wait(LOOK_SECONDS if self._loaded else RETRY_SECONDS):
                return

    def ready(self) -> list[Check]:
        """Whether reviews can be answered: for /readyz, so that no Service leads to a replica that cannot."""
        return [Check("webhooks", self._loaded, "" if self._loaded else "there is no certificate yet")]

    def checks(self) -> Iterable[Check]:
        """Handlers that hang, for /healthz."""
        late = self._desk.overdue()
        shown = ", ".join(f"{name} for {seconds_text(seconds)}" for name, seconds in late[:3])
        return [Check("webhook-handlers", not late, f"{len(late)} past their deadline: {shown}" if late else "")]

    def _look(self) -> None:
        if self._loaded:
            self._tls.look()
        else:
            self._load()
        if self._loaded and self._leads() and (bundle := self._authorities()):
            self._trust.look(bundle)

    def _load(self) -> None:
        try:
            self._tls.load()
        except OSError as error:
            log.debug("the webhook server has no certificate yet: %s", text_of(error))
        else:
            self._loaded = True

    def _pairs(self, rest: RestClient) -> PairSource:
        options = self._options
        if options.tls_cert_file:
            return self._tried(FilePair(options.tls_cert_file, options.tls_private_key_file), "--webhook-tls-cert-file")
        if options.cert_dir:
            try:
                pair = folder_pair(options.cert_dir, DNS_NAMES, pair_name=NAME)
            except OSError as error:
                raise ServingError(f"--webhook-cert-dir={options.cert_dir}: {text_of(error)}") from error
            self._authorities = lambda: _self_signed(pair)
            return self._tried(pair, "--webhook-cert-dir")
        shared = SharedPair(rest, leads=self._leads, announce=self._trust.ensure, clock=self._clock)
        self._authorities = lambda: shared.authorities
        return shared

    def _tried(self, pair: FilePair, flag: str) -> FilePair:
        try:
            ServerTLS(pair).load()
        except OSError as error:
            raise ServingError(f"{flag}: webhooks cannot be served with {pair.name}: {text_of(error)}") from error
        return pair

    def _answer(self, request: Request) -> Response | Later:
        reply = self._desk.answer(request)
        if isinstance(reply, Reply):
            return _response(reply)
        return lambda: _response(reply())


def _self_signed(pair: FilePair) -> bytes:
    """The certificate, where it is self-signed."""
    try:
        held = pair.read()
        return held.certificate if inspect(held).self_signed else b""
    except OSError as error:  # the TLS context says so too, and keeps the one before
        log.debug("%s: %s", pair.name, text_of(error))
        return b""


def _response(reply: Reply) -> Response:
    headers = (("Allow", "POST"),) if reply.status == 405 else ()
    return Response(reply.status, reply.body, "application/json", headers)
