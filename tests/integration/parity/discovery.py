"""Discovery and health."""

from __future__ import annotations

from tests.integration.parity.model import Scenario, get

SCENARIOS = [
    Scenario(
        "discovery and health",
        [
            get("/version", compare="outcome", expect=200),
            get("/healthz", expect=200),
            get("/livez", expect=200),
            get("/readyz", expect=200),
            get("/api", compare="outcome", expect=200),
            get("/api/v1", compare="outcome", expect=200),
            get("/apis", compare="outcome", expect=200),
            get("/apis/coordination.k8s.io", expect=200, compare="outcome"),
            get("/apis/coordination.k8s.io/v1", compare="outcome", expect=200),
            get("/apis/certificates.k8s.io/v1", compare="outcome", expect=200),
            get("/apis/authentication.k8s.io/v1", compare="outcome", expect=200),
            get("/apis/authorization.k8s.io/v1", compare="outcome", expect=200),
        ],
    )
]
