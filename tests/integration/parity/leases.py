"""Leases: patches, PUT with resourceVersion, MicroTime."""

from __future__ import annotations

from typing import Any

from tests.integration.parity.model import Scenario, get, merge, post, put, strategic

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


def lease(name: str, metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A Lease to send."""
    meta = {"name": name, **(metadata or {})}
    return {"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": meta, "spec": spec}


SCENARIOS = [
    Scenario(
        "leases: merge patch works, stale is a conflict, renewTime needs six digits",
        [
            post(
                LEASES,
                lease(
                    "lp-a",
                    holderIdentity="x",
                    leaseDurationSeconds=15,
                    leaseTransitions=0,
                    renewTime="2026-01-01T00:00:00.000000Z",
                ),
                save={"old": "metadata.resourceVersion"},
                expect=201,
            ),
            merge(f"{LEASES}/lp-a", {"spec": {"renewTime": "2026-01-01T00:00:05.123456Z"}}, expect=200),
            merge(f"{LEASES}/lp-a", {"spec": {"renewTime": "2026-01-01T01:00:06.123456+01:00"}}, expect=200),
            merge(
                f"{LEASES}/lp-a",
                {"metadata": {"resourceVersion": "${old}"}, "spec": {"holderIdentity": "y"}},
                expect=409,
            ),
            merge(f"{LEASES}/lp-a", {"spec": {"renewTime": "2026-01-01T00:00:05Z"}}, compare="outcome", expect=422),
            merge(f"{LEASES}/lp-a", {"spec": {"renewTime": "2026-01-01T00:00:05.123Z"}}, compare="outcome", expect=422),
            merge(f"{LEASES}/lp-a", {"spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}}, expect=422),
            strategic(f"{LEASES}/lp-a", {"spec": {"holderIdentity": ""}}, expect=200),
            strategic(f"{LEASES}/lp-a", {"spec": {"renewTime": "2026-01-01T00:00:05Z"}}, compare="outcome"),
            merge(f"{LEASES}/lp-a", {"spec": None}, expect=200),
        ],
        [f"{LEASES}/lp-a"],
    ),
    Scenario(
        "leases: PUT needs a resourceVersion, and may create",
        [
            put(
                f"{LEASES}/lp-put",
                lease("lp-put", holderIdentity="a"),
                save={"version": "metadata.resourceVersion"},
                expect=201,
            ),
            put(f"{LEASES}/lp-put", lease("lp-put", holderIdentity="b"), expect=422),
            put(f"{LEASES}/lp-put", lease("lp-put", {"resourceVersion": "${version}"}, holderIdentity="b"), expect=200),
            put(f"{LEASES}/lp-put", lease("lp-put", {"resourceVersion": "${version}"}, holderIdentity="c"), expect=409),
            put(f"{LEASES}/lp-put", lease("lp-put", {"resourceVersion": "1"}, holderIdentity="c"), expect=409),
            put(f"{LEASES}/lp-put-2", lease("lp-put-2", {"resourceVersion": "1"}, holderIdentity="c")),
            post(LEASES, lease("lp-put"), expect=409),
            post(LEASES, lease("lp-gated", strategy="x", preferredHolder="y"), expect=201),
            post(LEASES, lease("Lp_Bad"), expect=422),
            post(LEASES, lease("lp-bad", renewTime="2026-01-01T00:00:05Z"), compare="outcome", expect=400),
            get(f"{LEASES}/lp-none", expect=404),
            get(LEASES, query={"fieldSelector": "metadata.name=lp-put"}, expect=200),
            get("/apis/coordination.k8s.io/v1/leases", query={"fieldSelector": "metadata.name=lp-put"}, expect=200),
        ],
        [f"{LEASES}/lp-put", f"{LEASES}/lp-put-2", f"{LEASES}/lp-bad", f"{LEASES}/lp-gated"],
    ),
]
