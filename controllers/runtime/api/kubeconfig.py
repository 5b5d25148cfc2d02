"""Finds the API server and the credentials: --kubeconfig, --master, or the pod's service account
(before stage 1).

The command line's options come in; out goes an `Access`, from which `clients.py` makes every
client. The current context is read here, as client-go does it (row K9). The official client's
loader (kubernetes.config) is asked for the tokens of auth providers alone, by way of `official.py`,
because of what it does otherwise:

- `tokenFile`: it reads the file once, and keeps the line break at its end;
- `exec`: it waits for the plugin without end, and swallows its failure;
- `as`, `as-uid`, `as-groups`, `as-user-extra`: it ignores them, and so would act with more rights
  than were given;
- inline certificates and keys: it writes them to temporary files, which need a writable folder and
  may stay behind;
- a server without a scheme: it passes it on as it stands; proxies of the environment: see
  `wire/endpoint.py`;
- what is missing or contradicts itself: its message names neither the entry nor what there is
  instead.

Follows https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/ and
client-go's BuildConfigFromFlags: neither $KUBECONFIG nor ~/.kube/config is read unless it is named.
As client-go: a `tokenFile` wins over a `token`, which serves while the file cannot be read; a
server without a scheme (`host:port`) means https where there is a CA, a client certificate or
insecure-skip-tls-verify, else http; `proxy-url` may be http, https or socks5 and wins over the
environment and NO_PROXY; keys of `as-user-extra` are percent-encoded in header names.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from attrs import evolve, field, frozen

from controllers.runtime.api.credentials import AuthProvider, Fixed, Source, TokenFile, impersonation_headers, origin_of
from controllers.runtime.api.kubeconfigtypes import mistyped
from controllers.runtime.api.official import RefusedByLoader, document_for_loader, provider_token
from controllers.runtime.api.tls import SecretFile, TLSSettings
from controllers.runtime.api.wire import Endpoint, Proxy, is_local, proxy_from_environment

log = logging.getLogger(__name__)

_AUTH_PROVIDERS: Final = ("oidc", "gcp")
SERVICE_HOST_ENV_NAME: Final = "KUBERNETES_SERVICE_HOST"
SERVICE_PORT_ENV_NAME: Final = "KUBERNETES_SERVICE_PORT"
SERVICE_TOKEN_FILENAME: Final = "/var/run/secrets/kubernetes.io/serviceaccount/token"
SERVICE_CERT_FILENAME: Final = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"


class ClientConfigError(Exception):
    """The options do not lead to a usable API server; the message names the culprit and the fix."""


@frozen
class Access:
    """How to reach one API server."""

    endpoint: Endpoint
    source: Source
    tls: TLSSettings = field(factory=TLSSettings)
    headers: tuple[tuple[str, str], ...] = ()
    """Impersonation headers of the kubeconfig's user."""
    makes_certificates: bool = False
    """The source may give client certificates (an exec plugin)."""
    origin: str = ""
    """What the credential is and where it comes from, in words."""


def load(kubeconfig: str | None, master: str | None, environ: Mapping[str, str] | None = None) -> Access:
    """Find the API server; raises ClientConfigError. `master` replaces the server's URL, always.

    Without a kubeconfig the service account of the pod is used; `master` alone, outside of a pod or
    with http://, is reached without credentials."""
    environ = os.environ if environ is None else environ
    in_pod = bool(environ.get(SERVICE_HOST_ENV_NAME)) and not (master and master.startswith("http://"))
    try:
        endpoint = Endpoint.parse(server_url(master, tls=in_pod)) if master else None
    except ValueError as error:
        raise ClientConfigError(f"--master: {error}") from None
    if kubeconfig:
        access = _KubeConfig(kubeconfig).access(master)
    elif in_pod:
        access = _in_cluster(environ, endpoint)
    elif endpoint:
        access = Access(endpoint, Fixed(), origin="no credential: --master names none")
    else:
        named = environ.get("KUBECONFIG")
        hint = f" ($KUBECONFIG={named} is read only when named: --kubeconfig={named})" if named else ""
        raise ClientConfigError(
            f"no API server to talk to: {SERVICE_HOST_ENV_NAME} is not set, so this is no pod; "
            f"pass --kubeconfig or --master{hint}"
        )
    access = _with_proxy(access, environ)
    _warn(access, kubeconfig)
    return access


def server_url(server: str, *, tls: bool) -> str:
    """Complete `host[:port]` to a URL: https where `tls`, as in client-go."""
    return server if "://" in server else f"{'https' if tls else 'http'}://{server}"


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
    tls = TLSSettings(ca_file=SERVICE_CERT_FILENAME)
    return Access(endpoint, TokenFile(SERVICE_TOKEN_FILENAME), tls, origin=origin)


def _with_proxy(access: Access, environ: Mapping[str, str]) -> Access:
    """The environment's proxy, where it names one and the kubeconfig does not."""
    endpoint = access.endpoint
    url = None if endpoint.proxy else proxy_from_environment(endpoint, environ)
    if not url:
        return access
    try:
        return evolve(access, endpoint=evolve(endpoint, proxy=Proxy.parse(url)))
    except ValueError as error:
        raise ClientConfigError(f"HTTPS_PROXY or HTTP_PROXY: {error}") from None


def _warn(access: Access, kubeconfig: str | None) -> None:
    """Say what is allowed, and dangerous."""
    endpoint = access.endpoint
    if endpoint.tls and not access.tls.verify:
        log.warning(
            "TLS verification is off for %s: anyone on the way can read and change everything. "
            "Set certificate-authority instead of insecure-skip-tls-verify.",
            endpoint.url,
        )
    secret = not isinstance(access.source, Fixed) or bool(access.source.fetch().authorization)
    if secret and not endpoint.tls and not is_local(endpoint.host):
        log.warning(
            "The token or password goes to %s over plain HTTP: anyone on the way can read and use it. Use https.",
            endpoint.url,
        )
    if kubeconfig:
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


class _KubeConfig:
    """One kubeconfig file and its current context."""

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(os.path.expanduser(path))
        self._folder = os.path.dirname(self._path)
        config = self._parse()
        context_name = config.get("current-context")
        if not context_name or not isinstance(context_name, str):
            names = self._names(config, "contexts")
            if names == "none":
                raise self._error("has no current-context, and no contexts; give --kubeconfig a file that has them")
            raise self._error(
                f"has no current-context; choose one of {names}: "
                f"kubectl config use-context NAME --kubeconfig={self._path}"
            )
        context = self._entry(config, "contexts", "context", context_name, "current-context")
        self._where = f"context {context_name!r}"
        self._cluster_name = self._text(context, "cluster", self._where)
        self._cluster = self._entry(config, "clusters", "cluster", self._cluster_name, self._where)
        self._user_name = str(context.get("user") or "")
        self._user = self._entry(config, "users", "user", self._user_name, self._where) if self._user_name else {}

    def access(self, master: str | None) -> Access:
        """Read the current context into an Access; raises ClientConfigError."""
        user = self._checked_user()
        certificate = any(key.startswith("client-certificate") for key in user)
        cluster, endpoint = self._checked_cluster(master, certificate=certificate)
        files: list[SecretFile] = []
        cluster_seen, user_seen = _in_files(cluster, files), _in_files(user, files)
        tls = TLSSettings(verify=not cluster.get("insecure-skip-tls-verify"), holds=tuple(files))
        if endpoint.tls:
            tls = evolve(
                tls,
                ca_file=cluster_seen.get("certificate-authority", ""),
                cert_file=user_seen.get("client-certificate", ""),
                key_file=user_seen.get("client-key", ""),
            )
        makes_certificates = False
        source: Source
        if "auth-provider" in user:
            document = document_for_loader(cluster_seen, user_seen)
            self._provider_token(document)  # where it cannot give one, the start says so
            source = AuthProvider(lambda: self._provider_token(document))
        elif "tokenFile" in user:
            source = TokenFile(user["tokenFile"], user.get("token", ""))
        elif (fixed := self._fixed(user)) or "exec" not in user:
            source = Fixed(fixed)
        else:
            from controllers.runtime.api.execplugin import ExecPlugin  # most kubeconfigs have none, and it loads much

            source = ExecPlugin(user["exec"], self._folder, cluster)
            makes_certificates = True
        headers = impersonation_headers(user)
        if not all(text.isascii() and text.isprintable() for header in headers for text in header):
            raise self._error(f"user {self._user_name!r}: as, as-uid, as-groups, as-user-extra: only ASCII text")
        origin = origin_of(user, f"user {self._user_name!r} ({self._where}) in the kubeconfig {self._path}")
        return Access(endpoint, source, tls, headers, makes_certificates, origin)

    def _provider_token(self, document: dict[str, Any]) -> str:
        try:
            return provider_token(document)
        except RefusedByLoader as error:
            raise self._error(f"{self._where}: {error}") from None

    def _fixed(self, user: dict[str, Any]) -> str:
        """The header Authorization of a token, or of a name with its password; "" for neither."""
        if user.get("token"):
            return f"Bearer {user['token']}"
        if "username" not in user or "password" not in user:
            return ""
        for key in ("username", "password"):
            if not isinstance(user[key], str):
                raise self._error(f"user {self._user_name!r}: {key} is not a string; put it in quotes")
        pair = f"{user['username']}:{user['password']}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"

    def _checked_cluster(self, master: str | None, *, certificate: bool) -> tuple[dict[str, Any], Endpoint]:
        where = f"cluster {self._cluster_name!r}"
        cluster = self._cluster
        if master:
            cluster["server"] = master
        has_tls = certificate or any(cluster.get(key) for key in _TLS_KEYS)
        cluster["server"] = server = server_url(self._text(cluster, "server", where), tls=has_tls)
        try:
            endpoint = Endpoint.parse(
                server, server_name=cluster.get("tls-server-name"), proxy=cluster.get("proxy-url")
            )
        except ValueError as error:
            raise self._error(f"{where}: {error}") from None
        self._files(cluster, where, "certificate-authority")
        if cluster.get("insecure-skip-tls-verify") and (
            cluster.get("certificate-authority") or cluster.get("certificate-authority-data")
        ):
            raise self._error(f"{where} has both insecure-skip-tls-verify and a certificate authority; remove one")
        return cluster, endpoint

    def _checked_user(self) -> dict[str, Any]:
        where, user = f"user {self._user_name!r}", self._user
        self._files(user, where, "client-certificate", "client-key", *(() if user.get("token") else ("tokenFile",)))
        if "tokenFile" in user:
            user["tokenFile"] = os.path.join(self._folder, os.path.expanduser(self._text(user, "tokenFile", where)))
        has = [bool(user.get(f"client-{part}") or user.get(f"client-{part}-data")) for part in ("certificate", "key")]
        if has[0] != has[1]:
            present, absent = ("certificate", "key") if has[0] else ("key", "certificate")
            raise self._error(f"{where} has a client {present} but no client-{absent}; give both")
        if "token" in user:
            user["token"] = token = self._text(user, "token", where).strip()
            if not token.isascii() or not token.isprintable() or " " in token:
                raise self._error(f"{where}: token is not a bearer token; correct it")
        provider = user.get("auth-provider")
        if provider is not None:
            name = provider.get("name") if isinstance(provider, dict) else None
            if name not in _AUTH_PROVIDERS:
                raise self._error(f"{where}: auth-provider {name!r} is not supported; use an exec plugin or a token")
            if not isinstance(provider.get("config"), dict):
                raise self._error(f"{where}: config of auth-provider {name!r} is not a mapping")
        if "exec" in user:
            self._check_exec(user, where)
        return user

    def _check_exec(self, user: dict[str, Any], where: str) -> None:
        plugin = user["exec"]
        if not isinstance(plugin, dict):
            raise self._error(f"{where}: exec is not a mapping")
        for key in ("command", "apiVersion"):
            self._text(plugin, key, f"{where}: exec")
        self._check_types(plugin, f"{where}: exec")
        command = plugin["command"]
        if os.path.dirname(command):
            plugin["command"] = command = os.path.join(self._folder, command)
        if shutil.which(command) is None:
            hint = plugin.get("installHint")
            raise self._error(f"{where}: no program {command!r} for exec; {hint or 'install it, or correct command'}")

    def _files(self, entry: dict[str, Any], where: str, *keys: str) -> None:
        """Make relative paths absolute, and check that each file is there and each inline twin
        decodes."""
        for key in keys:
            data = entry.get(f"{key}-data")
            if data is not None:
                try:
                    base64.b64decode("".join(str(data).split()), validate=True)
                except (binascii.Error, ValueError):
                    raise self._error(f"{where}: {key}-data is not base64; remove it or encode it again") from None
            if entry.get(key) and not data:
                entry[key] = path = os.path.join(self._folder, os.path.expanduser(self._text(entry, key, where)))
                if not os.path.isfile(path):
                    raise self._error(f"{where}: {key} {path} is not a file; correct the path")

    def _parse(self) -> dict[str, Any]:
        import yaml  # a program in a pod reads no kubeconfig

        try:
            config = yaml.safe_load(Path(self._path).read_text("utf-8"))
        except OSError as error:
            raise self._error(f"{error.strerror or error}; correct --kubeconfig") from None
        except UnicodeDecodeError:
            raise self._error("is not a text file; correct --kubeconfig") from None
        except yaml.YAMLError as error:
            # Not the error's own text: it quotes the line, which may hold a secret.
            mark = getattr(error, "problem_mark", None)
            line = f" at line {mark.line + 1}" if mark is not None else ""
            raise self._error(f"is not valid YAML{line}: {getattr(error, 'problem', '')}") from None
        if not isinstance(config, dict):
            raise self._error("is not a kubeconfig: it holds no mapping" if config else "is empty")
        return config

    def _entry(self, config: dict[str, Any], plural: str, single: str, name: str, where: str) -> dict[str, Any]:
        entries = config.get(plural) or []
        for entry in entries if isinstance(entries, list) else []:
            if isinstance(entry, dict) and entry.get("name") == name:
                content = entry.get(single) or {}
                if not isinstance(content, dict):
                    raise self._error(f"{single} {name!r} is not a mapping")
                self._check_types(content, f"{single} {name!r}")
                return {key: value for key, value in content.items() if value not in (None, "")}
        raise self._error(
            f"{where} names the {single} {name!r}, which is missing; there are {self._names(config, plural)}"
        )

    def _check_types(self, entry: dict[str, Any], where: str) -> None:
        if wrong := mistyped(entry):
            raise self._error(f"{where}: {wrong}")

    @staticmethod
    def _names(config: dict[str, Any], plural: str) -> str:
        entries = config.get(plural) or []
        names = [str(e.get("name")) for e in entries if isinstance(e, dict)] if isinstance(entries, list) else []
        return ", ".join(names) or "none"

    def _text(self, entry: dict[str, Any], key: str, where: str) -> str:
        value = entry.get(key)
        if not value or not isinstance(value, str):
            raise self._error(f"{where} has no {key}; add it" if not value else f"{where}: {key} is not a string")
        return value

    def _error(self, text: str) -> ClientConfigError:
        return ClientConfigError(f"kubeconfig {self._path}{'' if text.startswith(('is ', 'has ')) else ':'} {text}")


def _in_files(entry: Mapping[str, Any], files: list[SecretFile]) -> dict[str, Any]:
    """The entry with the paths of `files`, which are added, in place of inline data."""
    seen = dict(entry)
    for key in ("certificate-authority", "client-certificate", "client-key"):
        if data := seen.pop(f"{key}-data", None):
            files.append(SecretFile(base64.b64decode("".join(str(data).split()))))
            seen[key] = files[-1].path
    return seen


_TLS_KEYS: Final = ("certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify")
