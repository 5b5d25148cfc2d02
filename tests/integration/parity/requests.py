"""Requests that are wrong by themselves: paths, methods, bodies, credentials."""

from __future__ import annotations

from tests.integration.parity.model import Scenario, Step, delete, get, merge, post
from tests.integration.parity.nodes import NODES, node

SCENARIOS = [
    Scenario(
        "credentials",
        [
            get(NODES, token="wrong", expect=401),
            get(NODES, token="", expect=403),
            get(f"{NODES}/x", token="", expect=403),
            get("/api/v1/namespaces/default/services", token="", expect=403),
            get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x", token="", expect=403),
            merge(f"{NODES}/x/status", {}, token="", expect=403),
            delete(f"{NODES}/x", token="", expect=403),
            get(NODES, query={"watch": "1"}, token="", expect=403),
            post(NODES, node("rp-none"), token="", expect=403),
            Step("PUT", f"{NODES}/x", node("x"), token="", expect=403),
            delete(NODES, token="", expect=403),
            get("/healthz", token="", expect=200),
            get("/metrics/x", token="", compare="outcome"),
        ],
    ),
    Scenario(
        "paths and methods",
        [
            get(f"{NODES}/rp-none", expect=404),
            get(f"{NODES}/rp-none/status", expect=404),
            get("/apis/coordination.k8s.io/v1/namespaces/default/leases/rp-none", expect=404),
            get("/nothing", expect=404),
            get("/api/v1/pods", query={"fieldSelector": "spec.nodeName=x"}, expect=200),
            get("/api/v1/namespaces/default/pods/rp-none", expect=404),
            get(
                "/apis/discovery.k8s.io/v1/namespaces/kube-public/endpointslices",
                query={"labelSelector": "a=b"},
                expect=200,
            ),
            post(f"{NODES}/rp-none", node("rp-none"), compare="outcome", expect=405),
            Step("PUT", NODES, node("rp-none"), compare="outcome", expect=405),
            Step("PATCH", NODES, {}, "application/merge-patch+json", compare="outcome", expect=405),
            delete(f"{NODES}/rp-none/status", compare="outcome", expect=405),
            post(f"{NODES}/rp-none/status", node("rp-none"), compare="outcome", expect=405),
            Step("HEAD", f"{NODES}/rp-none", compare="outcome", expect=405),
            Step("HEAD", NODES, compare="outcome", expect=405),
            Step("HEAD", "/healthz", compare="outcome", expect=200),
        ],
    ),
    Scenario(
        "bodies",
        [
            Step("POST", NODES, None, raw=b"{", compare="outcome", expect=400),
            Step("POST", NODES, None, raw=b"", compare="outcome", expect=400),
            Step("POST", NODES, None, raw=b"[]", compare="outcome", expect=400),
            Step("POST", NODES, None, raw=b'{"metadata": {"generation": NaN}}', compare="outcome", expect=400),
            Step("POST", NODES, None, raw=b'{"x": -Infinity}', compare="outcome", expect=400),
            Step("POST", NODES, None, raw=b"[" * 20_000, compare="outcome", expect=400),
            Step("POST", NODES, node("rp-x"), "text/plain", compare="outcome", expect=415),
            Step("POST", NODES, None, raw=b" " * (3 * 1024 * 1024 + 1), compare="outcome", expect=413),
            Step("POST", NODES, node("rp-charset"), "application/json; charset=utf-8", expect=201),
            post(NODES, node("rp-unicode", metadata={"annotations": {"a": "\u00e4\u20ac\U0001f600 <>&"}}), expect=201),
        ],
        [f"{NODES}/rp-charset", f"{NODES}/rp-unicode"],
    ),
]
