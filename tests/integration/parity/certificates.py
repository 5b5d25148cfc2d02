"""CertificateSigningRequests: who sent one, and what each path may change."""

from __future__ import annotations

from typing import Any

from tests.integration.parity.model import Scenario, delete, get, json_patch, merge, post, put, strategic
from tests.support import kubeletcsr as make

CSRS = make.CSRS
_PEM = make.pem("web-1", ["10.0.0.1"])
_TIME = "2026-01-02T03:04:05Z"


def csr(name: str, **spec: Any) -> dict[str, Any]:
    """A request to send, always the same one but for `spec`."""
    made = make.csr(name, "web-1", _PEM)
    return {**made, "spec": {**made["spec"], **spec}}


def condition(kind: str, status: str = "True", **more: Any) -> dict[str, Any]:
    """A condition with its times, which the server would fill in."""
    return {"type": kind, "status": status, "lastUpdateTime": _TIME, "lastTransitionTime": _TIME, **more}


def decided(*conditions: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """A merge patch of the conditions."""
    found: dict[str, Any] = {"status": {"conditions": list(conditions)}}
    return {**found, "metadata": metadata} if metadata else found


SCENARIOS = [
    Scenario(
        "certificatesigningrequests: the server says who sent one, and nobody changes what was sent",
        [
            post(
                CSRS,
                {**csr("cr-a", extra={"a": ["b"]}), "status": {"conditions": [condition("Approved")]}},
                expect=201,
                save={"version": "metadata.resourceVersion"},
            ),
            get(f"{CSRS}/cr-a", expect=200),
            get(f"{CSRS}/cr-a/approval", expect=200),
            get(CSRS, query={"fieldSelector": f"spec.signerName={make.SIGNER}"}, expect=200),
            get(CSRS, query={"fieldSelector": "spec.signerName=acme.example/x"}, expect=200),
            get(CSRS, query={"fieldSelector": "spec.username=admin"}, compare="outcome", expect=400),
            merge(f"{CSRS}/cr-a", {"spec": {"username": "system:node:db-1", "usages": ["client auth"]}}, expect=200),
            merge(f"{CSRS}/cr-a", decided(condition("Approved")), expect=200),
            merge(f"{CSRS}/cr-a", {"metadata": {"labels": {"a": "b"}}}, expect=200),
            post(CSRS, csr("cr-a"), expect=409),
            post(CSRS, csr("cr-bad", request="%%%"), compare="outcome", expect=400),
            delete(f"{CSRS}/cr-a", expect=200),
            delete(f"{CSRS}/cr-a", expect=404),
        ],
        [f"{CSRS}/cr-a"],
    ),
    Scenario(
        "certificatesigningrequests: approval changes conditions alone, by patch too",
        [
            post(CSRS, csr("cr-b"), expect=201, save={"old": "metadata.resourceVersion", "uid": "metadata.uid"}),
            merge(
                f"{CSRS}/cr-b/approval",
                {**decided(condition("acme.example/Seen", reason="x")), "spec": {"signerName": "acme.example/x"}},
                expect=200,
                save={"new": "metadata.resourceVersion"},
            ),
            merge(f"{CSRS}/cr-b/approval", decided(condition("Approved"), resourceVersion="${old}"), expect=409),
            merge(
                f"{CSRS}/cr-b/approval",
                decided(condition("Approved"), resourceVersion="${new}", uid="0-0"),
                compare="outcome",
            ),
            merge(
                f"{CSRS}/cr-b/approval",
                decided(condition("acme.example/Seen", reason="x"), condition("Approved"), resourceVersion="${new}"),
                expect=200,
            ),
            merge(f"{CSRS}/cr-b/approval", {"status": {"certificate": "aGVsbG8="}}, expect=200),
            get(f"{CSRS}/cr-b", expect=200),
            get(f"{CSRS}/cr-none/approval", expect=404),
            merge(f"{CSRS}/cr-none/approval", decided(condition("Approved")), expect=404),
        ],
        [f"{CSRS}/cr-b"],
    ),
    Scenario(
        "certificatesigningrequests: the other ways to approve, and times",
        [
            post(CSRS, csr("cr-c"), expect=201),
            json_patch(
                f"{CSRS}/cr-c/approval",
                [{"op": "add", "path": "/status/conditions", "value": [condition("Approved")]}],
                expect=200,
            ),
            strategic(f"{CSRS}/cr-c/approval", decided(condition("Approved", message="y")), expect=200),
            post(CSRS, csr("cr-d"), expect=201),
            put(
                f"{CSRS}/cr-d/approval",
                {**csr("cr-d"), "status": {"conditions": [condition("Denied", reason="x")]}},
                expect=200,
            ),
            merge(
                f"{CSRS}/cr-d/approval",
                decided({"type": "Denied", "status": "True"}),
                compare="outcome",
                expect=200,
            ),
            post(f"{CSRS}/cr-d/approval", csr("cr-d"), compare="outcome", expect=405),
        ],
        [f"{CSRS}/cr-c", f"{CSRS}/cr-d"],
    ),
]
