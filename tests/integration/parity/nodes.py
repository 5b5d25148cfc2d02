"""Nodes: creation, defaults, validation, what may not change, the status subresource."""

from __future__ import annotations

from typing import Any

from tests.integration.parity.model import Scenario, get, json_patch, merge, post, put, strategic

NODES = "/api/v1/nodes"


def node(name: str, **parts: Any) -> dict[str, Any]:
    """A Node to send."""
    meta = {"name": name, **parts.pop("metadata", {})}
    return {"kind": "Node", "apiVersion": "v1", "metadata": meta, **parts}


SCENARIOS = [
    Scenario(
        "a node gets the not-ready taint and zero values",
        [
            post(
                NODES,
                node(
                    "np-create",
                    metadata={"labels": {}, "annotations": {"a": "b"}, "uid": "x", "generation": 7, "selfLink": "/x"},
                    spec={"taints": [{"key": "a", "effect": "NoSchedule"}], "unschedulable": False, "providerID": ""},
                    status={
                        "capacity": {"cpu": "1", "memory": "1Mi", "pods": 110, "ephemeral-storage": "1536Mi"},
                        "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": None}],
                        "addresses": [{"type": "InternalIP", "address": "10.1.2.3"}],
                    },
                ),
                expect=201,
            ),
            get(f"{NODES}/np-create"),
            get(f"{NODES}/np-create/status"),
        ],
        [f"{NODES}/np-create"],
    ),
    Scenario(
        "a node is refused for what it is",
        [
            post(NODES, node("Np_Bad"), expect=422),
            post(NODES, node(""), expect=422),
            post(
                NODES, node("np-bad", spec={"taints": [{"key": "a b", "value": "c d", "effect": "Never"}]}), expect=422
            ),
            post(NODES, node("np-bad", spec={"taints": [{"key": "a"}]}), expect=422),
            post(
                NODES,
                node(
                    "np-bad",
                    spec={"taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule"}]},
                ),
                expect=422,
            ),
            post(NODES, node("np-bad", metadata={"labels": {"-a": "b"}}), expect=422),
            post(NODES, node("np-bad", metadata={"labels": {"c": "d e"}}), expect=422),
            post(NODES, node("np-bad", metadata={"labels": {"c": "d" * 64}}), expect=422),
            post(NODES, node("np-bad", metadata={"labels": {"c" * 64: ""}}), expect=422),
            post(NODES, node("np-bad", metadata={"labels": {"a/b/c": "b"}}), expect=422),
            post(NODES, node("np-bad", metadata={"annotations": {"A B": "x"}}), expect=422),
            post(NODES, node("np-bad", metadata={"finalizers": ["a b"]}), expect=422),
            post(NODES, node("np-bad", spec={"podCIDR": "10.0.0.0"}), expect=422),
            post(NODES, node("np-bad", spec={"podCIDR": "::ffff:10.0.0.0/120"}), expect=422),
            post(NODES, node("np-bad", spec={"podCIDRs": ["10.0.0.0/24", "10.0.1.0/24"]}), expect=422),
            post(NODES, node("np-bad", metadata={"resourceVersion": "5"}), expect=500),
            get(f"{NODES}/np-bad", expect=404),
            post(NODES, node("np-bad", metadata={"namespace": "default"}), expect=201),
        ],
        [f"{NODES}/np-bad"],
    ),
    Scenario(
        "a node that cannot be read",
        [
            post(NODES, node("np-read", spec={"unschedulable": "x"}), compare="outcome", expect=400),
            post(NODES, node("np-read", spec={"taints": [{"key": 1}]}), compare="outcome", expect=400),
            post(NODES, node("np-read", spec={"taints": {}}), compare="outcome", expect=400),
            post(NODES, node("np-read", metadata={"labels": {"a": 1}}), compare="outcome", expect=400),
            post(NODES, node("np-read", metadata={"labels": ["a"]}), compare="outcome", expect=400),
            post(NODES, node("np-read", status={"capacity": {"cpu": "x"}}), compare="outcome", expect=400),
            post(
                NODES,
                node("np-read", status={"conditions": [{"lastHeartbeatTime": "yesterday"}]}),
                compare="outcome",
                expect=400,
            ),
            post(NODES, {**node("np-read"), "kind": "Service"}, compare="outcome", expect=400),
            post(NODES, {**node("np-read"), "apiVersion": "v2"}, compare="outcome", expect=400),
            post(NODES, {"metadata": {"name": "np-read"}}, expect=201),
        ],
        [f"{NODES}/np-read"],
    ),
    Scenario(
        "create twice, generated names",
        [
            post(NODES, node("np-twice")),
            post(NODES, node("np-twice"), expect=409),
            post(
                NODES,
                {"kind": "Node", "apiVersion": "v1", "metadata": {"generateName": "np-gen-"}},
                save={"name": "metadata.name"},
            ),
            get(f"{NODES}/${{name}}", compare="outcome", expect=200),
            merge(f"{NODES}/${{name}}", {"metadata": {"labels": {"a": "b"}}}, compare="outcome", expect=200),
        ],
        [f"{NODES}/np-twice", f"{NODES}/${{name}}"],
    ),
    Scenario(
        "podCIDR and providerID are set once",
        [
            post(NODES, node("np-fixed")),
            merge(f"{NODES}/np-fixed", {"spec": {"podCIDR": "10.1.0.0/24", "providerID": "fake://a"}}, expect=200),
            merge(f"{NODES}/np-fixed", {"spec": {"podCIDR": "10.2.0.0/24"}}, expect=422),
            merge(f"{NODES}/np-fixed", {"spec": {"podCIDRs": ["10.2.0.0/24"]}}, expect=200),
            merge(f"{NODES}/np-fixed", {"spec": {"podCIDR": "10.2.0.0/24", "podCIDRs": ["10.2.0.0/24"]}}, expect=422),
            merge(f"{NODES}/np-fixed", {"spec": {"podCIDR": None}}),
            merge(f"{NODES}/np-fixed", {"spec": {"podCIDR": None, "podCIDRs": None}}, expect=422),
            merge(f"{NODES}/np-fixed", {"spec": {"providerID": "fake://b"}}, expect=422),
            strategic(f"{NODES}/np-fixed", {"spec": {"providerID": None}}, expect=422),
            json_patch(
                f"{NODES}/np-fixed", [{"op": "replace", "path": "/spec/providerID", "value": "fake://c"}], expect=422
            ),
            merge(f"{NODES}/np-fixed", {"spec": {"externalID": "x"}}, expect=422),
            post(
                NODES,
                node("np-odd", spec={"podCIDRs": ["10.1.2.0/24", "2001:db8::/64"]}),
                expect=201,
            ),
            get(f"{NODES}/np-fixed"),
        ],
        [f"{NODES}/np-fixed", f"{NODES}/np-odd"],
    ),
    Scenario(
        "a node's status and its spec are written apart",
        [
            post(NODES, node("np-status")),
            merge(
                f"{NODES}/np-status/status",
                {"metadata": {"labels": {"a": "b"}}, "spec": {"unschedulable": True}, "status": {"phase": "Running"}},
                expect=200,
            ),
            merge(
                f"{NODES}/np-status",
                {"metadata": {"labels": {"c": "d"}}, "spec": {"unschedulable": True}, "status": {"phase": "Pending"}},
                expect=200,
            ),
            merge(f"{NODES}/np-status/status", {"status": {"capacity": {"cpu": "2"}}}, expect=200),
            merge(f"{NODES}/np-status/status", {"spec": {"taints": None}}, expect=200),
        ],
        [f"{NODES}/np-status"],
    ),
    Scenario(
        "PUT: conflicts, preconditions, names",
        [
            post(NODES, node("np-put"), save={"uid": "metadata.uid", "version": "metadata.resourceVersion"}),
            put(
                f"{NODES}/np-put",
                node("np-put", metadata={"resourceVersion": "${version}", "labels": {"a": "b"}}),
                expect=200,
            ),
            put(f"{NODES}/np-put", node("np-put", metadata={"resourceVersion": "${version}"}), expect=409),
            put(f"{NODES}/np-put", node("np-put", metadata={"labels": {"c": "d"}}), expect=200),
            put(
                f"{NODES}/np-put", node("np-put", metadata={"uid": "00000000-0000-0000-0000-000000000000"}), expect=409
            ),
            put(f"{NODES}/np-put", node("np-put", metadata={"uid": "${uid}"}), expect=200),
            put(f"{NODES}/np-put", node("np-other"), expect=400),
            put(f"{NODES}/np-put", node(""), expect=400),
            put(f"{NODES}/np-put", node("np-put", metadata={"namespace": "default"}), expect=200),
            put(f"{NODES}/np-put", node("np-put", metadata={"resourceVersion": "x"}), compare="outcome"),
            put(f"{NODES}/np-gone", node("np-gone"), expect=404),
            put(f"{NODES}/np-gone", node("np-gone", metadata={"uid": "${uid}"})),
            put(
                f"{NODES}/np-put/status",
                node("np-put", status={"phase": "Running"}, spec={"unschedulable": True}),
                expect=200,
            ),
            put(f"{NODES}/np-put", node("np-put", metadata={"creationTimestamp": "2020-01-01T00:00:00Z"}), expect=200),
            put(f"{NODES}/np-put", node("np-put", metadata={"deletionTimestamp": "2020-01-01T00:00:00Z"})),
        ],
        [f"{NODES}/np-put"],
    ),
]
