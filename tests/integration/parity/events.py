"""Events: creation, namespaces, updates, field selectors."""

from __future__ import annotations

from typing import Any

from tests.integration.parity.model import Scenario, get, merge, post, put, strategic

EVENTS = "/api/v1/namespaces/default/events"


def event(name: str, **parts: Any) -> dict[str, Any]:
    """An Event to send."""
    about = {"kind": "Node", "name": "n", "uid": "u", "apiVersion": "v1"}
    return {
        "kind": "Event",
        "apiVersion": "v1",
        "metadata": {"name": name},
        "involvedObject": about,
        "reason": "Synced",
        "message": "Node synced successfully",
        "type": "Normal",
        "count": 1,
        "source": {"component": "cloud-node-controller"},
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        **parts,
    }


SCENARIOS = [
    Scenario(
        "events: create, count up, select",
        [
            post(EVENTS, event("ep-a"), expect=201),
            post(EVENTS, event("ep-b", type="Warning", reason="Failed"), expect=201),
            post(
                EVENTS,
                {"kind": "Event", "apiVersion": "v1", "metadata": {"generateName": "ep-gen-"}, "involvedObject": {}},
                save={"generated": "metadata.name"},
                expect=201,
            ),
            merge(f"{EVENTS}/ep-a", {"count": 2, "lastTimestamp": "2026-01-01T00:01:00Z"}, expect=200),
            strategic(f"{EVENTS}/ep-a", {"count": 3, "message": "changed"}, expect=200),
            put(f"{EVENTS}/ep-put", event("ep-put"), expect=201),
            get(EVENTS, query={"fieldSelector": "involvedObject.name=n,reason=Synced,type!=Warning"}),
            get(EVENTS, query={"fieldSelector": "source=cloud-node-controller,type=Warning"}),
            get(EVENTS, query={"fieldSelector": "involvedObject.uid=u,involvedObject.kind=Node,reportingComponent="}),
            get("/api/v1/events", query={"fieldSelector": "metadata.namespace=default,reason=Failed"}),
            get(EVENTS, query={"fieldSelector": "message=x"}, compare="outcome", expect=400),
        ],
        [f"{EVENTS}/{name}" for name in ("ep-a", "ep-b", "${generated}", "ep-put")],
    ),
    Scenario(
        "events that are refused",
        [
            post("/api/v1/namespaces/kube-system/events", event("ep-bad"), expect=422),
            post(
                EVENTS,
                event("ep-bad", involvedObject={"kind": "Service", "name": "s", "namespace": "kube-system"}),
                expect=422,
            ),
            post("/api/v1/namespaces/none/events", event("ep-bad", involvedObject={"namespace": "none"}), expect=404),
            post(EVENTS, event("ep-bad", eventTime="2026-01-01T00:00:00Z"), compare="outcome", expect=400),
            post(
                EVENTS,
                event(
                    "ep-new",
                    eventTime="2026-01-01T00:00:00.000000Z",
                    reportingComponent="a.b/c",
                    reportingInstance="i",
                    action="Sync",
                    series={"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000001Z"},
                ),
                expect=201,
            ),
            post(EVENTS, event("ep bad/"), compare="outcome"),
            post(EVENTS, event("Ep_Odd.Name"), expect=201),
        ],
        [f"{EVENTS}/ep-bad", f"{EVENTS}/ep-new", f"{EVENTS}/Ep_Odd.Name"],
    ),
]
