"""The self-signed certificate that all replicas share, as any of them may answer, and the API
server's trust in it.

The certificate is in a Secret, which the leader fills and renews, and all read every minute. The
manifests make the Secret, without data: permission to create Secrets cannot be limited to one name.
Where it is missing or may not be read, each replica has a certificate of its own in memory, and the
API server trusts the leader's. A pair that another writer put into the Secret (cert-manager, say)
is served as it is, with its `ca.crt` as what is to be trusted, not renewed.

The CA goes to `clientConfig.caBundle` of those webhooks in the configurations of our name that lead
to our Service, and nowhere else (stage 6, write)."""

from __future__ import annotations

import base64
import binascii
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from cloudprovider.internal.backoff import NO_ATTEMPTS, Backoff
from cloudprovider.internal.certificates import LIFETIME, self_signed
from cloudprovider.internal.cleaning import text_of
from controllers.httpserver.certificates import MemoryPair
from controllers.httpserver.pairs import Pair, inspect
from controllers.runtime.api import (
    MERGE_PATCH,
    STRATEGIC_PATCH,
    ApiError,
    Conflict,
    Forbidden,
    NotFound,
    RestClient,
)
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.election import LeaseLost
from controllers.webhooks.rbac_rules import KINDS, NAME, NAMESPACE

log = logging.getLogger(__name__)

DNS_NAMES: Final = [f"{NAME}.{NAMESPACE}.svc", f"{NAME}.{NAMESPACE}.svc.cluster.local", f"{NAME}.{NAMESPACE}", NAME]
"""The API server asks for the first one; the loopback's names are for people who try it by hand."""
REFRESH_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 1.0
RENEW_BEFORE: Final = LIFETIME.total_seconds() / 3
_SECRET: Final = f"/api/v1/namespaces/{NAMESPACE}/secrets/{NAME}"
_CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1"
_LOOK_SECONDS: Final = 10.0
_UNDONE: Final = Backoff(base=2 * _LOOK_SECONDS, cap=3600.0, quiet=7200.0)
_TIMEOUT: Final = 5.0
_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


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
        self._logged: dict[str, str] = {}

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
                # What was read before stays in use: the API server trusts it still.
                if self._held is not None:
                    _warn(self._logged, self.name, f"{self.name} cannot be followed or renewed: {text_of(error)}")
                else:
                    _warn(
                        self._logged,
                        self.name,
                        f"every replica has a webhook certificate of its own, and the API server trusts the leader's "
                        f"alone: {text_of(error)}. Fix: kubectl create secret generic -n {NAMESPACE} {NAME}, and the "
                        "right to get and patch it",
                    )
                    self._own = self._own or MemoryPair(DNS_NAMES, self._make, self._clock)
            except (Conflict, LeaseLost) as error:
                log.debug("%s: somebody else writes it: %s", self.name, error)
            except (ApiError, OSError) as error:
                _warn(self._logged, self.name, f"{self.name} cannot be used: {text_of(error)}")
            known = self._held is not None or self._own is not None
            self._next = now + (REFRESH_SECONDS if known else RETRY_SECONDS)
        if self._held is not None:
            return self._held.pair
        if self._own is not None:
            return self._own.read()
        raise OSError("there is no certificate yet; the leader makes it")

    def _look(self) -> None:
        """Read the Secret; fill it or renew it where that is due and ours to do."""
        secret = self._rest.get(_SECRET, timeout=_TIMEOUT)
        if not secret.get("data"):
            # As the manifests make it. Emptied by hand, it asks for another certificate.
            self._held = None
            if self._leads():
                pair = self._made()
                self._held = self._store(pair, pair.certificate, secret["metadata"]["resourceVersion"])
                log.info("%s: has a self-signed certificate now, for the webhook servers of all replicas", self.name)
            return
        held = _held(secret)
        found = inspect(held.pair)
        self._held = held
        # Nobody else's pair is renewed: cert-manager would write its own again.
        if found.ours and self._leads() and found.ends - self._clock.time() < RENEW_BEFORE:
            self._renew(held)
        self._logged.clear()

    def _store(self, pair: Pair, authorities: bytes, version: str) -> _Held:
        # Onto the version that was read: two leaders for a moment must not store two certificates.
        body = {"metadata": {"resourceVersion": version}, "data": _data(pair, authorities)}
        done = self._rest.request("PATCH", _SECRET, body=body, content_type=MERGE_PATCH, timeout=_TIMEOUT)
        return _held(done.json())

    def _renew(self, held: _Held) -> None:
        """Have another certificate trusted, and then used."""
        # It stays the same one until it could be stored: otherwise each try would write another
        # caBundle. Replicas serve the old one for up to a minute, so both are trusted.
        new = self._successor = self._successor or self._made()
        both = new.certificate + held.pair.certificate
        if not self._announce(both):
            return
        self._held, self._successor = self._store(new, both, held.version), None
        log.info("%s: the webhook servers' self-signed certificate was renewed", self.name)

    def _made(self) -> Pair:
        return Pair.of(self._make(DNS_NAMES[0], [*DNS_NAMES, "localhost", "127.0.0.1", "::1"]))


def _held(secret: Any) -> _Held:
    """Raises OSError where it holds no pair."""
    data = secret.get("data") or {}
    certificate, key = _decoded(data.get("tls.crt")), _decoded(data.get("tls.key"))
    if not certificate or not key:
        raise OSError("it holds no certificate; remove its data, and the leader makes a new one")
    authorities = _decoded(data.get("ca.crt")) or certificate
    return _Held(Pair(certificate, key), authorities, secret["metadata"]["resourceVersion"])


def _data(pair: Pair, authorities: bytes) -> dict[str, str]:
    parts = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": authorities}
    return {name: base64.b64encode(value).decode() for name, value in parts.items()}


class CABundle:
    """For one thread. `rest` is the guarded client: only the leader writes."""

    def __init__(self, rest: RestClient, clock: Clock = SYSTEM_CLOCK) -> None:
        self._rest = rest
        self._clock = clock
        # By kind: the object's UID, and what it was given.
        self._written: dict[str, tuple[str, bytes]] = {}
        self._undone = NO_ATTEMPTS  # what was written, and replaced
        self._next = float("-inf")
        self._logged: dict[str, str] = {}

    def look(self, bundle: bytes) -> None:
        """Have the configurations hold these certificates, when that is due. Never raises."""
        if self._clock.monotonic() >= self._next or any(bundle != known for _, known in self._written.values()):
            self.ensure(bundle)

    def ensure(self, bundle: bytes) -> bool:
        """Have them hold these certificates now; False when that is not certain. Never raises."""
        now = self._clock.monotonic()
        if _UNDONE.is_over(self._undone, now):
            self._undone = NO_ATTEMPTS
        self._next = now + (self._undone.delay or _LOOK_SECONDS)
        done = True
        for kind in KINDS:
            try:
                self._ensure(kind, bundle)
            except NotFound:
                # No webhook of this kind is configured: nothing is lacking.
                self._written.pop(kind, None)
            except Conflict:  # another program writes it just now
                self._next, done = self._clock.monotonic(), False
            except LeaseLost:
                done = False
            except ApiError as error:
                what = f"{kind}/{NAME}: its caBundle is not known or cannot be written"
                _warn(self._logged, kind, f"{what}: {text_of(error)}")
                done = False
        return done

    def _ensure(self, kind: str, bundle: bytes) -> None:
        path = f"{_CONFIGURATIONS}/{kind}/{NAME}"
        found = self._rest.get(path, timeout=_TIMEOUT)
        patch = missing_trust(found, bundle)
        if patch is None:
            if self._undone == NO_ATTEMPTS:  # not between two replacements, which are told once in all
                self._logged.pop(kind, None)
            return
        mark = (found["metadata"].get("uid", ""), bundle)
        # We wrote it, and it is gone: a GitOps tool that applies its manifest again, say. Two that
        # write in turn would have the API server reload its webhooks without end.
        if self._written.get(kind) == mark:
            self._undone = _UNDONE.next(self._undone, self._clock.monotonic())
            self._next = self._clock.monotonic() + self._undone.delay
            _warn(
                self._logged,
                kind,
                f"{kind}/{NAME}: somebody else replaces the caBundle of this program's self-signed certificate. Give "
                "the webhook server a certificate (--webhook-tls-cert-file), or stop them",
            )
        # Strategic: webhooks are merged by name, so those of others in the list stay as they are.
        self._rest.request("PATCH", path, body=patch, content_type=STRATEGIC_PATCH, timeout=_TIMEOUT)
        self._written[kind] = mark
        names = ", ".join(one["name"] for one in patch["webhooks"])
        log.info("%s/%s: wrote the CA of the webhook server into the caBundle of %s", kind, NAME, names)


def missing_trust(configuration: Mapping[str, Any], bundle: bytes) -> dict[str, Any] | None:
    """The strategic merge patch that has our webhooks trust every certificate in `bundle`; None
    where they do. Pure."""
    wanted = _CERTIFICATE.findall(bundle)  # and nothing else that a file may hold
    lacking = [
        one["name"]
        for one in configuration.get("webhooks") or ()
        if _is_ours(one) and not set(wanted) <= set(_CERTIFICATE.findall(_decoded(one["clientConfig"].get("caBundle"))))
    ]
    if not lacking or not wanted:
        return None
    encoded = base64.b64encode(b"\n".join([*wanted, b""])).decode()
    return {
        "metadata": {"resourceVersion": configuration["metadata"]["resourceVersion"]},
        "webhooks": [{"name": name, "clientConfig": {"caBundle": encoded}} for name in lacking],
    }


def _is_ours(webhook: Mapping[str, Any]) -> bool:
    service = (webhook.get("clientConfig") or {}).get("service") or {}
    return (service.get("namespace"), service.get("name")) == (NAMESPACE, NAME)


def _decoded(text: object) -> bytes:
    """What this base64 text holds; nothing where it is none."""
    try:
        return base64.b64decode(text) if isinstance(text, str) else b""
    except (binascii.Error, ValueError):
        return b""


def _warn(logged: dict[str, str], about: str, text: str) -> None:
    """Say it, unless it is what was said of this last."""
    if text != logged.get(about):
        logged[about] = text
        log.warning("%s", text)
