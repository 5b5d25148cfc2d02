"""The cluster's own CA of client certificates, which it says in a ConfigMap.

kube-apiserver keeps extension-apiserver-authentication in kube-system up to date. It is read where
there is no `--client-ca-file`; where it cannot be read, HTTPS is served without client
certificates. Follows k8s.io/apiserver options/authentication.go.
"""

from __future__ import annotations

import logging
from typing import Final

from controllers.endpoints.reviews import LOOKUP_RULE
from controllers.runtime.api import ApiError, Forbidden, NotFound, RestClient
from controllers.runtime.cleaning import text_of
from controllers.runtime.clock import SYSTEM_CLOCK, Clock

log = logging.getLogger(__name__)

CONFIG_MAP: Final = LOOKUP_RULE.names[0]
PATH: Final = f"/api/v1/namespaces/kube-system/configmaps/{CONFIG_MAP}"
REFRESH_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 10.0
_TIMEOUT: Final = 5.0


class ClusterCA:
    """The cluster's ConfigMap, asked for at most once a minute; the last known one in between.

    `quiet`: what cannot be read is no warning."""

    name = f"ConfigMap kube-system/{CONFIG_MAP}"

    def __init__(self, rest: RestClient, *, quiet: bool = False, clock: Clock = SYSTEM_CLOCK) -> None:
        self._rest = rest
        self._quiet = quiet
        self._clock = clock
        self._known = b""
        self._next = float("-inf")
        self._logged = ""
        self._refusals = 0

    def read(self) -> bytes:
        """The present CA, as far as known; asks the API server when that is due. Never raises."""
        now = self._clock.monotonic()
        if now < self._next:
            return self._known
        self._next = now + RETRY_SECONDS
        try:
            found = self._rest.get(PATH, timeout=_TIMEOUT)
            self._known = str((found.get("data") or {}).get("client-ca-file", "")).encode()
        except NotFound:
            self._known, self._refusals = b"", 0
            self._tell("there is none, so this cluster has no CA of client certificates")
        except Forbidden:
            # An API server that has just started has not read the roles, and refuses everybody.
            self._refusals += 1
            if self._refusals > 1:
                self._tell(f"missing permission: {LOOKUP_RULE.fix()}")
        except ApiError as error:
            log.debug("%s cannot be read now: %s", self.name, text_of(error))
            return self._known
        else:
            self._next = now + REFRESH_SECONDS
            self._logged = ""
            self._refusals = 0
        return self._known

    def _tell(self, problem: str) -> None:
        self._next = self._clock.monotonic() + REFRESH_SECONDS
        if problem != self._logged:
            self._logged = problem
            log.log(
                logging.INFO if self._quiet else logging.WARNING,
                "client certificates are not accepted: %s: %s. Other ways: --client-ca-file, "
                "--authentication-skip-lookup",
                self.name,
                problem,
            )
