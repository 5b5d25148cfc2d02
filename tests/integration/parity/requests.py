"""Requests that are wrong by themselves: paths, methods, bodies, credentials."""

from __future__ import annotations

from tests.integration.parity.model import Scenario, Step, delete, get, merge, post
from tests.integration.parity.nodes import NODES, node

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
PROTOBUF = "application/vnd.kubernetes.protobuf"


def part(number: int, data: bytes) -> bytes:
    """One field of a message."""
    return bytes([number << 3 | 2, len(data)]) + data


def protobuf(version: str, kind: str, raw: bytes) -> bytes:
    """A body in Kubernetes' envelope."""
    return b"k8s\0" + part(1, part(1, version.encode()) + part(2, kind.encode())) + part(2, raw)


LEASE = part(1, part(1, b"rp-proto")) + part(2, part(1, b"me") + b"\x10\x0f" + part(3, b"\x08\x01\x10\xe8\x07"))
"""Named, held by "me" for 15 s, acquired in 1970, a second and a microsecond after the epoch."""

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
        ],
    ),
    Scenario(
        "bodies",
        [
            Step("POST", NODES, None, raw=b"{", compare="outcome", expect=400),
            Step("POST", NODES, None, raw=b"", compare="outcome", expect=400),
            Step("POST", NODES, None, raw=b"[]", compare="outcome", expect=400),
            Step("POST", NODES, node("rp-x"), "text/plain", compare="outcome", expect=415),
            Step("POST", NODES, None, raw=b" " * (3 * 1024 * 1024 + 1), compare="outcome", expect=413),
            Step("POST", NODES, node("rp-charset"), "application/json; charset=utf-8", expect=201),
            post(NODES, node("rp-unicode", metadata={"annotations": {"a": "\u00e4\u20ac\U0001f600 <>&"}}), expect=201),
        ],
        [f"{NODES}/rp-charset", f"{NODES}/rp-unicode"],
    ),
    Scenario(
        "bodies in Protobuf, as Go programs send them",
        [
            Step("POST", LEASES, None, PROTOBUF, raw=protobuf("coordination.k8s.io/v1", "Lease", LEASE), expect=201),
            Step("POST", LEASES, None, PROTOBUF, raw=protobuf("coordination.k8s.io/v1", "Lease", LEASE), expect=409),
            Step("POST", LEASES, None, PROTOBUF, raw=b"{}", compare="outcome", expect=400),
            Step("POST", LEASES, None, PROTOBUF, raw=protobuf("v1", "Pod", LEASE), compare="outcome", expect=400),
            Step("PATCH", f"{LEASES}/rp-proto", None, PROTOBUF, raw=b"", compare="outcome", expect=415),
            Step("DELETE", f"{LEASES}/rp-proto", None, PROTOBUF, raw=protobuf("v1", "DeleteOptions", b""), expect=200),
        ],
        [f"{LEASES}/rp-proto"],
    ),
]
