"""A kubeconfig user's credential plugin: a program that prints credentials (stages 1 and 6).

It gets no terminal, a process group of its own, and `RUN_LIMIT` seconds. What is still running
then, or when we end, is killed with all its children; client-go and the official client wait
without end. Follows
https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from controllers.runtime.api.credentials import Credential, Source
from controllers.runtime.api.errors import CredentialsUnavailable
from controllers.runtime.api.tls import check_pair

RUN_LIMIT: Final = 30.0
"""Seconds that a plugin may take: half of what a request waits for credentials, so that a second
try may still help."""

MOST_BYTES: Final = 1 << 20
"""What a plugin may print; a credential has a few thousand bytes."""

_TELLS: Final = 500
_gone: Final[set[int]] = set()  # process groups of plugins that have ended, and whose children may not have
_groups: Final[set[int]] = set()  # the process groups of all plugins that run now
_starting: Final[set[object]] = set()  # plugins that may run already, and whose group is not known yet
_TOLD: Final = (
    *("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data"),
    *("proxy-url", "disable-compression"),
)
"""What a plugin is told of the cluster, as client-go does, beside its own `config`."""
_EXTENSION: Final = "client.authentication.k8s.io/exec"


class _Failed(Exception):
    """A run came to no good end; the message says why."""


class ExecPlugin(Source):
    """Runs the plugin; a source of `Credentials`."""

    slow = True
    pace = 10.0

    def __init__(
        self,
        settings: Mapping[str, Any],
        folder: str,
        cluster: Mapping[str, Any],
        *,
        limit: float = RUN_LIMIT,
        origin: str = "",
    ) -> None:
        """`settings` is the user's `exec`; it runs in `folder` and may ask for `cluster`."""
        self.origin = origin
        self._settings = settings
        self._folder = folder
        self._cluster = cluster
        self._limit = limit
        self._lock = threading.Lock()
        self._running: subprocess.Popen[bytes] | None = None
        self._closed = False

    def fetch(self) -> Credential:
        """Run the plugin to its end, or end it; raises CredentialsUnavailable with what it said."""
        command = self._settings.get("command")
        try:
            output = self._run([str(command), *(self._settings.get("args") or ())], self._environment())
        except (_Failed, OSError) as error:
            raise CredentialsUnavailable(f"credential plugin {command}: {str(error)[:_TELLS]}") from error
        try:
            document = json.loads(output)
        except ValueError:
            raise CredentialsUnavailable(f"credential plugin {command} printed no JSON") from None
        if not isinstance(document, dict) or document.get("kind") != "ExecCredential":
            raise CredentialsUnavailable(f"credential plugin {command} printed no ExecCredential")
        if document.get("apiVersion") != self._settings.get("apiVersion"):
            raise CredentialsUnavailable(
                f"credential plugin {command} speaks {str(document.get('apiVersion'))[:_TELLS]}, "
                f"the kubeconfig asks for {self._settings.get('apiVersion')}"
            )
        return read_status(document.get("status"), command)

    def close(self) -> None:
        """End a running plugin, and run none any more. From any thread; may be called twice."""
        with self._lock:
            self._closed = True
            if self._running is not None:
                _end_group(self._running.pid)

    def _run(self, args: list[str], env: Mapping[str, str]) -> str:
        with self._lock:
            if self._closed:
                raise _Failed("the client is closed")
            _starting.add(self)
            try:
                process = self._running = subprocess.Popen(
                    args,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    cwd=self._folder or None,
                    env=env,
                    # A group of its own, so that its children can be killed with it.
                    start_new_session=True,
                )
                _groups.add(process.pid)
            finally:
                _starting.discard(self)
        try:
            output, complaint = self._outputs(process)
        except subprocess.TimeoutExpired:
            raise _Failed(
                f"not done after {self._limit:g} s; it was ended, with all its children. Does it wait for a terminal, "
                "a browser or the network?"
            ) from None
        finally:
            with self._lock:
                self._running = None
                if process.returncode is None:
                    _end_group(process.pid)
                _groups.discard(process.pid)
            process.wait()
            # As a container's first process we inherit its children, and nobody else would take
            # them.
            _reap(process.pid)
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        if self._closed:
            raise _Failed("the client is closed")
        if process.returncode:
            raise _Failed(f"it ended with code {process.returncode}: {complaint.strip()}")
        return output

    def _outputs(self, process: subprocess.Popen[bytes]) -> tuple[str, str]:
        """What it prints until it ends; raises subprocess.TimeoutExpired, and _Failed when
        that is too much."""
        until = time.monotonic() + self._limit
        printed: dict[Any, bytes] = {process.stdout: b"", process.stderr: b""}
        with selectors.DefaultSelector() as selector:
            for stream in printed:
                selector.register(stream, selectors.EVENT_READ)
            while selector.get_map():
                left = until - time.monotonic()
                if left <= 0:
                    raise subprocess.TimeoutExpired(process.args, self._limit)
                for key, _ in selector.select(left):
                    data = os.read(key.fd, 65536)
                    printed[key.fileobj] += data
                    if not data:
                        selector.unregister(key.fileobj)
                    elif len(printed[key.fileobj]) > MOST_BYTES:
                        raise _Failed(f"it printed more than {MOST_BYTES} bytes, and was ended")
        process.wait(max(0.0, until - time.monotonic()))
        output, complaint = (text.decode(errors="replace") for text in printed.values())
        return output, complaint

    def _environment(self) -> dict[str, str]:
        own = {one["name"]: one.get("value") or "" for one in self._settings.get("env") or ()}
        return {**os.environ, **own, "KUBERNETES_EXEC_INFO": self._info()}

    def _info(self) -> str:
        spec: dict[str, Any] = {"interactive": False}
        if self._settings.get("provideClusterInfo"):
            spec["cluster"] = cluster = {key: self._cluster[key] for key in _TOLD if key in self._cluster}
            if path := self._cluster.get("certificate-authority"):
                cluster["certificate-authority-data"] = base64.b64encode(Path(path).read_bytes()).decode()
            for extension in self._cluster.get("extensions") or ():
                if extension.get("name") == _EXTENSION:
                    cluster["config"] = extension.get("extension")
        return json.dumps({"apiVersion": self._settings.get("apiVersion"), "kind": "ExecCredential", "spec": spec})


def end_plugins(seconds: float = 0.0) -> None:
    """End every plugin that is running, as the process ends at once. For signal handlers: no lock.

    `seconds` to wait for a plugin that another thread starts, and that would outlive us."""
    until = time.monotonic() + seconds
    # Between fork and the entry in _groups: such a plugin would outlive us.
    while _starting and time.monotonic() < until:
        time.sleep(0.01)
    for group in tuple(_groups):
        with contextlib.suppress(PermissionError):  # it has become another user's
            _end_group(group)


def _reap(group: int) -> None:
    """Take the plugin's children that have ended, if we are process 1 and inherit them."""
    _gone.add(group)
    for one in tuple(_gone):
        try:
            while os.waitpid(-one, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            _gone.discard(one)


def _end_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def read_status(status: Any, command: object) -> Credential:
    """Check what a plugin printed; raises CredentialsUnavailable."""
    if not isinstance(status, dict):
        raise CredentialsUnavailable(f"credential plugin {command} answered without a status object")
    token = status.get("token") or ""
    certificate = status.get("clientCertificateData") or ""
    key = status.get("clientKeyData") or ""
    if not all(isinstance(text, str) for text in (token, certificate, key)):
        raise CredentialsUnavailable(f"credential plugin {command} answered with a field that is no string")
    if not token and not certificate:
        raise CredentialsUnavailable(f"credential plugin {command} gave neither token nor certificate")
    if bool(certificate) != bool(key):
        raise CredentialsUnavailable(f"credential plugin {command} gave a certificate without key, or a key alone")
    if certificate:
        try:
            check_pair(certificate.encode(), key.encode())
        except OSError as error:
            raise CredentialsUnavailable(
                f"credential plugin {command} gave a certificate and key that cannot be used: {error}"
            ) from None
    if not token.isascii() or not token.isprintable() or " " in token:
        raise CredentialsUnavailable(f"credential plugin {command} gave a token that cannot be one")
    expires_at: float | None = None
    if expiry := status.get("expirationTimestamp"):
        try:
            at = datetime.fromisoformat(str(expiry))
        except ValueError:
            raise CredentialsUnavailable(f"credential plugin {command}: expirationTimestamp is not a time") from None
        if at.tzinfo is None:
            raise CredentialsUnavailable(f"credential plugin {command}: expirationTimestamp has no time zone (Z, say)")
        expires_at = at.timestamp()
    return Credential(f"Bearer {token}" if token else "", expires_at, certificate.encode(), key.encode())
