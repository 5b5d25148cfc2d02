"""CertificateSigningRequests: who sent one is the server's word, and conditions alone change later.

Follows pkg/registry/certificates/certificates/strategy.go and
pkg/apis/certificates/validation/validation.go of k8s.io/kubernetes. Nobody signs here: a test writes
`status.certificate` itself."""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from cloudprovider.testing.apiserver.access import User
from cloudprovider.testing.apiserver.errors import (
    JSON,
    Cause,
    forbidden_value,
    invalid_value,
    not_supported,
    required,
)
from cloudprovider.testing.apiserver.kinds.kind import NAME_FIELDS, Strategy, read, take
from cloudprovider.testing.apiserver.kinds.schema import format_time

FIELDS: Final = {"metadata.name": NAME_FIELDS["metadata.name"], "spec.signerName": read("spec", "signerName")}

_USAGES: Final = (
    "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment",
    "decipher only", "digital signature", "email protection", "encipher only", "ipsec end system", "ipsec tunnel",
    "ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime",
    "server auth", "signing", "timestamping",
)  # fmt: skip
_DECISIONS: Final = ("Approved", "Denied")
_TRUE_ONLY: Final = (*_DECISIONS, "Failed")
_CONDITIONS: Final = "status.conditions"


class CertificateRequestStrategy(Strategy):
    """Rules of CertificateSigningRequests. A status.certificate is not read."""

    def sent_by(self, obj: JSON, user: User) -> None:
        """The spec says who created it, whatever the body said."""
        given = {"username": user.name, "uid": user.uid, "groups": list(user.groups), "extra": {}}
        spec = {name: value for name, value in obj["spec"].items() if name not in given}
        obj["spec"] = {**spec, **{name: value for name, value in given.items() if value}}

    def prepare_create(self, obj: JSON) -> None:
        """Nobody creates an approved one."""
        obj["status"] = {}

    def prepare_update(self, obj: JSON, old: JSON) -> None:
        """Only the metadata changes."""
        take(obj, old, "spec")
        take(obj, old, "status")

    def prepare_status(self, obj: JSON, old: JSON) -> None:
        """The spec stays, and so do the decisions that are there."""
        take(obj, old, "spec")
        conditions = list(_conditions(obj))
        for kind in _DECISIONS:
            before = [one for one in _conditions(old) if one["type"] == kind]
            places = [at for at, one in enumerate(conditions) if one["type"] == kind]
            if len(places) == len(before):
                for at, one in zip(places, before, strict=True):
                    conditions[at] = one
        _put_conditions(obj, _stamped(conditions, old))

    def prepare_approval(self, obj: JSON, old: JSON) -> None:
        """Only the conditions change."""
        take(obj, old, "spec")
        conditions = _stamped(_conditions(obj), old)
        take(obj, old, "status")
        _put_conditions(obj, conditions)

    def validate(self, obj: JSON) -> list[Cause]:
        """The request is signed by its own key; usages and signer are known words."""
        spec = obj["spec"]
        causes: list[Cause] = []
        wrong = _request_problem(spec["request"])
        if wrong:
            causes.append(invalid_value("spec.request", _shown_bytes(spec["request"]), wrong))
        usages = spec.get("usages") or []
        if not usages:
            causes.append(required("spec.usages"))
        for at, usage in enumerate(usages):
            if usage not in _USAGES:
                causes.append(not_supported(f"spec.usages[{at}]", usage, _USAGES))
        causes += [
            Cause("FieldValueDuplicate", f'Duplicate value: "{usage}"', f"spec.usages[{at}]")
            for at, usage in enumerate(usages)
            if usage in usages[:at]
        ]
        causes += _signer_problems(spec["signerName"])
        seconds = spec.get("expirationSeconds")
        if seconds is not None and seconds < 600:
            text = "may not specify a duration less than 600 seconds (10 minutes)"
            causes.append(invalid_value("spec.expirationSeconds", seconds, text))
        return causes + _condition_problems(_conditions(obj))

    def validate_update(self, obj: JSON, old: JSON) -> list[Cause]:
        """As the kind's other updates."""
        return self._step(obj, old)

    def validate_status(self, obj: JSON, old: JSON) -> list[Cause]:
        """No decision is added or changed here; a certificate is written once."""
        before = old["status"].get("certificate")
        causes = self._step(obj, old)
        for kind in _DECISIONS:
            if _count(obj, kind) > _count(old, kind):
                causes.append(forbidden_value(_CONDITIONS, f'updates may not add a condition of type "{kind}"'))
        if before and obj["status"].get("certificate") != before:
            causes.append(forbidden_value("status.certificate", "updates may not modify existing certificate content"))
        return causes

    def validate_approval(self, obj: JSON, old: JSON) -> list[Cause]:
        """Decisions are added, never removed."""
        return self._step(obj, old)

    def _step(self, obj: JSON, old: JSON) -> list[Cause]:
        return self.validate(obj) + [
            forbidden_value(_CONDITIONS, f'updates may not remove a condition of type "{kind}"')
            for kind in _TRUE_ONLY
            if _count(obj, kind) < _count(old, kind)
        ]


def _conditions(obj: JSON) -> Sequence[JSON]:
    return obj["status"].get("conditions") or ()


def _put_conditions(obj: JSON, conditions: Sequence[JSON]) -> None:
    status = {name: value for name, value in obj["status"].items() if name != "conditions"}
    obj["status"] = {**status, "conditions": list(conditions)} if conditions else status


def _count(obj: JSON, kind: str) -> int:
    return sum(one["type"] == kind for one in _conditions(obj))


def _stamped(conditions: Sequence[JSON], old: JSON) -> list[JSON]:
    """The conditions, each with its times: now, or the former ones of the same status."""
    now = format_time(datetime.now(UTC))
    found = []
    for one in conditions:
        kind, status = one["type"], one["status"]
        former = [each for each in _conditions(old) if (each["type"], each["status"]) == (kind, status)]
        since = next((each["lastTransitionTime"] for each in former if each.get("lastTransitionTime")), now)
        found.append(
            {
                **one,
                "lastUpdateTime": one.get("lastUpdateTime") or now,
                "lastTransitionTime": one.get("lastTransitionTime") or since,
            }
        )
    return found


def _condition_problems(conditions: Sequence[JSON]) -> list[Cause]:
    causes: list[Cause] = []
    for at, one in enumerate(conditions):
        kind, status = one["type"], one["status"]
        place = f"{_CONDITIONS}[{at}]"
        allowed = ("True",) if kind in _TRUE_ONLY else ("False", "True", "Unknown")
        if not kind:
            causes.append(required(f"{place}.type"))
        if not status:
            causes.append(required(f"{place}.status"))
        elif status not in allowed:
            causes.append(not_supported(f"{place}.status", status, allowed))
        before = Counter(each["type"] for each in conditions[:at])
        if kind in _DECISIONS and any(before[other] for other in _DECISIONS if other != kind):
            causes.append(invalid_value(_CONDITIONS, kind, "Approved and Denied conditions are mutually exclusive"))
        if before[kind]:
            causes.append(Cause("FieldValueDuplicate", f'Duplicate value: "{kind}"', f"{place}.type"))
    return causes


def _signer_problems(name: str) -> list[Cause]:
    """The form alone: DOMAIN/PATH."""
    if not name:
        return [required("spec.signerName")]
    if name == "kubernetes.io/legacy-unknown":
        text = "the legacy signerName is not allowed via this API version"
        return [invalid_value("spec.signerName", name, text)]
    if name.count("/") != 1 or name.startswith("/") or name.endswith("/"):
        text = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        return [invalid_value("spec.signerName", name, text)]
    return []


def _request_problem(request: str | None) -> str:
    """What is wrong with the PKCS#10 in it."""
    from cryptography import x509  # late: few programs that run this server ever send one

    try:
        text = base64.b64decode(request or "", validate=True)
        if not text.lstrip().startswith(b"-----BEGIN CERTIFICATE REQUEST-----"):
            return "PEM block type must be CERTIFICATE REQUEST"
        signed = x509.load_pem_x509_csr(text).is_signature_valid
    except (ValueError, binascii.Error) as error:
        return str(error)
    return "" if signed else "x509: signature is wrong"


def _shown_bytes(value: Any) -> str:
    return base64.b64decode(value or "").decode(errors="replace")
