"""DELETE: preconditions, finalizers, propagation policies, collections."""

from __future__ import annotations

from tests.integration.parity.model import PARTIAL, Scenario, delete, get, json_patch, merge, post, strategic
from tests.integration.parity.nodes import NODES, node
from tests.integration.parity.services import SERVICES, service

NIL = "00000000-0000-0000-0000-000000000000"

SCENARIOS = [
    Scenario(
        "preconditions: another uid or resourceVersion is a conflict, a match deletes, gone is 404",
        [
            post(NODES, node("dp-pre"), save={"uid": "metadata.uid", "old": "metadata.resourceVersion"}),
            merge(f"{NODES}/dp-pre", {"metadata": {"labels": {"a": "b"}}}, save={"new": "metadata.resourceVersion"}),
            delete(f"{NODES}/dp-pre", {"preconditions": {"uid": NIL}}, expect=409),
            delete(f"{NODES}/dp-pre", {"preconditions": {"uid": "${uid}", "resourceVersion": "${old}"}}, expect=409),
            delete(
                f"{NODES}/dp-pre",
                {
                    "kind": "DeleteOptions",
                    "apiVersion": "v1",
                    "preconditions": {"uid": "${uid}", "resourceVersion": "${new}"},
                },
                expect=200,
            ),
            delete(f"{NODES}/dp-pre", {"preconditions": {"uid": "${uid}"}}, expect=404),
            get(f"{NODES}/dp-pre", expect=404),
        ],
        [f"{NODES}/dp-pre"],
    ),
    Scenario(
        "finalizers hold a deletion",
        [
            post(NODES, node("dp-held", metadata={"finalizers": ["a.b/c", "d.e/f"]})),
            delete(f"{NODES}/dp-held", expect=200),
            delete(f"{NODES}/dp-held", expect=200),
            merge(f"{NODES}/dp-held", {"metadata": {"labels": {"still": "there"}}}, expect=200),
            strategic(f"{NODES}/dp-held", {"metadata": {"finalizers": ["new.one/x"]}}, expect=422),
            merge(f"{NODES}/dp-held", {"metadata": {"deletionTimestamp": None}}, expect=200),
            strategic(f"{NODES}/dp-held", {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.b/c"]}}, expect=200),
            json_patch(f"{NODES}/dp-held", [{"op": "remove", "path": "/metadata/finalizers/0"}], expect=200),
            get(f"{NODES}/dp-held", expect=404),
            post(NODES, node("dp-held"), expect=201),
        ],
        [f"{NODES}/dp-held"],
    ),
    Scenario(
        "a service's cleanup finalizer goes by a status patch too",
        [
            post(
                SERVICES,
                service(
                    "dp-service",
                    type="LoadBalancer",
                    metadata={"finalizers": ["service.kubernetes.io/load-balancer-cleanup"]},
                ),
            ),
            delete(f"{SERVICES}/dp-service", expect=200),
            merge(f"{SERVICES}/dp-service/status", {"metadata": {"finalizers": None}}, expect=200),
            get(f"{SERVICES}/dp-service", expect=404),
            post(SERVICES, service("dp-service-2"), expect=201),
            delete(
                f"{SERVICES}/dp-service-2", {"propagationPolicy": "Background", "gracePeriodSeconds": 0}, expect=200
            ),
        ],
        [f"{SERVICES}/dp-service", f"{SERVICES}/dp-service-2"],
    ),
    Scenario(
        "propagation policies",
        [
            post(NODES, node("dp-policy")),
            delete(f"{NODES}/dp-policy", {"propagationPolicy": "Odd"}, compare="outcome"),
            delete(f"{NODES}/dp-policy", {"propagationPolicy": "Foreground"}, expect=200),
            merge(f"{NODES}/dp-policy", {"metadata": {"finalizers": None}}, expect=200),
            post(NODES, node("dp-policy")),
            delete(f"{NODES}/dp-policy", query={"propagationPolicy": "Orphan"}, expect=200),
            merge(f"{NODES}/dp-policy", {"metadata": {"finalizers": None}}, expect=200),
            post(NODES, node("dp-policy")),
            delete(
                f"{NODES}/dp-policy",
                query={"propagationPolicy": "Background"},
                accept=PARTIAL,
                compare="outcome",
                expect=200,
            ),
        ],
        [f"{NODES}/dp-policy"],
    ),
]
