"""Service accounts and the requests for their tokens."""

from __future__ import annotations

from typing import Any

from tests.integration.parity.model import Scenario, delete, get, merge, post

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


def account(name: str, **more: Any) -> dict[str, Any]:
    """A service account to send."""
    return {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": name}, **more}


def request(**spec: Any) -> dict[str, Any]:
    """A TokenRequest to send."""
    return {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": spec}


SCENARIOS = [
    Scenario(
        "service accounts",
        [
            post(ACCOUNTS, account("one", automountServiceAccountToken=False), expect=201),
            post(ACCOUNTS, account("one"), expect=409),
            post(ACCOUNTS, account("Not.Valid"), expect=422),
            get(f"{ACCOUNTS}/one", expect=200),
            merge(f"{ACCOUNTS}/one", {"metadata": {"labels": {"a": "b"}}}, expect=200),
            get(ACCOUNTS, query={"labelSelector": "a=b"}, expect=200),
            delete(f"{ACCOUNTS}/one", expect=200),
            delete(f"{ACCOUNTS}/one", expect=404),
        ],
        [f"{ACCOUNTS}/one"],
    ),
    Scenario(
        "tokens of service accounts",
        [
            post(f"{ACCOUNTS}/holder/token", request(), expect=404),
            post(ACCOUNTS, account("holder"), compare="nothing"),
            post(f"{ACCOUNTS}/holder/token", request(expirationSeconds=3600), compare="outcome", expect=201),
            post(f"{ACCOUNTS}/holder/token", request(), compare="outcome", expect=201),
            post(f"{ACCOUNTS}/holder/token", request(expirationSeconds=599), expect=422),
            post(f"{ACCOUNTS}/holder/token", request(expirationSeconds=(1 << 32) + 1), expect=422),
            post(f"{ACCOUNTS}/holder/token", account("holder"), compare="outcome", expect=400),
            get(f"{ACCOUNTS}/holder/token", compare="outcome", expect=405),
            merge(f"{ACCOUNTS}/holder/token", {}, compare="outcome", expect=405),
        ],
        [f"{ACCOUNTS}/holder"],
    ),
]
