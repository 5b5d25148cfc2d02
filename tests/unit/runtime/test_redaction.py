"""Redaction: a table of the forms in which credentials are written, and one of what must stay
readable."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from cloudprovider.internal.cleaning import REDACTED, redact

SECRET = "hunter2x"
JWT = "eyJhbGciOiJSUzI1NiIsImtpZCI6Ing.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJl"
FORMS = [
    # headers
    "Authorization: Bearer hunter2x",
    "authorization: bearer hunter2x",
    "Authorization: hunter2x",
    "{'authorization': 'Basic hunter2x'}",
    'headers={"Authorization": b"Bearer hunter2x"}',
    "[('Authorization', 'Bearer hunter2x')]",
    "Authorization: SSWS hunter2x",
    "Proxy-Authorization: Basic hunter2x",
    "sent Bearer hunter2x",
    "X-Auth-Token: hunter2x",
    "X-Api-Key: hunter2x",
    "x-amz-security-token: hunter2x",
    "Cookie: session=hunter2x",
    "Set-Cookie: sid=hunter2x; Path=/",
    # name and value
    "aws_secret_access_key = hunter2x",
    "aws_secret_access_key=hunter2x",
    "AWS_SESSION_TOKEN=hunter2x",
    "OS_PASSWORD=hunter2x",
    "PGPASSWORD=hunter2x",
    "passwd=hunter2x",
    "pwd=hunter2x;",
    "pass=hunter2x",
    "password=https://hunter2x/services/a",
    "token: https://host/hunter2x",
    "password: hunter2x",
    "password => hunter2x",
    "password := hunter2x",
    "the password is wrong: password='hunter2x'",
    '{"password": "hunter2x"}',
    "{'password': 'hunter2x'}",
    r"{\"password\": \"hunter2x\"}",
    r'{"password": "a\"hunter2x"}',
    '{"password": "two hunter2x words"}',
    "('password', 'hunter2x')",
    "b'password=hunter2x'",
    "<password>hunter2x</password>",
    "{Username:admin Password:hunter2x}",
    "passphrase: hunter2x",
    "clientSecret=hunter2x",
    "client_secret: hunter2x",
    "secretKey: hunter2x",
    "access_key=hunter2x",
    "accessKey=hunter2x",
    "AccountKey=hunter2x",
    "SharedAccessKey=hunter2x",
    "apikey=hunter2x",
    "api-key: hunter2x",
    "auth_key=hunter2x",
    "private_key: hunter2x",
    "refresh_token=hunter2x&scope=all",
    "credentials=hunter2x",
    "secret=hunter2x",
    "token:hunter2x",
    "passwordHash=hunter2x",
    "--password hunter2x",
    "--cloud-token hunter2x",
    "--token=hunter2x",
    # URLs
    "https://store.example/p?sig=hunter2x&x=1",
    "X-Amz-Signature=hunter2x",
    "https://user:hunter2x@cloud.example/p",
    "https://user:a@hunter2x@cloud.example/p",
    "https://hunter2x@cloud.example/",
    "dial user:hunter2x@db.example:5432",
    # keys
    "-----BEGIN PRIVATE KEY-----\nhunter2x",
    "-----BEGIN RSA PRIVATE KEY-----\nhunter2x\n-----END RSA PRIVATE KEY-----",
    r"-----BEGIN EC PRIVATE KEY-----\nhunter2x\n-----END EC PRIVATE KEY-----",
]
TOKENS = [
    JWT,
    JWT[:40],
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "glpat-abcdefghij1234567890",
    "dop_v1_0123456789abcdef0123456789abcdef",
]
READABLE = [
    "basic example at https://10.0.0.1:6443/api/v1/nodes/n1 of fake://i-1: token bucket empty",
    "node ip-10-0-1-2.eu-west-1.compute.internal: aws:///eu-west-1a/i-0abc1234def567890",
    "node n1: provider ID gce://my-project/europe-west1-b/node-1",
    "openstack://RegionOne/9b2c3f5e-0d8c-4a0e-9a6b-6c8f2f3d1e77",
    "uid 9b2c3f5e-0d8c-4a0e-9a6b-6c8f2f3d1e77, resourceVersion 123456789, resourceVersion=123456789",
    'secrets is forbidden: User "system:serviceaccount:kube-system:ccm" cannot get resource "secrets" in API group',
    'secret "kube-system/cloud-config" not found',
    "the bearer token is invalid",
    "Bearer authentication failed",
    "Basic authentication is off",
    'Www-Authenticate: Bearer realm="https://auth.example/"',
    "invalid password: must not be empty",
    "password: not set",
    "token: expired",
    "the token has expired: log in again",
    "the access key is missing",
    "secretName: my-tls, secretNamespace: default",
    "tokenFile=/var/run/secrets/token",
    "--authentication-token-webhook-cache-ttl=10s",
    "--token-file /etc/token",
    "automountServiceAccountToken=false",
    "max_tokens=4096",
    "token provider: default",
    "image registry.example:5000/ccm:v1.2@sha256:0123abcd",
    "ops@example.com, mailto:ops@example.com",
    "https://git@github.com/x and ssh://root@10.0.0.1",
    "key=node-1 value=3, key: default/web",
    "label topology.kubernetes.io/zone=eu-1a, annotation key: foo.example/bar",
    "passed=3 failed=1 bypass=true compass=n",
    "[2001:db8::1]:443 00:1a:2b:3c:4d:5e",
    "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "missing permission: patch on nodes/status; without it nodes get no addresses",
]


@pytest.mark.row("X5")
def test_a_credential_is_hidden_in_every_form_and_tokens_are_known_by_themselves() -> None:
    told = {text: redact(f"request failed: {text}") for text in FORMS}
    assert {text: one for text, one in told.items() if SECRET in one or REDACTED not in one} == {}
    assert [one for one in told.values() if not one.startswith("request failed: ") or redact(one) != one] == []
    answered = {redact(f"answered {token}, sorry") for token in TOKENS}
    assert answered == {f"answered {REDACTED}, sorry"}


REQUESTS = [
    # where they went
    "POST /apis/authentication.k8s.io/v1/tokenreviews: https://10.0.0.1:6443: timed out",
    "GET /api/v1/namespaces/kube-system/secrets: https://api.example.com: refused",
    "POST /api/v1/namespaces/a/serviceaccounts/b/token: https://[fd00::1]:6443: timed out",
    "PATCH /api/v1/namespaces/a/secrets/b: http://127.0.0.1:8080/",
    # statuses, and what they ended in
    "POST /oauth/token: 401, the cloud does not know the API client",
    "POST /v3/auth/tokens: 503 Service Unavailable",
    "GET /secrets/db-password: 404 not found",
    "GET /secrets/db-password: 404: no such secret",
    "POST /oauth/token: HTTP 401",
    "POST /oauth/token: EOF",
    "POST /oauth/token: ReadTimeout: no answer after 5 s",
    "POST /oauth/token: dial tcp 10.0.0.1:443: connection refused",
    "POST https://10.0.0.1:5000/v3/auth/token: certificate verify failed",
    '{"token": 401}',
    "the token: expired at 12:00",
    "client_secret: is empty",
    "password: too short",
    "password: doesn't match",
    "token: rejected",
    "token: 401",
]


@pytest.mark.row("X5", "O22")
def test_names_prose_and_what_became_of_a_request_stay_readable() -> None:
    assert [redact(text) for text in [*READABLE, *REQUESTS]] == [*READABLE, *REQUESTS]


LOOK_HARMLESS = [
    "POST /oauth/token: hunter2x",
    "GET /v1/token: 401, token: hunter2x",
    "/run/secrets/token: hunter2x",
    "/run/secrets/token:hunter2x",
    "/run/secrets/db-password: 'hunter2x'",
    "POST /oauth/token?token=hunter2x: 401",
    "POST /oauth/token;token=hunter2x: 401",
    "/etc/app.ini: client secret: hunter2x",
    "/etc/app.ini: password=hunter2x",
    "secret/data/token: hunter2x",
    "example.com/token: hunter2x",
    "token: 401hunter2x",
    "token: 401-hunter2x",
    "token=401.hunter2x",
    "password: 12345hunter2x",
    "password: too-hunter2x",
    "password: toohunter2x",
    "password=too+hunter2x",
    "token: use.hunter2x",
]
"""What only looks like a status or a sentence."""
WORDS = [
    "password=please",
    "token=refused",
    "password=404",
    "pin_secret: 1234",
    "token: abcdefghijklmnop",
    "open /run/secrets/db-password: correcthorse",
    "the file /etc/acme/password: Correcthorse",
]
"""The word is the value."""


@pytest.mark.row("O22")
def test_what_only_looks_like_a_status_or_a_sentence_is_hidden() -> None:
    told = {text: redact(text) for text in LOOK_HARMLESS}
    assert {text: one for text, one in told.items() if SECRET in one or redact(one) != one} == {}
    assert [text for text in WORDS if not redact(text).endswith(REDACTED)] == []


@pytest.mark.row("X5")
@pytest.mark.parametrize(
    "unit",
    ["a", "token", "token=", "token=\"", "token=\\\"", "bearer ", "basic aaaaaaa", "authorization: bearer ", "cookie:a",
     "-----BEGIN PRIVATE KEY-----", "://", "://a:", "a:b", "a@", "eyJaaaaaaaaaaaa", "-eyJ", "--token ", "token>a",
     "token: https://a.", "token: https://[", "/a", "/a: ", "/token: a", "/a:1", "token: 401", "token: too",
     "password ", "secretname", "ghp_", ":", "\\", "user:a", "pass\"\""],
)  # fmt: skip
def test_hostile_texts_cost_linear_time(unit: str) -> None:
    """Eight times the text: eight times the work, where the square would be sixty-four times."""
    small, large = (unit * (size // len(unit)) for size in (8_000, 64_000))
    assert _cost(redact, large) < 30 * max(_cost(redact, small), 0.0005)


def _cost(work: Callable[[str], object], text: str) -> float:
    """This thread's CPU time, the least of three."""
    costs = []
    for _ in range(3):
        began = time.thread_time()
        work(text)
        costs.append(time.thread_time() - began)
    return min(costs)
