"""The HTTPS server of the webhooks, with its certificate: built from the options, started, stopped.

It runs on every replica, because the API server calls any that its Service leads to. Every client
that reaches the port may ask: the API server shows webhooks no credentials, unless an admin gives
it some. With --webhook-client-ca-file no other client is answered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from cloudprovider.host import StopSignal
from cloudprovider.internal.cleaning import text_of
from controllers.endpoints.health import Check
from controllers.endpoints.serving import ServingError, client_ca, minimum_version, refusing
from controllers.httpserver.certificates import FilePair, FolderPair, PairSource
from controllers.httpserver.messages import Limits
from controllers.httpserver.pairs import Expiry, inspect
from controllers.httpserver.server import Server
from controllers.httpserver.tls import LOOK_SECONDS, ServerTLS
from controllers.registration.entry import Rule
from controllers.runtime.api import RestClient
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import seconds_text
from controllers.webhooks.options import WebhookOptions
from controllers.webhooks.rbac_rules import CONFIGURATION_RULES, NAME, WEBHOOK_RULES
from controllers.webhooks.router import LONGEST, THREADS, WebhookRouter
from controllers.webhooks.trust import DNS_NAMES, RETRY_SECONDS, CABundle, SharedPair
from controllers.webhooks.webhook import Webhook

log = logging.getLogger(__name__)

# Reviews under way, each with a thread, so that none waits for another one's.
_WAITING: Final = 2 * THREADS
_BODIES: Final = 4 * 2**20


def limits_of(webhooks: Iterable[Webhook], *, certificates: bool) -> Limits:
    """What a server of these webhooks takes. Pure."""
    greatest = max((one.max_body for one in webhooks), default=1)
    return Limits(
        max_body=greatest,
        all_bodies=max(_BODIES, 4 * greatest),
        require_certificate=certificates,
        answer_seconds=LONGEST + 5.0,
        idle_seconds=120.0,  # API servers: 90
        slow_threads=_WAITING,
        slow_places=_WAITING,
        slow_per_peer=_WAITING - 1,
    )


class WebhookServing:
    """`start` once, `stop` any number of times; `run` in its own thread while it serves.

    `rest` is the guarded client, and `leads()` says whether this process may write now.
    """

    def __init__(
        self,
        options: WebhookOptions,
        router: WebhookRouter,
        rest: RestClient,
        *,
        leads: Callable[[], bool],
        metrics: Metrics,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Raises ServingError where the given certificate or client CA cannot be used."""
        self._options = options
        self._router = router
        self._leads = leads
        self._clock = clock
        self._bundle = CABundle(rest, clock)
        # What the API server is to trust; empty: others see to it.
        self._authorities: Callable[[], bytes] = bytes
        self.rules: tuple[Rule, ...] = ()
        """What its certificate needs of the API server."""
        minimum = minimum_version(options.tls_min_version)
        ca_file = options.client_ca_file
        authority = client_ca("--webhook-client-ca-file", ca_file) if ca_file else None
        expiry, pairs = Expiry("webhook", metrics, clock), self._pairs(rest)
        self._tls = ServerTLS(pairs, authority, minimum, options.tls_cipher_suites, served=expiry.look)
        self._loaded = False
        address = (options.bind_address, options.secure_port)
        limits = limits_of(router.webhooks, certificates=authority is not None)
        self._server = Server(address, router.answer, name="webhooks", tls=self._tls.context, limits=limits)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port bound; the asked-for ones before `start`."""
        return self._server.address

    def start(self) -> None:
        """Bind, and serve in the background; refuse without certificate. Raises ServingError."""
        try:
            self._server.start()
        except OSError as error:
            flags = "--webhook-bind-address={}, --webhook-secure-port={}".format(*self.address)
            raise ServingError(f"{flags}: cannot listen there: {error.strerror or error}") from error
        names = ", ".join(f"{webhook.name} at {webhook.path}" for webhook in self._router.webhooks)
        log.info("serving webhooks on %s: %s", self._server.place, names)

    def stop(self, seconds: float) -> bool:
        """Close the port and all connections; True when its thread has ended in time."""
        return self._server.stop(seconds)

    def run(self, stop: StopSignal) -> None:
        """Follow the certificate, have the API server trust a self-signed one, until stopped."""
        while True:
            try:
                self._look()
            except Exception:  # a thread's top: the certificate before stays in use
                log.exception("the webhook server's certificate could not be looked at; trying again")
            if stop.wait(LOOK_SECONDS if self._loaded else RETRY_SECONDS):
                return

    def ready(self) -> list[Check]:
        """Whether reviews can be answered: for /readyz, so no Service leads to one that cannot."""
        return [Check("webhooks", self._loaded, "" if self._loaded else "there is no certificate yet")]

    def checks(self) -> Iterable[Check]:
        """Handlers that hang, for /healthz."""
        late = self._router.overdue()
        shown = ", ".join(f"{name} for {seconds_text(seconds)}" for name, seconds in late[:3])
        return [Check("webhook-handlers", not late, f"{len(late)} have not returned: {shown}" if late else "")]

    def _look(self) -> None:
        if not self._loaded:
            # No failure: on a new cluster the replicas wait for the leader's first certificate.
            try:
                self._tls.load()
            except OSError as error:
                log.debug("the webhook server has no certificate yet: %s", text_of(error))
                return
            self._loaded = True
        if self._leads() and (bundle := self._authorities()):
            self._bundle.look(bundle)  # first: a renewed certificate is trusted before it is served
        self._tls.look()  # after the first load too: that asks for no client CA

    def _pairs(self, rest: RestClient) -> PairSource:
        options = self._options
        # The operator's own certificate: its CA is the operator's affair, and needs no permission.
        if options.tls_cert_file:
            return self._tried(FilePair(options.tls_cert_file, options.tls_private_key_file), "--webhook-tls-cert-file")
        if options.cert_dir:
            with refusing(f"--webhook-cert-dir={options.cert_dir}"):
                pair = FolderPair(options.cert_dir, DNS_NAMES, pair_name=NAME, clock=self._clock)
            # A replica that shares the folder may serve the former one for a moment still.
            self._authorities = lambda: _self_signed(pair) + pair.former
            self.rules = CONFIGURATION_RULES if _self_signed(pair) else ()
            return self._tried(pair, "--webhook-cert-dir")
        shared = SharedPair(rest, leads=self._leads, announce=self._bundle.ensure, clock=self._clock)
        self._authorities = lambda: shared.authorities
        self.rules = WEBHOOK_RULES
        return shared

    def _tried(self, pair: FilePair, flag: str) -> FilePair:
        with refusing(f"{flag}: webhooks cannot be served with {pair.name}"):
            ServerTLS(pair).load()
        return pair


def _self_signed(pair: FilePair) -> bytes:
    """The certificate, where it is self-signed."""
    try:
        held = pair.read()
        return held.certificate if inspect(held).self_signed else b""
    except OSError as error:  # the TLS context says so too, and keeps the one before
        log.debug("%s: %s", pair.name, text_of(error))
        return b""
