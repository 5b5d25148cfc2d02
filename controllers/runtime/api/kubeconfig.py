"""Finds the API server and the credentials: --kubeconfig, --master, or the pod's service account
(before stage 1); and follows the kubeconfig on disk.

The command line's options come in; out goes an `Access`, from which `clients.py` makes every
client. `kubeconfigfile.py` reads the file.

Follows https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/ and
client-go's BuildConfigFromFlags: neither $KUBECONFIG nor ~/.kube/config is read unless it is named;
`proxy-url` may be http, https or socks5 and wins over the environment and NO_PROXY. A server
without a scheme (`host:port`) means https where there is a CA, a client certificate or
insecure-skip-tls-verify, else http.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
from collections.abc import Mapping
from typing import Final

from attrs import evolve, field, frozen

from cloudprovider.internal.proxies import proxy_from_environment
from controllers.runtime.api.credentials import Credential, Fixed, Source, TokenFile
from controllers.runtime.api.kubeconfigfile import ClientConfigError, Reading, read, server_url
from controllers.runtime.api.tls import SecretFile, TLSSettings, stamp
from controllers.runtime.api.wire import Endpoint, Proxy

log = logging.getLogger(__name__)

SERVICE_HOST_ENV_NAME: Final = "KUBERNETES_SERVICE_HOST"
SERVICE_PORT_ENV_NAME: Final = "KUBERNETES_SERVICE_PORT"
SERVICE_TOKEN_FILENAME: Final = "/var/run/secrets/kubernetes.io/serviceaccount/token"
SERVICE_CERT_FILENAME: Final = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
HTTP_FLAG: Final = "allow-credentials-over-http"


@frozen
class Access:
    """How to reach one API server."""

    endpoint: Endpoint
    source: Source
    tls: TLSSettings = field(factory=TLSSettings)
    headers: tuple[tuple[str, str], ...] = ()
    """Impersonation headers of the kubeconfig's user."""


class Kubeconfig(Source):
    """The credentials of one kubeconfig's current context, as the file has them now.

    Another token, certificate, key, plugin or CA is used from then on. What clients cannot change
    while they live (`Reading.differs`: the server above all) leaves everything as it was, and
    `needs_restart` says so. Thread-safe.
    """

    def __init__(self, path: str, master: str | None, *, over_http: bool) -> None:
        """Raises ClientConfigError."""
        self._path, self._master, self._over_http = path, master, over_http
        self._lock = threading.Lock()
        self._told = ""
        self._pair = (b"", b"")
        self._authority, self._certificate, self._key = SecretFile(), SecretFile(), SecretFile()
        own = self._stamped(())  # before it is read: a change meanwhile is one
        self.reading = read(path, master, over_http=over_http)
        self._stamps = own + self._stamped(self.reading.files)[1:]
        self._take(self.reading)

    @property
    def tls(self) -> TLSSettings:
        """Settings whose files follow the kubeconfig."""
        reading = self.reading
        if not reading.endpoint.tls:
            return TLSSettings(verify=reading.verify)
        return TLSSettings(
            ca_file=self._authority.path if reading.authority else "",
            cert_file=self._certificate.path,
            key_file=self._key.path,
            verify=reading.verify,
            named=", ".join(reading.files) or f"the data in the kubeconfig {self._path}",
            look=self.look,
        )

    def look(self) -> None:
        """Read the file again if it, or one that it names, has changed."""
        with self._lock:
            stamps = self._stamped(self.reading.files)
            if stamps == self._stamps:
                return
            try:
                found = read(self._path, self._master, over_http=self._over_http)
            except ClientConfigError as error:  # half written, say: looked at again next time
                self._tell(f"{error}. It has changed, and cannot be used: the former credentials stay in use")
                return
            self._stamps = stamps if found.files == self.reading.files else stamps[:1] + self._stamped(found.files)[1:]
            # Clients live on with their connections, so what those are made for cannot change under
            # them.
            if differs := self.reading.differs(found):
                self.needs_restart = f"the kubeconfig {self._path} has {differs} now"
                self._tell(f"{self.needs_restart}: this process goes on as before, until its credentials fail")
                return
            former, self.needs_restart, self._told = self.reading.source, "", ""
            self._take(found)
        # Outside the lock: a plugin may be running, and is ended.
        former.close()
        log.info("the kubeconfig %s has changed: from now on it is %s", self._path, self.origin)

    def fetch(self) -> Credential:
        """The present credential; raises as its source does."""
        while True:
            reading = self.reading
            try:
                found = reading.source.fetch()
            except Exception:
                if reading is self.reading:
                    raise
                continue  # it has changed meanwhile, and the former source was closed
            with self._lock:
                if reading is self.reading:
                    if not reading.certificate:
                        self._show(found.certificate, found.key)
                    return found

    def close(self) -> None:
        self.reading.source.close()

    def _take(self, reading: Reading) -> None:
        self.reading = reading
        source = reading.source
        self.origin, self.slow, self.period, self.pace = source.origin, source.slow, source.period, source.pace
        self._authority.write(reading.authority)
        if reading.certificate or not source.slow:  # else a plugin says what to show
            self._show(reading.certificate, reading.key)
        self.version += 1

    def _show(self, certificate: bytes, key: bytes) -> None:
        """Have new connections show this pair, or none."""
        if self._pair != (certificate, key):
            self._pair = (certificate, key)
            self._key.write(key)
            self._certificate.write(certificate)

    def _stamped(self, files: tuple[str, ...]) -> tuple[object, ...]:
        return tuple(stamp(path) for path in (os.path.expanduser(self._path), *files))

    def _tell(self, text: str) -> None:
        if text != self._told:
            self._told = text
            log.warning("%s", text)


def load(
    kubeconfig: str | None,
    master: str | None,
    environ: Mapping[str, str] | None = None,
    *,
    over_http: bool = False,
) -> Access:
    """Find the API server; raises ClientConfigError. `master` replaces the server's URL, always.

    Without a kubeconfig the service account of the pod is used; `master` alone, outside of a pod or
    with http://, is reached without credentials. A kubeconfig's credential goes over plain HTTP to
    this machine alone, unless `over_http`."""
    environ = os.environ if environ is None else environ
    in_pod = bool(environ.get(SERVICE_HOST_ENV_NAME))
    try:
        endpoint = Endpoint.parse(server_url(master, tls=in_pod)) if master else None
    except ValueError as error:
        raise ClientConfigError(f"--master: {error}") from None
    # A pod's token does not go to a --master over plain HTTP.
    in_pod = in_pod and (endpoint is None or endpoint.tls)
    if kubeconfig:
        source = Kubeconfig(kubeconfig, master, over_http=over_http)
        _warn(source.reading, kubeconfig, over_http)
        access = Access(source.reading.endpoint, source, source.tls, source.reading.headers)
    elif in_pod:
        access = _in_cluster(environ, endpoint)
    elif endpoint:
        access = Access(endpoint, Fixed(origin="no credential: --master names none"))
    else:
        named = environ.get("KUBECONFIG")
        hint = f" ($KUBECONFIG={named} is read only when named: --kubeconfig={named})" if named else ""
        raise ClientConfigError(
            f"no API server to talk to: {SERVICE_HOST_ENV_NAME} is not set, so this is no pod; "
            f"pass --kubeconfig or --master{hint}"
        )
    return _with_proxy(access, environ)


def _in_cluster(environ: Mapping[str, str], master: Endpoint | None) -> Access:
    host, port = environ[SERVICE_HOST_ENV_NAME], environ.get(SERVICE_PORT_ENV_NAME)
    if not port:
        raise ClientConfigError(
            f"{SERVICE_HOST_ENV_NAME} is set but {SERVICE_PORT_ENV_NAME} is not; set both or neither"
        )
    for path in (SERVICE_TOKEN_FILENAME, SERVICE_CERT_FILENAME):
        if not os.path.isfile(path):
            raise ClientConfigError(
                f"{path} is missing; mount the service account (automountServiceAccountToken: true), "
                "or pass --kubeconfig"
            )
    try:
        endpoint = master or Endpoint.parse(f"https://{f'[{host}]' if ':' in host else host}:{port}")
    except ValueError as error:
        raise ClientConfigError(str(error)) from None
    origin = f"the token of the pod's service account, in {SERVICE_TOKEN_FILENAME}"
    source = TokenFile(SERVICE_TOKEN_FILENAME, origin=origin)
    return Access(endpoint, source, TLSSettings(ca_file=SERVICE_CERT_FILENAME))


def _with_proxy(access: Access, environ: Mapping[str, str]) -> Access:
    """The environment's proxy, where it names one and the kubeconfig does not."""
    endpoint = access.endpoint
    found = None if endpoint.proxy else proxy_from_environment(endpoint.host, endpoint.port, endpoint.tls, environ)
    if not found:
        return access
    name, url = found
    try:
        proxy = Proxy.parse(url, origin=f"{name} in the environment")
    except ValueError as error:
        raise ClientConfigError(f"{name} in the environment: {error}") from None
    log.info("the API server %s is reached through a %s", endpoint.url, proxy)
    return evolve(access, endpoint=evolve(endpoint, proxy=proxy))


def _warn(reading: Reading, kubeconfig: str, over_http: bool) -> None:
    """Say what is allowed, and dangerous; and what is not sent."""
    endpoint = reading.endpoint
    if endpoint.tls and not reading.verify:
        log.warning(
            "TLS verification is off for %s: anyone on the way can read and change everything. "
            "Set certificate-authority instead of insecure-skip-tls-verify.",
            endpoint.url,
        )
    if reading.exposed and over_http:
        log.warning(
            "The kubeconfig's credential goes to %s over plain HTTP (--%s): anyone on the way can read and use it.",
            endpoint.url,
            HTTP_FLAG,
        )
    elif reading.exposed:
        log.warning(
            "The kubeconfig's credential is not sent to %s: over plain HTTP, anyone on the way could read and use it. "
            "Use https; or, where the way is safe, --%s.",
            endpoint.url,
            HTTP_FLAG,
        )
    try:
        mode = os.stat(os.path.expanduser(kubeconfig)).st_mode
    except OSError:
        return  # it was read a moment ago, and is gone
    if mode & stat.S_IROTH:
        log.warning(
            "The kubeconfig %s is readable by every user of this machine (mode %o). Run: chmod 600 %s",
            kubeconfig,
            stat.S_IMODE(mode),
            kubeconfig,
        )
