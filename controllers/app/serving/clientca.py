"""The CA of client certificates: a file, or what the cluster says in a ConfigMap.

Stage: beside all of them. Data comes from `--client-ca-file`, or else from the ConfigMap
extension-apiserver-authentication in kube-system, which kube-apiserver keeps up to date; it goes to `tls.py`, which
asks again every few seconds. Where it cannot be read the manager serves on without client certificates. Follows
k8s.io/apiserver options/authentication.go.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

from controllers.app.serving.rights import LOOKUP_RULE
from controllers.runtime.api import ApiError, Forbidden, NotFound, RestClient
from controllers.runtime.cleaning import text_of
from controllers.runtime.clock import SYSTEM_CLOCK, Clock

__all__ = ["AuthoritySource", "ClusterCA", "FileCA", "NoCA"]

log = logging.getLogger(__name__)

CONFIG_MAP: Final = LOOKUP_RULE.names[0]
PATH: Final = f"/api/v1/namespaces/kube-system/configmaps/{CONFIG_MAP}"
REFRESH_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 10.0
_TIMEOUT: Final = 5.0


class AuthoritySource(Protocol):
    """Where the present CA comes from."""

    name: str
    """For log lines and errors."""

    def read(self) -> bytes:
        """Certificates in PEM; empty: client certificates are not asked for. Raises OSError."""


class NoCA:
    """No client certificates."""

    name = "none"

    def read(self) -> bytes:
        """Nothing."""
        return b""


class FileCA:
    """A file, read anew each time."""

    def __init__(self, path: str) -> None:
        self.name = path

    def read(self) -> bytes:
        """Its contents, unchecked. Raises OSError."""
        with open(self.name, "rb") as file:
            return file.read()


class ClusterCA:
    """The cluster's ConfigMap, asked for at most once a minute; the last known answer in between. For one thread.

    `quiet`: what cannot be read is no warning.
    """

    name = f"ConfigMap kube-system/{CONFIG_MAP}"

    def __init__(self, rest: RestClient, *, quiet: bool = False, clock: Clock = SYSTEM_CLOCK) -> None:
        self._rest = rest
        self._quiet = quiet
        self._clock = clock
        self._known = b""
        self._next = float("-inf")
        self._told = ""

    def read(self) -> bytes:
        """The present CA, as far as it is known; asks the API server when that is due. Never raises."""
        now = self._clock.monotonic()
        if now < self._next:
            return self._known
        self._next = now + RETRY_SECONDS
        try:
            found = self._rest.get(PATH, timeout=_TIMEOUT)
            self._known = str((found.get("data") or {}).get("client-ca-file", "")).encode()
        except NotFound:
            self._known = b""
            self._tell("there is none, so this cluster has no CA of client certificates")
        except Forbidden:
            self._tell(f"missing permission: {LOOKUP_RULE.fix()}")
        except ApiError as error:
            log.debug("%s cannot be read now: %s", self.name, text_of(error))
            return self._known
        else:
            self._next = now + REFRESH_SECONDS
            self._told = ""
        return self._known

    def _tell(self, problem: str) -> None:
        self._next = self._clock.monotonic() + REFRESH_SECONDS
        if problem != self._told:
            self._told = problem
            log.log(
                logging.INFO if self._quiet else logging.WARNING,
                "client certificates are not accepted: %s: %s. Other ways: --client-ca-file, "
                "--authentication-skip-lookup",
                self.name,
                problem,
            )
