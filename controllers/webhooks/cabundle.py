"""Stage 6: WRITE. The CA of a self-signed certificate in the webhook configurations, so that the
API server trusts the replicas.

It goes to `clientConfig.caBundle` of those webhooks in the configurations of our name that lead to
our Service, and nowhere else: by the leader, only where it is missing, and less and less often
where another writer replaces it."""

from __future__ import annotations

import base64
import binascii
import logging
import re
from collections.abc import Mapping
from typing import Any, Final

from cloudprovider.internal.backoff import NO_ATTEMPTS, Backoff
from cloudprovider.internal.cleaning import text_of
from controllers.runtime.api import STRATEGIC_PATCH, ApiError, Conflict, NotFound, RestClient
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.election import LeaseLost
from controllers.webhooks.rbac_rules import KINDS, NAME, NAMESPACE

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 10.0
_UNDONE: Final = Backoff(base=2 * LOOK_SECONDS, cap=3600.0, quiet=7200.0)
_TIMEOUT: Final = 5.0
_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


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
        self._next = now + (self._undone.delay or LOOK_SECONDS)
        done = True
        for kind in KINDS:
            try:
                self._ensure(kind, bundle)
            except NotFound:
                self._written.pop(kind, None)
            except Conflict:  # another program writes it just now
                self._next, done = self._clock.monotonic(), False
            except LeaseLost:
                done = False
            except ApiError as error:
                self._tell(kind, f"its caBundle is not known or cannot be written: {text_of(error)}")
                done = False
        return done

    def _ensure(self, kind: str, bundle: bytes) -> None:
        path = f"/apis/admissionregistration.k8s.io/v1/{kind}/{NAME}"
        found = self._rest.get(path, timeout=_TIMEOUT)
        patch = missing_trust(found, bundle)
        if patch is None:
            return
        mark = (found["metadata"].get("uid", ""), bundle)
        if self._written.get(kind) == mark:  # we wrote it, and it is gone
            self._undone = _UNDONE.next(self._undone, self._clock.monotonic())
            self._next = self._clock.monotonic() + self._undone.delay
            self._tell(
                kind,
                "somebody else replaces the caBundle of this program's self-signed certificate. Give the webhook "
                "server a certificate (--webhook-tls-cert-file), or stop them",
            )
        self._rest.request("PATCH", path, body=patch, content_type=STRATEGIC_PATCH, timeout=_TIMEOUT)
        self._written[kind] = mark
        names = ", ".join(one["name"] for one in patch["webhooks"])
        log.info("%s/%s: wrote the CA of the webhook server into the caBundle of %s", kind, NAME, names)

    def _tell(self, kind: str, text: str) -> None:
        if text != self._logged.get(kind):
            self._logged[kind] = text
            log.warning("%s/%s: %s", kind, NAME, text)


def missing_trust(configuration: Mapping[str, Any], bundle: bytes) -> dict[str, Any] | None:
    """The strategic merge patch that has our webhooks trust every certificate in `bundle`; None
    where they do. Pure."""
    wanted = _CERTIFICATE.findall(bundle)  # and nothing else that a file may hold
    lacking = [
        one["name"]
        for one in configuration.get("webhooks") or ()
        if _is_ours(one) and not set(wanted) <= set(_CERTIFICATE.findall(decoded(one["clientConfig"].get("caBundle"))))
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


def decoded(text: object) -> bytes:
    """What this base64 text holds; nothing where it is none."""
    try:
        return base64.b64decode(text) if isinstance(text, str) else b""
    except (binascii.Error, ValueError):
        return b""
