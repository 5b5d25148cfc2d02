"""Reads the current context of one kubeconfig file (before stage 1).

`kubeconfig.py` follows the file and asks for a `Reading` whenever it has changed; what a file may
say is in `kubeconfigrules.py`. The official client's loader is not used: it reads a `tokenFile`
once, waits for an exec plugin without end and hides its failure, and ignores `as` and its like, so
that it acts with more rights than were given.
"""

from __future__ import annotations

import base64
import binascii
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from attrs import field, frozen

from cloudprovider.internal.problem import without_words
from cloudprovider.internal.proxies import is_local
from controllers.runtime.api import kubeconfigrules as rules
from controllers.runtime.api.credentials import Fixed, Source, TokenFile, impersonation_headers
from controllers.runtime.api.wire import Endpoint

_SINGLES: Final = {"contexts": "context", "clusters": "cluster", "users": "user"}


class ClientConfigError(Exception):
    """The options do not lead to a usable API server; the message names the culprit and the fix."""


@frozen
class Reading:
    """What the current context says now."""

    endpoint: Endpoint
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    """Impersonation headers of its user."""
    verify: bool
    authority: bytes
    """The CA bundle, in PEM; empty: the trust store of the system."""
    certificate: bytes
    key: bytes = field(repr=False)
    source: Source
    """Of the header Authorization, and of a plugin's certificate."""
    files: tuple[str, ...]
    """What else was read, beside the kubeconfig."""
    exposed: bool
    """It has a credential, and the way to the server is plain HTTP to another machine."""

    def differs(self, other: Reading) -> str:
        """What a client of this reading cannot take over from another one, in words; or ""."""
        for what, mine, its in (
            ("server", self.endpoint.url, other.endpoint.url),
            ("proxy or tls-server-name", self.endpoint, other.endpoint),
            ("impersonation (as, as-groups ...)", self.headers, other.headers),
            ("insecure-skip-tls-verify", self.verify, other.verify),
            ("CA (there was one, or there was none)", bool(self.authority), bool(other.authority)),
        ):
            if mine != its:
                return f"another {what}"
        return ""


def read(path: str, master: str | None, *, over_http: bool) -> Reading:
    """Read the file; `master` replaces the server's URL. Raises ClientConfigError.

    A credential goes over plain HTTP to this machine alone, unless `over_http`."""
    try:
        return _File(path).reading(master, over_http)
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        # PyYAML raises them for dates, numbers and depths that are none; without their text, which
        # may quote a secret.
        raise ClientConfigError(f"kubeconfig {path}: has a value that is unreadable ({type(error).__name__})") from None


def server_url(server: str, *, tls: bool) -> str:
    """Complete `host[:port]` to a URL: https where `tls`."""
    return server if "://" in server else f"{'https' if tls else 'http'}://{server}"


class _File:
    """One kubeconfig file and its current context."""

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(os.path.expanduser(path))
        self._folder = os.path.dirname(self._path)
        self._files: list[str] = []
        config = self._config = self._parsed()
        self._check(rules.DOCUMENT, rules.filled(config), "")
        name = config.get("current-context")
        if not name:
            names = self._names("contexts")
            if names == "none":
                raise self._error("has no current-context, and no contexts; give --kubeconfig a file that has them")
            raise self._error(
                f"has no current-context; choose one of {names}: "
                f"kubectl config use-context NAME --kubeconfig={self._path}"
            )
        context = self._entry("contexts", str(name), "current-context")
        self._context = f"context {name!r}"
        if "cluster" not in context:
            raise self._error(f"{self._context} has no cluster; add it")
        self._cluster_name, self._user_name = str(context["cluster"]), str(context.get("user") or "")
        self._cluster = self._entry("clusters", self._cluster_name, self._context)
        self._user = self._entry("users", self._user_name, self._context) if self._user_name else {}

    def reading(self, master: str | None, over_http: bool) -> Reading:
        """Read the current context; raises ClientConfigError."""
        where, cluster, user = f"cluster {self._cluster_name!r}", self._cluster, self._user
        if master:
            cluster["server"] = master
        self._check(rules.CLUSTER, cluster, where)
        self._check_user()
        secure = cluster.get("insecure-skip-tls-verify") or rules.file_of(cluster, "certificate-authority")
        tls = bool(secure or rules.file_of(user, "client-certificate"))
        cluster["server"] = server_url(cluster["server"], tls=tls)
        try:
            endpoint = Endpoint.parse(
                cluster["server"],
                server_name=cluster.get("tls-server-name"),
                proxy=cluster.get("proxy-url"),
                proxy_origin=f"proxy-url in the kubeconfig {self._path}",
            )
        except ValueError as error:
            raise self._error(f"{where}: {error}") from None
        authority = self._contents(cluster, where, "certificate-authority")
        headers = impersonation_headers(user)
        if not all(text.isascii() and text.isprintable() for header in headers for text in header):
            raise self._error(f"{self._user_where}: as, as-uid, as-groups, as-user-extra: only ASCII text")
        certificate = self._contents(user, self._user_where, "client-certificate")
        key = self._contents(user, self._user_where, "client-key")
        exposed = not endpoint.tls and (not is_local(endpoint.host) or endpoint.proxy is not None)
        if exposed and not over_http:  # nor is a plugin run, whose certificate would be of no use
            source: Source = Fixed(origin=f"no credential: none goes over plain HTTP to {endpoint.url}")
        else:
            source = self._source(certificate)
        return Reading(
            endpoint=endpoint,
            headers=headers,
            verify=not cluster.get("insecure-skip-tls-verify"),
            authority=authority,
            certificate=certificate,
            key=key,
            source=source,
            files=tuple(self._files),
            exposed=exposed and any(key in user for key in _SECRETS),
        )

    @property
    def _user_where(self) -> str:
        return f"user {self._user_name!r}"

    def _check_user(self) -> None:
        user, where = self._user, self._user_where
        self._check(rules.USER, user, where)
        if "exec" in user:
            user["exec"] = plugin = rules.filled(user["exec"])
            self._check(rules.EXEC, plugin, f"{where}: exec")

    def _source(self, certificate: bytes) -> Source:
        # In client-go's order: tokenFile, token (which serves while the file cannot be read),
        # username or password; without them a plugin, unless there is a certificate.
        user = self._user
        of = f"user {self._user_name!r} ({self._context}) in the kubeconfig {self._path}"
        token = user.get("token", "").strip()
        if "tokenFile" in user:
            path = self._absolute(user["tokenFile"])
            if not token and not os.path.isfile(path):
                raise self._error(f"{self._user_where}: tokenFile {path} is not a file; correct the path")
            return TokenFile(path, token, origin=f"the token in {path}, the tokenFile of {of}")
        if token:
            return Fixed(f"Bearer {token}", origin=f"the token of {of}")
        if "username" in user or "password" in user:
            pair = f"{user.get('username', '')}:{user.get('password', '')}"
            return Fixed(
                f"Basic {base64.b64encode(pair.encode()).decode()}", origin=f"the username and password of {of}"
            )
        if "auth-provider" in user:
            name = user["auth-provider"].get("name")
            raise self._error(
                f"{self._user_where}: auth-provider {name!r} is not supported; use an exec plugin or a token"
            )
        if certificate:
            return Fixed(origin=f"the client certificate of {of}")
        return self._plugin(of) if "exec" in user else Fixed(origin=f"no credential: there is none for {of}")

    def _plugin(self, of: str) -> Source:
        plugin = self._user["exec"]
        if os.path.dirname(plugin["command"]):
            plugin["command"] = os.path.join(self._folder, plugin["command"])
        command = plugin["command"]
        if shutil.which(command) is None:
            hint = plugin.get("installHint") or "install it, or correct command"
            raise self._error(f"{self._user_where}: no program {command!r} for exec; {hint}")
        from controllers.runtime.api.execplugin import ExecPlugin  # most kubeconfigs have none, and it loads much

        return ExecPlugin(plugin, self._folder, self._cluster, origin=f"what the exec plugin {command} gave, of {of}")

    def _contents(self, entry: dict[str, Any], where: str, key: str) -> bytes:
        """What a file holds that the entry names, or has inline; b"" for neither. Its path becomes
        absolute."""
        if data := entry.get(f"{key}-data"):
            try:
                return base64.b64decode("".join(data.split()), validate=True)
            except (binascii.Error, ValueError):
                raise self._error(f"{where}: {key}-data is not base64; remove it or encode it again") from None
        if key not in entry:
            return b""
        entry[key] = path = self._absolute(entry[key])
        self._files.append(path)
        try:
            return Path(path).read_bytes()
        except OSError as error:
            reason = "is not a file" if not os.path.isfile(path) else f"cannot be read: {error.strerror}"
            raise self._error(f"{where}: {key} {path} {reason}; correct the path") from None

    def _absolute(self, path: str) -> str:
        """Relative paths begin at the kubeconfig's folder."""
        return os.path.join(self._folder, os.path.expanduser(path))

    def _parsed(self) -> dict[str, Any]:
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
            problem = without_words(getattr(error, "problem", None) or "")
            raise self._error(f"is not valid YAML{line}: {problem}") from None
        if not isinstance(config, dict):
            raise self._error("is not a kubeconfig: it holds no mapping" if config else "is empty")
        return config

    def _entry(self, plural: str, name: str, where: str) -> dict[str, Any]:
        """What stands under this name, its empty fields left out."""
        single = _SINGLES[plural]
        named = self._named(plural)
        if len(named) != len({entry.get("name") for entry in named}):
            raise self._error(f"has two {plural} of one name, among {self._names(plural)}; rename or remove one")
        for entry in named:
            if entry.get("name") == name:
                content = entry.get(single) or {}
                if not isinstance(content, dict):
                    raise self._error(f"{single} {name!r} is not a mapping")
                return rules.filled(content)
        raise self._error(f"{where} names the {single} {name!r}, which is missing; there are {self._names(plural)}")

    def _named(self, plural: str) -> list[dict[str, Any]]:
        entries = self._config.get(plural) or []
        return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []

    def _names(self, plural: str) -> str:
        return ", ".join(str(entry.get("name")) for entry in self._named(plural)) or "none"

    def _check(self, table: Sequence[rules.Rule], entry: rules.Entry, where: str) -> None:
        if wrong := rules.problem(table, entry):
            raise self._error(f"{where}{wrong}".lstrip())

    def _error(self, text: str) -> ClientConfigError:
        return ClientConfigError(f"kubeconfig {self._path}{'' if text.startswith(('is ', 'has ')) else ':'} {text}")


_SECRETS: Final = ("token", "tokenFile", "username", "password", "exec", "auth-provider")
