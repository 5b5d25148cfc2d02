"""Secrets: types and what they demand, stringData, what is immutable."""

from __future__ import annotations

import base64
from typing import Any

from tests.integration.parity.model import Scenario, delete, get, json_patch, merge, post, put, strategic

SECRETS = "/api/v1/namespaces/kube-system/secrets"


def secret(name: str, kind: str = "", **fields: Any) -> dict[str, Any]:
    """A Secret to send."""
    typed = {"type": kind} if kind else {}
    return {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": name}, **typed, **fields}


def coded(text: str) -> str:
    """Base64."""
    return base64.b64encode(text.encode()).decode()


def refused(kind: str = "", **fields: Any) -> Any:
    """A Secret that must not be created."""
    return post(SECRETS, secret("st-bad", kind, **fields), expect=422)


SCENARIOS = [
    Scenario(
        "secrets: created, read, changed, removed",
        [
            post(
                SECRETS,
                secret("st-a", data={"a": coded("x"), "e": ""}, stringData={"a": "y", "b": "\u00e4"}),
                expect=201,
            ),
            get(f"{SECRETS}/st-a", expect=200),
            merge(f"{SECRETS}/st-a", {"stringData": {"c": "new"}, "data": {"b": None}}, expect=200),
            strategic(f"{SECRETS}/st-a", {"data": {"a": None}, "metadata": {"labels": {"l": "m"}}}, expect=200),
            json_patch(f"{SECRETS}/st-a", [{"op": "replace", "path": "/data/c", "value": coded("z")}], expect=200),
            put(f"{SECRETS}/st-a", secret("st-a", stringData={"only": "this"}), expect=200),
            put(f"{SECRETS}/st-none", secret("st-none"), expect=404),
            merge(f"{SECRETS}/st-a", {"type": "example.org/own"}, expect=422),
            merge(f"{SECRETS}/st-a", {"data": None}, expect=200),
            get(SECRETS, query={"fieldSelector": "type=Opaque,metadata.name=st-a"}, expect=200),
            get(SECRETS, query={"fieldSelector": "kind=x"}, compare="outcome", expect=400),
            post(SECRETS, secret("st-a"), expect=409),
            post(SECRETS, secret("st-dry", stringData={"a": "b"}), query={"dryRun": "All"}, expect=201),
            delete(f"{SECRETS}/st-a", expect=200),
            get(f"{SECRETS}/st-a", expect=404),
        ],
        [f"{SECRETS}/st-a"],
    ),
    Scenario(
        "secrets: what is refused",
        [
            post(SECRETS, secret("St_Bad"), expect=422),
            post(SECRETS, secret("st-bad", data={"a": "not base64!"}), compare="outcome", expect=400),
            post(SECRETS, secret("st-bad", data={"a": 1}), compare="outcome", expect=400),
            refused(data={"a b": ""}),
            refused(data={"..a": ""}),
            refused(data={".": ""}),
            refused(data={"k" * 254: ""}),
            refused(data={"a": coded("x" * (1024 * 1024 + 1))}),
            refused("kubernetes.io/tls"),
            refused("kubernetes.io/tls", data={"tls.crt": ""}),
            refused("kubernetes.io/dockercfg"),
            refused("kubernetes.io/dockerconfigjson", stringData={"a": "b"}),
            post(
                SECRETS,
                secret("st-bad", "kubernetes.io/dockerconfigjson", stringData={".dockerconfigjson": "{"}),
                compare="outcome",
                expect=422,
            ),
            refused("kubernetes.io/basic-auth"),
            refused("kubernetes.io/ssh-auth", stringData={"ssh-privatekey": ""}),
            refused("kubernetes.io/service-account-token"),
        ],
        [f"{SECRETS}/st-bad"],
    ),
    Scenario(
        "secrets: types, and immutable ones",
        [
            post(SECRETS, secret("st-tls", "kubernetes.io/tls", stringData={"tls.crt": "", "tls.key": ""}), expect=201),
            post(SECRETS, secret("st-basic", "kubernetes.io/basic-auth", stringData={"username": ""}), expect=201),
            post(SECRETS, secret("st-ssh", "kubernetes.io/ssh-auth", stringData={"ssh-privatekey": "k"}), expect=201),
            post(
                SECRETS,
                secret("st-docker", "kubernetes.io/dockerconfigjson", stringData={".dockerconfigjson": "{}"}),
                expect=201,
            ),
            post(SECRETS, secret("st-own", "example.org/own"), expect=201),
            merge(f"{SECRETS}/st-tls", {"stringData": {"tls.crt": "-----BEGIN X-----"}}, expect=200),
            post(SECRETS, secret("st-fix", stringData={"a": "1"}, immutable=True), expect=201),
            merge(f"{SECRETS}/st-fix", {"stringData": {"a": "2"}}, expect=422),
            merge(f"{SECRETS}/st-fix", {"immutable": False}, expect=422),
            merge(f"{SECRETS}/st-fix", {"stringData": {"a": "1"}}, expect=200),
            merge(f"{SECRETS}/st-fix", {"metadata": {"labels": {"a": "b"}}}, expect=200),
        ],
        [f"{SECRETS}/st-{name}" for name in ("tls", "basic", "ssh", "docker", "own", "fix")],
    ),
]
