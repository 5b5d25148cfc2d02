"""Dry runs: everything as for real, and nothing of it stored."""

from __future__ import annotations

import attrs

from tests.integration.parity.configmaps import MAPS, config_map
from tests.integration.parity.events import EVENTS, event
from tests.integration.parity.leases import LEASES, lease
from tests.integration.parity.model import Scenario, Step, delete, get, json_patch, merge, post, put, strategic
from tests.integration.parity.namespaces import NAMESPACES
from tests.integration.parity.nodes import NODES, node
from tests.integration.parity.services import SERVICES, service
from tests.integration.parity.volumes import VOLUMES, volume

ALL = {"dryRun": "All"}


def dry(step: Step) -> Step:
    """The same request as a dry run."""
    return attrs.evolve(step, query={**step.query, **ALL})


SCENARIOS = [
    Scenario(
        "dry runs: creation",
        [
            dry(post(NODES, node("dp-n"), expect=201)),
            dry(post(NODES, node("Dp_N"), expect=422)),
            dry(post(NODES, node("dp-n", metadata={"resourceVersion": "987654321"}), expect=201)),
            dry(post(VOLUMES, volume("dp-v"), expect=201)),
            dry(post(MAPS, config_map("dp-m", nonsense=1), expect=201)),
            dry(post(MAPS, {**config_map(""), "metadata": {"generateName": "dp-"}}, expect=201)),
            dry(post("/api/v1/namespaces/none/configmaps", config_map("dp-m"), expect=404)),
            dry(post(EVENTS, event("dp-e"), expect=201)),
            dry(put(f"{EVENTS}/dp-e", event("dp-e"), expect=201)),
            dry(put(f"{LEASES}/dp-l", lease("dp-l"), expect=201)),
            dry(post(NAMESPACES, {"metadata": {"name": "dp-space"}}, expect=201)),
            get(f"{NODES}/dp-n", expect=404),
            get(f"{MAPS}/dp-m", expect=404),
            get(f"{NAMESPACES}/dp-space", expect=404),
            post(NODES, node("dp-n"), expect=201),
            dry(post(NODES, node("dp-n"), expect=409)),
        ],
        [f"{NODES}/dp-n"],
    ),
    Scenario(
        "dry runs: updates, patches and status",
        [
            post(NODES, node("dp-u"), expect=201),
            dry(put(f"{NODES}/dp-u", node("dp-u", metadata={"labels": {"a": "b"}}), expect=200)),
            dry(put(f"{NODES}/dp-u", node("dp-u", metadata={"resourceVersion": "1"}), expect=409)),
            dry(put(f"{NODES}/dp-none", node("dp-none"), expect=404)),
            dry(merge(f"{NODES}/dp-u", {"metadata": {"labels": {"a": "b"}}}, expect=200)),
            dry(merge(f"{NODES}/dp-u", {}, expect=200)),
            dry(strategic(f"{NODES}/dp-u", {"spec": {"taints": [{"key": "a", "effect": "Odd"}]}}, expect=422)),
            dry(json_patch(f"{NODES}/dp-u", [{"op": "add", "path": "/spec/unschedulable", "value": True}], expect=200)),
            dry(merge(f"{NODES}/dp-u/status", {"status": {"capacity": {"cpu": "2"}}}, expect=200)),
            dry(put(f"{NODES}/dp-u/status", node("dp-u", status={"capacity": {"cpu": "2"}}), expect=200)),
            get(f"{NODES}/dp-u", expect=200),
        ],
        [f"{NODES}/dp-u"],
    ),
    Scenario(
        "dry runs: deletion",
        [
            post(NODES, node("dp-d", metadata={"labels": {"dp": "d"}}), expect=201),
            dry(delete(f"{NODES}/dp-d", expect=200)),
            delete(f"{NODES}/dp-d", {"dryRun": ["All"]}, expect=200),
            dry(delete(f"{NODES}/dp-d", {"preconditions": {"uid": "x"}, "dryRun": ["All"]}, expect=409)),
            dry(delete(f"{NODES}/dp-d", {"propagationPolicy": "Foreground", "dryRun": ["All"]}, expect=200)),
            dry(delete(f"{NODES}/dp-none", expect=404)),
            dry(delete(NODES, query={"labelSelector": "dp=d"}, expect=200)),
            get(f"{NODES}/dp-d", expect=200),
            post(VOLUMES, volume("dp-d"), expect=201),
            dry(delete(f"{VOLUMES}/dp-d", expect=200)),
            get(f"{VOLUMES}/dp-d", expect=200),
            delete(f"{VOLUMES}/dp-d", expect=200),
            dry(merge(f"{VOLUMES}/dp-d", {"metadata": {"finalizers": None}}, expect=200)),
            get(f"{VOLUMES}/dp-d", expect=200),
            dry(post(VOLUMES, volume("dp-d"), expect=409)),
            post(NAMESPACES, {"metadata": {"name": "dp-gone"}}, expect=201),
            dry(delete(f"{NAMESPACES}/dp-gone", expect=200)),
            dry(delete(f"{NAMESPACES}/kube-system", expect=403)),
            get(f"{NAMESPACES}/dp-gone", expect=200),
        ],
        [f"{NODES}/dp-d", f"{VOLUMES}/dp-d", f"{NAMESPACES}/dp-gone"],
    ),
    Scenario(
        "dry runs: a service's addresses and ports",
        [
            dry(post(SERVICES, service("dp-s", type="NodePort"), expect=201)),
            dry(post(SERVICES, service("dp-s", clusterIP="10.96.77.7"), expect=201)),
            post(SERVICES, service("dp-s", clusterIP="10.96.77.7"), expect=201),
            dry(post(SERVICES, service("dp-t", clusterIP="10.96.77.7"), expect=201)),
            dry(merge(f"{SERVICES}/dp-s", {"spec": {"type": "NodePort"}}, expect=200)),
            dry(merge(f"{SERVICES}/dp-s", {"spec": {"type": "LoadBalancer"}}, expect=200)),
            dry(post(SERVICES, service("dp-t", clusterIP="10.97.0.1"), expect=422)),
            dry(merge(f"{SERVICES}/dp-s", {"spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 31777}]}})),
            post(SERVICES, service("dp-p", ports=[{"port": 80, "nodePort": 31777}], type="NodePort"), expect=201),
            dry(post(SERVICES, service("dp-t", ports=[{"port": 80, "nodePort": 31777}], type="NodePort"), expect=422)),
            dry(delete(f"{SERVICES}/dp-s", expect=200)),
            dry(post(SERVICES, service("dp-t", clusterIP="10.96.77.7"), expect=201)),
            get(f"{SERVICES}/dp-s", expect=200),
        ],
        [f"{SERVICES}/dp-s", f"{SERVICES}/dp-p"],
    ),
    Scenario(
        "dry runs: values that are none",
        [
            post(NODES, node("dp-bad"), query={"dryRun": "Some"}, expect=422),
            post(NODES, node("dp-bad"), query={"dryRun": "all"}, expect=422),
            post(NODES, node("dp-bad"), query={"dryRun": "All", "fieldValidation": "Odd"}, expect=422),
            merge(f"{NODES}/dp-bad", {}, query={"dryRun": "x"}, expect=422),
            put(f"{NODES}/dp-bad", node("dp-bad"), query={"dryRun": "x"}, expect=422),
            delete(f"{NODES}/dp-bad", query={"dryRun": "x"}, expect=422),
            delete(f"{NODES}/dp-bad", {"dryRun": ["x", "All"]}, expect=422),
            delete(NODES, query={"dryRun": "x", "labelSelector": "dp=none"}, expect=422),
            get(f"{NODES}/dp-bad", query={"dryRun": "x"}, expect=404),
        ],
        [f"{NODES}/dp-bad"],
    ),
]
