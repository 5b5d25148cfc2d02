"""The clients of every identity, made from one configuration (stages 1 and 6).

The manager gives options, controllers take a `RestClient` each and vendors an official `ApiClient`.
All RestClients share one pool of connections (`transport.py`) and one set of credentials
(`credentials.py`); `restclient.py` sends.
"""

from __future__ import annotations

import logging
import re
import threading
from typing import TYPE_CHECKING, Final, Self

from attrs import field, frozen
from attrs.validators import in_, matches_re

from cloudprovider.internal.proxies import is_local
from controllers.program import PROGRAM, version
from controllers.runtime.api import kubeconfig as kubeconfigs
from controllers.runtime.api.clientconfig import DEFAULT_TIMEOUT, ClientConfig, Guard, RequestMetrics
from controllers.runtime.api.credentials import Credentials
from controllers.runtime.api.errors import CredentialsUnavailable, Forbidden, NotFound, Unreachable
from controllers.runtime.api.kubeconfig import Access
from controllers.runtime.api.kubeconfigfile import ClientConfigError
from controllers.runtime.api.ratelimit import Sleeper, TokenBucket
from controllers.runtime.api.reachability import Reachability
from controllers.runtime.api.restclient import RestClient
from controllers.runtime.api.serviceaccounts import ServiceAccounts
from controllers.runtime.api.tls import TLSFiles
from controllers.runtime.api.transport import HalfOpenDetection, Transport
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.metrics import Metrics
from controllers.runtime.protobuf import CONTENT_TYPE, JSON, is_protobuf, unusable

if TYPE_CHECKING:
    from kubernetes.client.api_client import ApiClient
    from kubernetes.client.configuration import Configuration


log = logging.getLogger(__name__)

VENDOR_POOL_SIZE: Final = 1000
"""Connections that a provider's official client keeps, where so many threads use it at once: the
most that --cloud-api-concurrency may say. One that is not needed costs nothing."""

OWN: Final = frozenset(
    {
        "shared-informers",
        "cluster-identity",
        "service-account-tokens",
        "leader-election",
        "authentication",
        "authorization",
        "webhook-certificates",
    }
)
"""Identities without a service account of their own: caches (as in Go), the lease, reviews of who
asks, the webhooks' certificate, what is asked before controllers run, and requests for tokens."""
_TOKENS: Final = "service-account-tokens"

_NAME: Final = re.compile(r"[!-~]+")


def _no_guard(_method: str, _path: str) -> None:
    """The guard of a client whose writes are never held back."""


@frozen(kw_only=True)
class ClientSettings:
    """What the operator decides about requests to the API server."""

    qps: float = 0
    """Requests a second of each identity; 0: no limit."""
    burst: int = 0
    timeout: float = DEFAULT_TIMEOUT
    program: str = field(default=PROGRAM, validator=matches_re(_NAME))
    """The first part of the user agent: no blanks, ASCII only."""
    field_validation: str | None = "Ignore"
    """Spares the server a check of what is written."""
    content_type: str = field(default=CONTENT_TYPE, validator=in_((CONTENT_TYPE, JSON)))
    """Protobuf for what is large or frequent, where the API server has it, or JSON for all."""
    over_http: bool = False
    """Whether credentials go over plain HTTP to another machine (--allow-credentials-over-http)."""
    cluster_name: str = ""  # --cluster-name, for providers; empty where nobody said it
    service_accounts: str | None = None
    """A namespace: every identity but the program's own (`OWN`) then has the service account of its
    name there, and tokens of its own."""


DEFAULTS: Final = ClientSettings()


class ClientBuilder:
    """Makes the clients of every identity from one configuration; implements
    cloudprovider.host.ClientBuilder.

    Thread-safe; `with` closes it. All RestClients share one pool of connections, as many as threads
    use them at once, but for those that are made `apart`.
    """

    def __init__(
        self,
        access: Access,
        settings: ClientSettings = DEFAULTS,
        *,
        metrics: Metrics | None = None,
        guard: Guard | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`guard` may be set later through the attribute of that name. Raises ClientConfigError for
        unusable TLS files.
        """
        self.guard = guard
        self.settings = settings
        self._program = f"{settings.program}/{version()}"
        self._clock = clock
        self._lock = threading.RLock()
        self._rest: dict[tuple[str, bool, bool], RestClient] = {}
        self._clients: dict[str, ApiClient] = {}
        self._buckets: dict[str, TokenBucket] = {}
        self._identity: str | None = None
        self._identity_warned = False
        self._protobuf = is_protobuf(settings.content_type)
        if self._protobuf and (why := unusable()):
            self._protobuf = False
            log.warning(
                "the API server is asked in JSON, which costs it and this process more than Protobuf: the package "
                "protobuf is without its part in C (%s). Fix: install what is missing (libstdc++6 on Debian); "
                "--kube-api-content-type=application/json avoids this line",
                why,
            )
        self._sleeper = Sleeper(clock)
        self._tls_settings = tls = access.tls
        endpoint = access.endpoint
        self._tls = TLSFiles(tls, clock=clock) if endpoint.tls or (endpoint.proxy and endpoint.proxy.tls) else None
        if self._tls is not None:
            try:
                self._tls.context()
            except OSError as error:
                raise ClientConfigError(f"the TLS files cannot be used: {tls.describe(error)}") from error
        self._credentials = Credentials(access.source, self._sleeper, fetched=self._recheck_tls)
        self._half_open = HalfOpenDetection(clock)
        self._transport = Transport(endpoint, self._tls, sleeper=self._sleeper, half_open=self._half_open)
        self._apart: list[Transport] = []
        self.metrics = Metrics() if metrics is None else metrics
        """Where requests are counted; a Manager over these clients serves it."""
        self._requests = RequestMetrics(self.metrics, endpoint.authority)
        self._own = (self._transport, self._credentials, access.headers)
        self._accounts: ServiceAccounts | None = None
        self._bare = self._transport
        if settings.service_accounts:
            # A token would be readable by all on the way, and is good for an hour.
            if not (endpoint.tls or is_local(endpoint.host) or settings.over_http):
                raise ClientConfigError(
                    f"--use-service-account-credentials: tokens would go to {endpoint.url} over plain HTTP; use https, "
                    f"or --{kubeconfigs.HTTP_FLAG} where the way is safe"
                )
            if self._tls is not None and tls.cert_file:  # a certificate would tell another name than the token
                bare = TLSFiles(tls.without_certificate(), clock=clock)
                self._bare = Transport(
                    endpoint,
                    bare,
                    sleeper=self._sleeper,
                    reachability=self._transport.reachability,
                    half_open=self._half_open,
                )
            tokens, accounts = self.rest(_TOKENS, guarded=False), self.rest(_TOKENS)
            self._accounts = ServiceAccounts(settings.service_accounts, tokens, accounts, self._sleeper)

    @classmethod
    def from_options(
        cls,
        kubeconfig: str | None = None,
        master: str | None = None,
        settings: ClientSettings = DEFAULTS,
        *,
        metrics: Metrics | None = None,
        guard: Guard | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> Self:
        """Find the API server as `kubeconfig.load` does; raises ClientConfigError, which names the
        culprit and the fix.

        The other arguments are the constructor's.
        """
        access = kubeconfigs.load(kubeconfig, master, over_http=settings.over_http)
        return cls(access, settings, metrics=metrics, guard=guard, clock=clock)

    @property
    def server(self) -> str:
        """The API server's URL."""
        return self._transport.endpoint.url

    @property
    def needs_restart(self) -> str:
        """What has changed in the kubeconfig and cannot be used by this process; or ""."""
        return self._credentials.needs_restart

    @property
    def reachability(self) -> Reachability:
        """Whether the server answers, as all RestClients saw it; tells when it answers again."""
        return self._transport.reachability

    @property
    def transport(self) -> Transport:
        """The connections that all RestClients share."""
        return self._transport

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def rest(self, name: str, *, guarded: bool = True, apart: bool = False) -> RestClient:
        """The client of that identity; the same one at each call.

        Not `guarded`: its writes do not ask the guard. For the lease itself, and for questions that
        are POSTs, such as access reviews. `apart`, for the lease: with connections of its own, no
        rate limit, and no `stop_retrying`, so that nothing that happens to the others delays it.
        """
        with self._lock:
            client = self._rest.get((name, guarded, apart))
            if client is None:
                transport, credentials, headers = self._own if apart else self._speaks_as(name)
                # The lease must be renewed even while every other connection hangs.
                if apart:
                    transport = Transport(
                        transport.endpoint, self._tls, sleeper=Sleeper(self._clock), half_open=self._half_open
                    )
                    self._apart.append(transport)
                guard = self._check_guard if guarded else _no_guard
                limiter = None if apart else self._bucket(name)
                client = self._rest[name, guarded, apart] = RestClient(
                    transport,
                    self._config_of(name, credentials, headers, guard, limiter),
                    field_validation=self.settings.field_validation,
                )
            return client

    def client(self, name: str) -> ApiClient:
        """The official client of that identity, for a vendor: same credentials, guard, limits and
        metrics as ours; no retries. The same one at each call; `close` closes it.

        It has connections of its own, and errors of its own (kubernetes.client.ApiException)."""
        from controllers.runtime.api.vendorclient import VendorClient

        with self._lock:
            known = self._clients.get(name)
        if known is not None:
            return known
        transport, credentials, headers = self._speaks_as(name)
        config = self._config_of(name, credentials, headers, self._check_guard, self._bucket(name))
        # Without the lock, as it imports the official client; two threads may make one each, and
        # the first is kept.
        made = VendorClient(self._configuration(name)[0], config, transport)
        with self._lock:
            return self._clients.setdefault(name, made)

    def config(self, name: str) -> Configuration:
        """A configuration of the official client, which the caller may change; its token stays
        fresh by itself.

        Clients made from it are the caller's to close, and pass neither guard nor limits: prefer
        `client`. Raises ClientConfigError where the kubeconfig says to act as another (`as`), which
        they could not.
        """
        if self._speaks_as(name)[2]:
            raise ClientConfigError(
                f"{name}: the kubeconfig says to act as another (as, as-groups ...), and a client made from "
                "ClientBuilder.config() would not: it would have all rights of the kubeconfig's user. Fix in the "
                "provider: use ClientBuilder.client()"
            )
        configuration, present = self._configuration(name)
        if present == "":  # the official client would send an empty header
            configuration.api_key.clear()
            configuration.refresh_api_key_hook = None
        return configuration

    def _configuration(self, name: str) -> tuple[Configuration, str | None]:
        """And the present Authorization header, None while it is not known."""
        from controllers.runtime.api.vendorclient import configuration_of  # the start does without it

        endpoint, tls = self._transport.endpoint, self._tls_settings
        _, credentials, _ = self._speaks_as(name)
        try:
            present = credentials.authorization() if credentials is self._credentials else None
        except CredentialsUnavailable:
            present = None  # it will be asked again at each request
        # The account's token alone says who we are, or there is no certificate.
        if credentials is not self._credentials or (present is not None and not tls.has_certificate):
            tls = tls.without_certificate()
        configuration = configuration_of(endpoint, tls)
        configuration.retries = False  # else urllib3 obeys Retry-After by sleeping, whatever the timeout
        configuration.connection_pool_maxsize = VENDOR_POOL_SIZE
        configuration.keep_alive = True
        if endpoint.proxy is not None and endpoint.proxy.tls and self._tls is not None:
            configuration.proxy_ssl_context = self._tls.context()

        def refresh(target: Configuration) -> None:
            target.api_key["BearerToken"] = credentials.authorization()

        configuration.api_key["BearerToken"] = ""
        configuration.refresh_api_key_hook = refresh  # type: ignore[assignment]  # declared by its default, None
        return configuration, present

    def cluster_name(self) -> str:
        """The cluster's name, as in the settings."""
        return self.settings.cluster_name

    def cluster_identity(self) -> str | None:
        """The UID of the namespace kube-system, kept once read; None when the API server refuses
        it, or has none. Other ApiErrors pass: they are no definite answer.

        The request is made without a lock: a slow answer holds up this call alone. Callers that
        come before the first answer each ask themselves.
        """
        with self._lock:
            if self._identity is not None:
                return self._identity
        try:
            namespace = self.rest("cluster-identity").get("/api/v1/namespaces/kube-system")
        except (Forbidden, NotFound) as error:
            if error.details.get("name") != "kube-system":
                raise  # a proxy's word, say: it proves nothing about the namespace
            with self._lock:
                warned, self._identity_warned = self._identity_warned, True
            if not warned:
                log.warning(
                    "The cluster's identity is unknown, so clusters of the same name cannot be told apart: %s. "
                    "Add the rule: apiGroups [''], resources [namespaces], resourceNames [kube-system], "
                    "verbs [get]",
                    error,
                )
            return None
        uid = (namespace.get("metadata") or {}).get("uid")
        if not isinstance(uid, str) or not uid:
            raise Unreachable("the answer for the namespace kube-system has no UID, so it is no API server's")
        with self._lock:
            self._identity = uid
            return uid

    def stop_retrying(self) -> None:
        """We are stopping: an answer with Retry-After is raised at once. Requests go on."""
        self._sleeper.stop_retrying()

    def close(self) -> None:
        """End all waits, requests and streams and close all connections. May be called twice."""
        with self._lock:
            clients, self._clients = self._clients, {}
            transports = [self._transport, self._bare, *self._apart]
        for transport in transports:
            transport.close()
        for client in clients.values():
            client.close()  # type: ignore[no-untyped-call]  # the client ships no annotations for it
        self._credentials.close()

    def _speaks_as(self, name: str) -> tuple[Transport, Credentials, tuple[tuple[str, str], ...]]:
        """The connections, the credentials and the impersonation headers of an identity."""
        if self._accounts is None or name in OWN:
            return self._own
        return self._bare, self._accounts.credentials(name), ()

    def _config_of(
        self,
        name: str,
        credentials: Credentials,
        headers: tuple[tuple[str, str], ...],
        guard: Guard,
        limiter: TokenBucket | None,
    ) -> ClientConfig:
        if not _NAME.fullmatch(name):
            raise ValueError(f"a client's name is part of its user agent: no blanks, ASCII only: {name!r}")
        return ClientConfig(
            name=name,
            user_agent=f"{self._program} {name}",
            credentials=credentials,
            metrics=self._requests,
            guard=guard,
            limiter=limiter,
            timeout=self.settings.timeout,
            headers=headers,
            protobuf=self._protobuf,
        )

    def _check_guard(self, method: str, path: str) -> float | None:
        return self.guard(method, path) if self.guard is not None else None

    def _recheck_tls(self) -> None:
        if self._tls is not None:
            self._tls.recheck()

    def _bucket(self, name: str) -> TokenBucket | None:
        qps = self.settings.qps
        if qps <= 0:
            return None
        with self._lock:
            bucket = TokenBucket(qps, self.settings.burst, clock=self._clock)
            return self._buckets.setdefault(name, bucket)
