"""The review APIs."""

from __future__ import annotations

from typing import Any

from tests.integration.parity.model import Scenario, get, post

TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
SUBJECT = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
SELF = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def review(kind: str, **spec: Any) -> dict[str, Any]:
    """A review to send."""
    group = "authentication" if kind == "TokenReview" else "authorization"
    return {"kind": kind, "apiVersion": f"{group}.k8s.io/v1", "spec": spec}


NODES = {"verb": "patch", "resource": "nodes", "name": "x"}

SCENARIOS = [
    Scenario(
        "access reviews",
        [
            post(SELF, review("SelfSubjectAccessReview", resourceAttributes=NODES), compare="outcome", expect=201),
            post(SELF, review("SelfSubjectAccessReview"), compare="outcome", expect=422),
            post(
                SELF,
                review("SelfSubjectAccessReview", resourceAttributes=NODES, nonResourceAttributes={}),
                compare="outcome",
                expect=422,
            ),
            post(SUBJECT, review("SubjectAccessReview", user="nobody", resourceAttributes=NODES), expect=201),
            post(SUBJECT, review("SubjectAccessReview", resourceAttributes=NODES), compare="outcome", expect=422),
            post(
                SUBJECT,
                review(
                    "SubjectAccessReview",
                    user="system:anonymous",
                    groups=["system:unauthenticated"],
                    nonResourceAttributes={"verb": "get", "path": "/metrics"},
                ),
                expect=201,
            ),
            post(
                SUBJECT,
                review(
                    "SubjectAccessReview",
                    user="x",
                    groups=["system:masters"],
                    nonResourceAttributes={"verb": "get", "path": "/metrics"},
                ),
                compare="outcome",
                expect=201,
            ),
            post(
                SUBJECT,
                review(
                    "SubjectAccessReview",
                    user="x",
                    uid="7",
                    groups=["some", "system:authenticated"],
                    extra={"scopes.example.org/list": ["a", "b"]},
                    nonResourceAttributes={"verb": "get", "path": "/metrics"},
                ),
                expect=201,
            ),
            post(
                SUBJECT,
                review("SubjectAccessReview", user="x", nonResourceAttributes={"verb": "get", "path": "/healthz/*"}),
                expect=201,
            ),
            get(SELF, compare="outcome", expect=405),
            post(SELF, review("TokenReview"), compare="outcome", expect=400),
        ],
    ),
    Scenario(
        "token reviews",
        [
            post(TOKENS, review("TokenReview", token="wrong"), compare="outcome", expect=201),
            post(TOKENS, review("TokenReview"), compare="outcome"),
            get(TOKENS, compare="outcome", expect=405),
        ],
    ),
]
