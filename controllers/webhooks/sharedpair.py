"""The self-signed certificate that all replicas share, as any of them may answer: in a Secret,
which the leader fills and renews, and all read every minute.

The manifests make the Secret, without data: permission to create Secrets cannot be limited to one
name. Where it is missing or may not be read, each replica has a certificate of its own in memory,
and the API server trusts the leader's. A pair that another writer put into the Secret
(cert-manager, say) is served as it is, with its `ca.crt` as what is to be trusted, not renewed."""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable
from typing import Any, Final

import attrs

from cloudprovider.internal.certificates import LIFETIME, self_signed
from cloudprovider.internal.cleaning import text_of
from controllers.httpserver.certificates import MemoryPair
from controllers.httpserver.pairs import Pair, inspect
from controllers.runtime.api import MERGE_PATCH, ApiError, Conflict, Forbidden, NotFound, RestClient
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.election import LeaseLost
from controllers.webhooks.cabundle import decoded
from controllers.webhooks.rbac_rules import NAME, NAMESPACE

log = logging.getLogger(__name__)

DNS_NAMES: Final = [f"{NAME}.{NAMESPACE}.svc", f"{NAME}.{NAMESPACE}.svc.cluster.local", f"{NAME}.{NAMESPACE}", NAME]
"""The API server asks for the first one; the loopback's names are for people who try it by hand."""
REFRESH_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 1.0
RENEW_BEFORE: Final = LIFETIME.total_seconds() / 3
_PATH: Final = f"/api/v1/namespaces/{NAMESPACE}/secrets/{NAME}"
_TIMEOUT: Final = 5.0


@attrs.frozen
class _Held:
    pair: Pair
    authorities: bytes
    version: str


class SharedPair:
    """For one thread. `rest` is the guarded client; `leads()` says whether it may write now.

    `announce(bundle)` has the API server trust these certificates, and says whether it does: before
    a new one is used.
    """

    name = f"Secret {NAMESPACE}/{NAME}"

    def __init__(
        self,
        rest: RestClient,
        *,
        leads: Callable[[], bool],
        announce: Callable[[bytes], bool],
        maker: Callable[[str, list[str]], bytes] = self_signed,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._rest = rest
        self._leads = leads
        self._announce = announce
        self._make = maker
        self._clock = clock
        self._held: _Held | None = None
        self._own: MemoryPair | None = None  # where Secrets may not be read
        self._successor: Pair | None = None  # made, and not stored yet
        self._next = float("-inf")
        self._logged = ""

    @property
    def authorities(self) -> bytes:
        """What is to be trusted, in PEM; empty while there is no pair."""
        if self._held is not None:
            return self._held.authorities
        return self._own.read().certificate if self._own is not None else b""

    def read(self) -> Pair:
        """The present pair; asks the API server when due. Raises OSError while there is none."""
        now = self._clock.monotonic()
        if now >= self._next:
            try:
                self._look()
                self._own = None
            except (Forbidden, NotFound) as error:
                if self._held is not None:
                    self._tell(f"{self.name} cannot be followed or renewed: {text_of(error)}")
                else:
                    self._tell(
                        f"every replica has a webhook certificate of its own, and the API server trusts the leader's "
                        f"alone: {text_of(error)}. Fix: kubectl create secret generic -n {NAMESPACE} {NAME}, and the "
                        "right to get and patch it"
                    )
                    self._own = self._own or MemoryPair(DNS_NAMES, self._make, self._clock)
            except (Conflict, LeaseLost) as error:
                log.debug("%s: somebody else writes it: %s", self.name, error)
            except (ApiError, OSError) as error:
                self._tell(f"{self.name} cannot be used: {text_of(error)}")
            known = self._held is not None or self._own is not None
            self._next = now + (REFRESH_SECONDS if known else RETRY_SECONDS)
        if self._held is not None:
            return self._held.pair
        if self._own is not None:
            return self._own.read()
        raise OSError("there is no certificate yet; the leader makes it")

    def _look(self) -> None:
        """Read the Secret; fill it or renew it where that is due and ours to do."""
        secret = self._rest.get(_PATH, timeout=_TIMEOUT)
        if not secret.get("data"):
            self._held = None
            if self._leads():
                pair = self._made()
                self._held = self._store(pair, pair.certificate, secret["metadata"]["resourceVersion"])
                log.info("%s: has a self-signed certificate now, for the webhook servers of all replicas", self.name)
            return
        held = _held(secret)
        found = inspect(held.pair)
        self._held = held
        if found.ours and self._leads() and found.ends - self._clock.time() < RENEW_BEFORE:
            self._renew(held)
        self._logged = ""

    def _store(self, pair: Pair, authorities: bytes, version: str) -> _Held:
        body = {"metadata": {"resourceVersion": version}, "data": _data(pair, authorities)}
        done = self._rest.request("PATCH", _PATH, body=body, content_type=MERGE_PATCH, timeout=_TIMEOUT)
        return _held(done.json())

    def _renew(self, held: _Held) -> None:
        """The new certificate is trusted first, beside the old one, and then used. It stays the
        same one until it could be stored: otherwise each try would write another caBundle."""
        new = self._successor = self._successor or self._made()
        both = new.certificate + held.pair.certificate
        if not self._announce(both):
            return
        self._held, self._successor = self._store(new, both, held.version), None
        log.info("%s: the webhook servers' self-signed certificate was renewed", self.name)

    def _made(self) -> Pair:
        return Pair.of(self._make(DNS_NAMES[0], [*DNS_NAMES, "localhost", "127.0.0.1", "::1"]))

    def _tell(self, text: str) -> None:
        if text != self._logged:
            self._logged = text
            log.warning("%s", text)


def _held(secret: Any) -> _Held:
    """Raises OSError where it holds no pair."""
    data = secret.get("data") or {}
    certificate, key = decoded(data.get("tls.crt")), decoded(data.get("tls.key"))
    if not certificate or not key:
        raise OSError("it holds no certificate; remove its data, and the leader makes a new one")
    authorities = decoded(data.get("ca.crt")) or certificate
    return _Held(Pair(certificate, key), authorities, secret["metadata"]["resourceVersion"])


def _data(pair: Pair, authorities: bytes) -> dict[str, str]:
    parts = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": authorities}
    return {name: base64.b64encode(value).decode() for name, value in parts.items()}
