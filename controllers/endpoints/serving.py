"""The manager's servers, built from its options: what they need, and their start and stop.

The manager starts them first and stops them last, so that probes are always answered.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from cloudprovider.host import StopSignal
from cloudprovider.internal.cleaning import text_of
from controllers.endpoints import pages
from controllers.endpoints.access import Authentication, Authorization, ClusterCA
from controllers.endpoints.health import ENDPOINTS, Health
from controllers.endpoints.options import ServingOptions
from controllers.endpoints.pages import Endpoints, Page
from controllers.endpoints.reviews import ACCESS_RULE, TOKEN_RULE, Reviewer
from controllers.endpoints.servers import HealthServer, SecureServer
from controllers.httpserver.certificates import (
    AuthoritySource,
    FileCA,
    FilePair,
    FolderPair,
    MemoryPair,
    NoCA,
    PairSource,
    names_for,
)
from controllers.httpserver.messages import Limits
from controllers.httpserver.pairs import Expiry
from controllers.httpserver.tls import ServerTLS, trust
from controllers.program import PROGRAM
from controllers.registration.entry import Rule
from controllers.runtime.api import ClientBuilder, ClientConfigError, ClientSettings, RestClient
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.metrics import Metrics

log = logging.getLogger(__name__)

_STOP: Final = 5.0  # seconds for both servers
LIMITS: Final = Limits(max_body=64, all_bodies=64 * 256)
"""Of HTTPS: the one body that is taken is a number."""


def minimum_version(name: str) -> ssl.TLSVersion:
    """What --tls-min-version and its like ask for; nothing below 1.2 is ever used."""
    return ssl.TLSVersion.TLSv1_3 if name == "VersionTLS13" else ssl.TLSVersion.TLSv1_2


class ServingError(Exception):
    """Nothing can be served as it is asked for. The message names the flag."""


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """An OSError in the body becomes a ServingError: "what: why"."""
    try:
        yield
    except OSError as error:
        raise ServingError(f"{what}: {text_of(error)}") from error


def client_ca(flag: str, path: str) -> FileCA:
    """The client CA in this file, checked. Raises ServingError."""
    given = FileCA(path)
    with refusing(f"{flag}={path}"):
        trust(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), given.read())
    return given


class Serving:
    """`start` once, `stop` any number of times; `run` in its own thread while it serves."""

    def __init__(
        self,
        options: ServingOptions,
        health: Health,
        metrics: Metrics,
        clients: ClientBuilder,
        *,
        plain: tuple[str, int] | None = None,
        settings: Mapping[str, Page] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`plain`: the address for health and metrics over HTTP, if any. `settings`: pages with the
        program's settings, by path; over HTTPS only. Raises ServingError.
        """
        self._options = options
        self._metrics = metrics
        self._clients = clients
        self._clock = clock
        self._own: dict[str, ClientBuilder] = {}
        self._checks = {name: health.endpoint(name) for name in ENDPOINTS}
        self._slis: dict[str, Page] = {"/metrics/slis": pages.sli_page(metrics)}
        self._plain = HealthServer(plain, self._checks, metrics.text, pages=self._slis) if plain else None
        self._tls: ServerTLS | None = None
        self._secure = self._https(settings or {}) if options.secure_port else None

    @property
    def plain_address(self) -> tuple[str, int] | None:
        """Where plain HTTP is served."""
        return self._plain.address if self._plain else None

    @property
    def secure_address(self) -> tuple[str, int] | None:
        """Where HTTPS is served."""
        return self._secure.address if self._secure else None

    def start(self) -> None:
        """Bind and serve in the background. Raises ServingError when a port cannot be had."""
        for server in (self._plain, self._secure):
            if server is None:
                continue
            try:
                server.start()
            except OSError as error:
                # The other one must not go on serving for a manager that does not start.
                self.stop(_STOP)
                flags = "--bind-address={}, --secure-port={}".format(*server.address)
                asked = flags if server is self._secure else f"--health-bind-address={server.place}"
                raise ServingError(f"{asked}: cannot listen there: {error.strerror or error}") from error

    def stop(self, seconds: float) -> bool:
        """Close the ports and all connections; True when all threads have ended in time."""
        ended = [server.stop(min(seconds, _STOP)) for server in (self._plain, self._secure) if server]
        # Last: reviews for requests under way still go through them.
        for clients in self._own.values():
            clients.close()
        return all(ended)

    def run(self, stop: StopSignal) -> None:
        """Follow certificate and client CA until stopped."""
        if self._tls is not None:
            self._tls.run(stop)

    def _https(self, settings: Mapping[str, Page]) -> SecureServer:
        options = self._options
        guards = self._guards()
        minimum = minimum_version(options.tls_min_version)
        pair, lazily = self._pair()
        expiry = Expiry("secure", self._metrics, self._clock)
        self._tls = ServerTLS(pair, self._authorities(), minimum, options.tls_cipher_suites, served=expiry.look)
        # Files that cannot be used stop the start; a self-signed pair is made while all else
        # starts.
        if not lazily:
            with refusing(f"HTTPS cannot be served with {pair.name}"):
                self._tls.load()
        served: dict[str, Page] = {"/metrics": pages.metrics_page(self._metrics.text), **self._slis, **settings}
        started = self._clock.time()

        def status() -> str:
            return pages.statusz(PROGRAM, started, self._clock.time(), endpoints.paths)

        served["/statusz"] = pages.text_page(status)
        setters: dict[str, pages.Setter] = {}
        if options.profiling:
            served["/debug/threads"] = pages.text_page(pages.threads)
            setters["/debug/flags/v"] = pages.set_verbosity
        endpoints = Endpoints(self._checks, served, setters)
        address = (options.bind_address, options.secure_port)
        shared = options.permit_port_sharing
        return SecureServer(address, endpoints, self._tls, guards, load=lazily, share_port=shared, limits=LIMITS)

    def _pair(self) -> tuple[PairSource, bool]:
        """Where the certificate comes from, and whether the first one is made in the background:
        that takes a while."""
        options = self._options
        if options.tls_cert_file:
            return FilePair(options.tls_cert_file, options.tls_private_key_file), False
        # The root file system is read-only as a rule: nothing is written unless it is asked for.
        if not options.cert_dir:
            return MemoryPair(names_for(options.bind_address), clock=self._clock), True
        with refusing(f"--cert-dir={options.cert_dir}"):
            return FolderPair(options.cert_dir, names_for(options.bind_address), clock=self._clock), False

    def _authorities(self) -> AuthoritySource:
        options = self._options
        if options.client_ca_file:
            return client_ca("--client-ca-file", options.client_ca_file)
        # Asked for by a cluster where the ConfigMap may not be read: then tokens are the only way.
        if options.authentication_skip_lookup:
            return NoCA()
        rest = self._rest(options.authentication_kubeconfig, "authentication")
        return ClusterCA(rest, quiet=options.authentication_tolerate_lookup_failure, clock=self._clock)

    def _guards(self) -> tuple[Authentication, Authorization]:
        options = self._options

        def reviewer(kubeconfig: str, name: str, rule: Rule, kind: str, part: Any) -> Reviewer:
            return Reviewer(self._rest(kubeconfig, name), rule, kind, part, self._metrics, self._clock)

        tokens = reviewer(options.authentication_kubeconfig, "authentication", TOKEN_RULE, "TokenReview", "authn")
        access = reviewer(
            options.authorization_kubeconfig, "authorization", ACCESS_RULE, "SubjectAccessReview", "authz"
        )
        return (
            Authentication(tokens, options.authentication_token_webhook_cache_ttl, self._clock),
            Authorization(
                access,
                options.authorization_always_allow_paths,
                options.authorization_webhook_cache_authorized_ttl,
                options.authorization_webhook_cache_unauthorized_ttl,
                self._clock,
            ),
        )

    def _rest(self, kubeconfig: str, name: str) -> RestClient:
        """The manager's own client, or one for this kubeconfig. Unguarded: reviews only ask."""
        clients = self._own.get(kubeconfig) if kubeconfig else self._clients
        if clients is None:
            try:
                # It is for reviews alone, with connections and credentials of its own.
                settings = ClientSettings(over_http=self._clients.settings.over_http)
                clients = ClientBuilder.from_options(
                    kubeconfig, settings=settings, metrics=self._metrics, clock=self._clock
                )
            except ClientConfigError as error:
                raise ServingError(f"--{name}-kubeconfig={kubeconfig}: {error}") from error
            self._own[kubeconfig] = clients
        return clients.rest(name, guarded=False)
