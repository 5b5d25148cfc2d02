"""The three kinds of patch on nodes: every line of the reference's semantics about conditions,
addresses, taints, finalizers.
"""

from __future__ import annotations

from tests.integration.parity.model import (
    PARTIAL,
    Scenario,
    Step,
    get,
    json_patch,
    merge,
    post,
    strategic,
)
from tests.integration.parity.nodes import NODES, node

READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ok"}
NETWORK = {"type": "NetworkUnavailable", "status": "False", "reason": "RouteCreated", "message": "x"}
IP = {"type": "InternalIP", "address": "10.0.0.1"}
HOST = {"type": "Hostname", "address": "a"}

SCENARIOS = [
    Scenario(
        "a stale resourceVersion in a merge patch is a conflict, also where nothing would change",
        [
            post(NODES, node("pp-stale"), save={"old": "metadata.resourceVersion"}),
            merge(f"{NODES}/pp-stale", {"metadata": {"labels": {"a": "b"}}}, save={"new": "metadata.resourceVersion"}),
            merge(f"{NODES}/pp-stale", {"metadata": {"resourceVersion": "${old}", "labels": {"a": "c"}}}, expect=409),
            merge(f"{NODES}/pp-stale", {"metadata": {"resourceVersion": "${old}", "labels": {"a": "b"}}}, expect=409),
            merge(
                f"{NODES}/pp-stale/status",
                {"metadata": {"resourceVersion": "${old}"}, "status": {"phase": "x"}},
                expect=409,
            ),
            merge(f"{NODES}/pp-stale/status", {"metadata": {"resourceVersion": "${old}"}}, expect=409),
            strategic(f"{NODES}/pp-stale", {"metadata": {"resourceVersion": "${old}"}}, expect=409),
            merge(f"{NODES}/pp-stale", {"metadata": {"resourceVersion": "${new}", "labels": {"a": "b"}}}, expect=200),
            merge(f"{NODES}/pp-stale", {"metadata": {"resourceVersion": None, "labels": {"a": "b"}}}, expect=200),
            merge(f"{NODES}/pp-stale", {"metadata": {"resourceVersion": "0", "labels": {"a": "b"}}}),
            merge(f"{NODES}/pp-stale", {"metadata": {"resourceVersion": "abc"}}, compare="outcome"),
            merge(f"{NODES}/pp-stale", {"metadata": {"resourceVersion": 5}}, compare="outcome"),
        ],
        [f"{NODES}/pp-stale"],
    ),
    Scenario(
        "another uid in a merge patch, or a failed test, is 422",
        [
            post(NODES, node("pp-uid"), save={"uid": "metadata.uid"}),
            merge(f"{NODES}/pp-uid", {"metadata": {"uid": "00000000-0000-0000-0000-000000000000"}}, expect=422),
            merge(f"{NODES}/pp-uid", {"metadata": {"uid": "${uid}", "labels": {"a": "b"}}}, expect=200),
            merge(f"{NODES}/pp-uid", {"metadata": {"uid": None}}, expect=200),
            json_patch(
                f"{NODES}/pp-uid",
                [{"op": "test", "path": "/metadata/uid", "value": "x"}],
                compare="outcome",
                expect=422,
            ),
            json_patch(
                f"{NODES}/pp-uid",
                [
                    {"op": "test", "path": "/metadata/uid", "value": "${uid}"},
                    {"op": "test", "path": "/spec/providerID", "value": None},
                    {"op": "add", "path": "/metadata/labels/c", "value": "d"},
                    {"op": "move", "from": "/metadata/labels/c", "path": "/metadata/labels/e"},
                    {"op": "copy", "from": "/metadata/labels/e", "path": "/metadata/labels/f"},
                    {"op": "remove", "path": "/metadata/labels/a"},
                ],
                expect=200,
            ),
            json_patch(
                f"{NODES}/pp-uid", [{"op": "remove", "path": "/metadata/labels/none"}], compare="outcome", expect=422
            ),
            json_patch(
                f"{NODES}/pp-uid", [{"op": "replace", "path": "/spec/x/y", "value": 1}], compare="outcome", expect=422
            ),
            json_patch(
                f"{NODES}/pp-uid", [{"op": "test", "path": "/spec/x/y", "value": None}], compare="outcome", expect=422
            ),
            json_patch(f"{NODES}/pp-uid", [{"op": "fly", "path": "/spec"}], compare="outcome"),
            json_patch(f"{NODES}/pp-uid", {"op": "add"}, compare="outcome", expect=400),
            json_patch(
                f"{NODES}/pp-uid",
                [{"op": "add", "path": "/spec/taints/-", "value": {"key": "z", "effect": "NoExecute"}}],
            ),
        ],
        [f"{NODES}/pp-uid"],
    ),
    Scenario(
        "a merge patch replaces a whole list: one condition erases Ready",
        [
            post(NODES, node("pp-merge", status={"conditions": [READY]})),
            merge(f"{NODES}/pp-merge/status", {"status": {"conditions": [NETWORK]}}, expect=200),
            merge(f"{NODES}/pp-merge/status", {"status": {"conditions": None, "phase": "Running"}}, expect=200),
            merge(f"{NODES}/pp-merge/status", {"status": {"nodeInfo": None}}, expect=200),
            merge(f"{NODES}/pp-merge/status", {"status": None}, expect=200),
        ],
        [f"{NODES}/pp-merge"],
    ),
    Scenario(
        "strategic merge keeps the other conditions",
        [
            post(NODES, node("pp-conditions", status={"conditions": [READY]})),
            strategic(f"{NODES}/pp-conditions/status", {"status": {"conditions": [NETWORK]}}, expect=200),
            strategic(
                f"{NODES}/pp-conditions/status",
                {
                    "status": {
                        "conditions": [
                            {"type": "NetworkUnavailable", "status": "True"},
                            {"type": "New", "status": "True"},
                        ]
                    }
                },
                expect=200,
            ),
            strategic(
                f"{NODES}/pp-conditions/status",
                {
                    "status": {
                        "$setElementOrder/conditions": [{"type": "New"}, {"type": "Ready"}],
                        "conditions": [{"type": "New", "status": "False"}],
                    }
                },
                expect=200,
            ),
            strategic(
                f"{NODES}/pp-conditions/status",
                {"status": {"conditions": [{"$patch": "delete", "type": "New"}]}},
                expect=200,
            ),
            strategic(
                f"{NODES}/pp-conditions/status", {"status": {"conditions": [{"status": "True"}]}}, compare="outcome"
            ),
            strategic(
                f"{NODES}/pp-conditions/status",
                {"status": {"conditions": [{"type": "Ready", "reason": None}]}},
                expect=200,
            ),
            strategic(f"{NODES}/pp-conditions/status", {"status": {"conditions": []}}, expect=200),
            strategic(f"{NODES}/pp-conditions/status", {"status": {"conditions": None}}, expect=200),
        ],
        [f"{NODES}/pp-conditions"],
    ),
    Scenario(
        "strategic merge on addresses: by type, or replaced",
        [
            post(NODES, node("pp-addresses", status={"addresses": [IP, HOST]})),
            strategic(
                f"{NODES}/pp-addresses/status",
                {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.2"}]}},
            ),
            strategic(
                f"{NODES}/pp-addresses/status",
                {"status": {"addresses": [{"type": "ExternalIP", "address": "1.2.3.4"}]}},
            ),
            strategic(
                f"{NODES}/pp-addresses/status", {"status": {"addresses": [{"$patch": "replace"}, HOST, IP]}}, expect=200
            ),
            strategic(
                f"{NODES}/pp-addresses/status",
                {
                    "status": {
                        "addresses": [{"$patch": "replace"}, IP, {"type": "InternalIP", "address": "fd00::1"}, HOST]
                    }
                },
                expect=200,
            ),
            strategic(
                f"{NODES}/pp-addresses/status",
                {"status": {"addresses": [{"type": "InternalIP", "address": "10.9.9.9"}]}},
            ),
            strategic(
                f"{NODES}/pp-addresses/status", {"status": {"addresses": [{"$patch": "replace"}, IP, IP]}}, expect=422
            ),
            strategic(f"{NODES}/pp-addresses/status", {"status": {"addresses": [{"$patch": "replace"}]}}, expect=200),
            merge(f"{NODES}/pp-addresses/status", {"status": {"addresses": [{"$patch": "replace"}, IP]}}),
        ],
        [f"{NODES}/pp-addresses"],
    ),
    Scenario(
        "taints are atomic: null removes foreign ones too",
        [
            post(NODES, node("pp-taints", spec={"taints": [{"key": "a", "value": "true", "effect": "NoSchedule"}]})),
            strategic(f"{NODES}/pp-taints", {"spec": {"taints": [{"key": "b", "effect": "NoExecute"}]}}, expect=200),
            merge(
                f"{NODES}/pp-taints",
                {"spec": {"taints": [{"key": "c", "effect": "NoExecute"}, {"key": "d", "effect": "NoSchedule"}]}},
            ),
            strategic(f"{NODES}/pp-taints", {"spec": {"taints": None}}, expect=200),
            merge(f"{NODES}/pp-taints", {"spec": {"taints": [{"key": "c", "effect": "Bad"}]}}, expect=422),
            merge(f"{NODES}/pp-taints", {"spec": {"taints": []}}, expect=200),
            merge(f"{NODES}/pp-taints", {"spec": None}, expect=200),
            strategic(
                f"{NODES}/pp-taints",
                {
                    "spec": {
                        "taints": [{"key": "t", "effect": "NoExecute", "timeAdded": "2026-01-02T03:04:05.678+01:00"}]
                    }
                },
            ),
        ],
        [f"{NODES}/pp-taints"],
    ),
    Scenario(
        "strategic merge on finalizers and owners keeps foreign ones",
        [
            post(NODES, node("pp-finalizers", metadata={"finalizers": ["foreign.io/a", "foreign.io/b"]})),
            strategic(f"{NODES}/pp-finalizers", {"metadata": {"finalizers": ["ours.io/x"]}}, expect=200),
            strategic(f"{NODES}/pp-finalizers", {"metadata": {"finalizers": ["ours.io/x"]}}, expect=200),
            strategic(
                f"{NODES}/pp-finalizers",
                {"metadata": {"$deleteFromPrimitiveList/finalizers": ["ours.io/x"]}},
                expect=200,
            ),
            strategic(
                f"{NODES}/pp-finalizers",
                {"metadata": {"$deleteFromPrimitiveList/finalizers": ["ours.io/x"]}},
                expect=200,
            ),
            strategic(
                f"{NODES}/pp-finalizers",
                {
                    "metadata": {
                        "$setElementOrder/finalizers": ["ours.io/y", "foreign.io/b", "foreign.io/a"],
                        "finalizers": ["ours.io/y"],
                    }
                },
                expect=200,
            ),
            strategic(
                f"{NODES}/pp-finalizers",
                {
                    "metadata": {
                        "$deleteFromPrimitiveList/finalizers": ["foreign.io/b"],
                        "$setElementOrder/finalizers": ["foreign.io/a", "ours.io/y"],
                    }
                },
                expect=200,
            ),
            strategic(
                f"{NODES}/pp-finalizers",
                {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "u1"}]}},
                expect=200,
            ),
            strategic(
                f"{NODES}/pp-finalizers",
                {
                    "metadata": {
                        "ownerReferences": [
                            {"apiVersion": "v1", "kind": "Node", "name": "y", "uid": "u2"},
                            {"uid": "u1", "controller": True},
                        ]
                    }
                },
                expect=200,
            ),
            strategic(
                f"{NODES}/pp-finalizers",
                {"metadata": {"ownerReferences": [{"$patch": "delete", "uid": "u1"}]}},
                expect=200,
            ),
            merge(f"{NODES}/pp-finalizers", {"metadata": {"finalizers": None, "ownerReferences": None}}, expect=200),
            strategic(
                f"{NODES}/pp-finalizers",
                {"metadata": {"$deleteFromPrimitiveList/finalizers": ["ours.io/x"]}},
                expect=200,
            ),
        ],
        [f"{NODES}/pp-finalizers"],
    ),
    Scenario(
        "strategic directives on maps",
        [
            post(NODES, node("pp-maps", metadata={"labels": {"a": "1", "b": "2"}, "annotations": {"x": "y"}})),
            strategic(f"{NODES}/pp-maps", {"metadata": {"labels": {"$patch": "replace", "c": "3"}}}, expect=200),
            strategic(f"{NODES}/pp-maps", {"metadata": {"annotations": {"$patch": "delete"}}}, expect=200),
            strategic(f"{NODES}/pp-maps", {"metadata": {"labels": {"$retainKeys": ["d"], "d": "4"}}}),
            strategic(f"{NODES}/pp-maps", {"metadata": {"labels": {"$patch": "explode"}}}, compare="outcome"),
            strategic(f"{NODES}/pp-maps", {"metadata": {"labels": {"d": None, "e": "5"}}}, expect=200),
        ],
        [f"{NODES}/pp-maps"],
    ),
    Scenario(
        "a patch that changes nothing keeps the version",
        [
            post(NODES, node("pp-noop", metadata={"labels": {"a": "b"}}, status={"conditions": [READY]})),
            merge(f"{NODES}/pp-noop", {"metadata": {"labels": {"a": "b"}}}, expect=200),
            merge(f"{NODES}/pp-noop", {}, expect=200),
            strategic(f"{NODES}/pp-noop/status", {"status": {"conditions": [READY]}}, expect=200),
            merge(f"{NODES}/pp-noop", {"status": {"phase": "Running"}}, expect=200),
            json_patch(f"{NODES}/pp-noop", [], expect=200),
            merge(f"{NODES}/pp-noop", {"metadata": {"annotations": None, "labels": {"zz": None}}}, expect=200),
            merge(f"{NODES}/pp-noop/status", {"status": {"capacity": {"cpu": "1"}}}, expect=200),
            merge(f"{NODES}/pp-noop/status", {"status": {"capacity": {"cpu": "1"}}}, expect=200),
            get(f"{NODES}/pp-noop"),
        ],
        [f"{NODES}/pp-noop"],
    ),
    Scenario(
        "patches that cannot be applied",
        [
            post(NODES, node("pp-bad")),
            merge(f"{NODES}/pp-bad", {"spec": {"unschedulable": "x"}}, compare="outcome", expect=422),
            strategic(f"{NODES}/pp-bad", {"spec": {"unschedulable": "x"}}, compare="outcome"),
            json_patch(
                f"{NODES}/pp-bad",
                [{"op": "add", "path": "/spec/unschedulable", "value": "x"}],
                compare="outcome",
                expect=422,
            ),
            merge(f"{NODES}/pp-bad", {"metadata": {"name": "other"}}, expect=400),
            merge(f"{NODES}/pp-bad", {"metadata": {"name": None}}, expect=400),
            merge(f"{NODES}/pp-bad", {"metadata": {"namespace": "default"}}),
            merge(f"{NODES}/pp-bad", {"kind": "Service"}, compare="outcome"),
            merge(f"{NODES}/pp-bad", {"apiVersion": "v2"}, compare="outcome"),
            merge(f"{NODES}/pp-bad", {"metadata": None}, compare="outcome"),
            merge(f"{NODES}/pp-bad", ["x"], compare="outcome", expect=400),
            strategic(f"{NODES}/pp-bad", ["x"], compare="outcome"),
            merge(f"{NODES}/pp-bad", {"metadata": {"labels": {"a b": "c"}}}, expect=422),
            merge(f"{NODES}/pp-bad", {"metadata": {"creationTimestamp": None}}),
            merge(f"{NODES}/pp-bad", {"metadata": {"creationTimestamp": "2020-01-01T00:00:00Z"}}),
            merge(f"{NODES}/pp-bad", {"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"}}),
            merge(f"{NODES}/pp-bad", {"metadata": {"generation": 5}}),
            Step(
                "PATCH",
                f"{NODES}/pp-bad",
                None,
                "application/merge-patch+json",
                raw=b"{",
                compare="outcome",
                expect=400,
            ),
            Step("PATCH", f"{NODES}/pp-bad", {"a": "b"}, "application/json", compare="outcome", expect=415),
            merge(f"{NODES}/pp-none", {"metadata": {"labels": {"a": "b"}}}, expect=404),
            merge(f"{NODES}/pp-none/status", {"metadata": {"labels": {"a": "b"}}}, expect=404),
        ],
        [f"{NODES}/pp-bad"],
    ),
    Scenario(
        "metadata alone, on request",
        [
            post(NODES, node("pp-partial", metadata={"labels": {"parity": "partial"}}), accept=PARTIAL, expect=201),
            merge(f"{NODES}/pp-partial", {"metadata": {"annotations": {"a": "b"}}}, accept=PARTIAL, expect=200),
            get(f"{NODES}/pp-partial", accept=PARTIAL, expect=200),
            get(f"{NODES}/pp-partial", accept=PARTIAL + ",application/json", expect=200),
            get(f"{NODES}/pp-partial", accept="text/html", compare="outcome", expect=406),
            get(f"{NODES}/pp-partial", accept="*/*", expect=200),
        ],
        [f"{NODES}/pp-partial"],
    ),
    Scenario(
        "unknown fields, as fieldValidation has it",
        [
            post(NODES, node("pp-unknown", spec={"foo": 1}, bar={}), expect=201),
            post(
                NODES,
                node("pp-unknown-2", spec={"foo": 1, "taints": [{"key": "a", "effect": "NoSchedule", "x": 1}]}),
                query={"fieldValidation": "Strict"},
                expect=400,
            ),
            post(NODES, node("pp-unknown-3", spec={"foo": 1}), query={"fieldValidation": "Ignore"}, expect=201),
            post(NODES, node("pp-odd", spec={'a"b\n': 1}), query={"fieldValidation": "Strict"}, expect=400),
            post(NODES, node("pp-odd", metadata={"annotations": {"half": "a\ud800b"}}), expect=201),
            post(NODES, node("pp-unknown-4"), query={"fieldValidation": "Maybe"}, compare="outcome"),
            merge(f"{NODES}/pp-unknown", {"spec": {"foo": 1, "unschedulable": True}}, expect=200),
            merge(f"{NODES}/pp-unknown", {"spec": {"foo": 1}}, query={"fieldValidation": "Strict"}, compare="outcome"),
            strategic(
                f"{NODES}/pp-unknown", {"spec": {"foo": 1}}, query={"fieldValidation": "Strict"}, compare="outcome"
            ),
            merge(f"{NODES}/pp-unknown", {"spec": {"foo": 1}}, query={"fieldValidation": "Ignore"}, expect=200),
        ],
        [f"{NODES}/pp-unknown", f"{NODES}/pp-unknown-3", f"{NODES}/pp-odd"],
    ),
]
