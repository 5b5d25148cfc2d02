"""Events of events.k8s.io/v1: the second view of the same objects, and its stricter rules."""

from __future__ import annotations

from typing import Any

from tests.integration.parity.events import EVENTS, event
from tests.integration.parity.model import Scenario, delete, get, json_patch, merge, post, put, strategic

NEW = "/apis/events.k8s.io/v1/namespaces/default/events"
TIME = "2026-01-01T00:00:00.000000Z"
WATCH = {"watch": "1", "timeoutSeconds": "1", "fieldSelector": "metadata.name=ev-w"}


def fresh(name: str, **parts: Any) -> dict[str, Any]:
    """An Event of the new group."""
    return {
        "kind": "Event",
        "apiVersion": "events.k8s.io/v1",
        "metadata": {"name": name},
        "eventTime": TIME,
        "reportingController": "example.org/controller",
        "reportingInstance": "host-1",
        "action": "Syncing",
        "reason": "Synced",
        "regarding": {"kind": "Node", "name": "n", "uid": "u", "apiVersion": "v1"},
        "note": "all is well",
        "type": "Normal",
        **parts,
    }


def without(*fields: str, **parts: Any) -> dict[str, Any]:
    """An Event that lacks fields."""
    return {key: value for key, value in fresh("ev-bad", **parts).items() if key not in fields}


def refused(body: dict[str, Any]) -> Any:
    """An Event that must not be created."""
    return post(NEW, body, expect=422)


SCENARIOS = [
    Scenario(
        "new events: one storage, two views",
        [
            post(NEW, fresh("ev-a", related={"kind": "Pod", "name": "p"}), expect=201),
            get(f"{EVENTS}/ev-a", expect=200),
            post(EVENTS, event("ev-b", series={"count": 3, "lastObservedTime": TIME}), expect=201),
            get(f"{NEW}/ev-b", expect=200),
            post(EVENTS, {"metadata": {"name": "ev-c"}, "involvedObject": {}}, expect=201),
            get(f"{NEW}/ev-c", expect=200),
            merge(f"{NEW}/ev-a", {"series": {"count": 2, "lastObservedTime": TIME}}, expect=200),
            strategic(f"{EVENTS}/ev-a", {"message": "changed there", "count": 7}, expect=200),
            merge(f"{NEW}/ev-a", {"metadata": {"labels": {"ev": "a"}}}, expect=200),
            json_patch(f"{NEW}/ev-a", [{"op": "replace", "path": "/series/count", "value": 9}], expect=200),
            get(f"{EVENTS}/ev-a", expect=200),
            put(f"{NEW}/ev-put", fresh("ev-put"), expect=201),
            post(NEW, fresh("ev-dry"), query={"dryRun": "All"}, expect=201),
            post(NEW, fresh("ev-a"), expect=409),
            get(f"{NEW}/ev-none", expect=404),
            get(NEW, query={"fieldSelector": "regarding.name=n,reportingController=example.org/controller"}),
            get(NEW, query={"fieldSelector": "metadata.name=ev-b,type=Normal,reason=Synced,regarding.kind=Node"}),
            get(NEW, query={"fieldSelector": "involvedObject.name=n"}, compare="outcome", expect=400),
            get("/apis/events.k8s.io/v1/events", query={"labelSelector": "ev=a"}, expect=200),
            get(EVENTS, query={"fieldSelector": "reportingComponent=example.org/controller", "labelSelector": "ev"}),
            delete(f"{NEW}/ev-a", expect=200),
            get(f"{EVENTS}/ev-a", expect=404),
            delete(f"{EVENTS}/ev-b", expect=200),
            delete(NEW, query={"fieldSelector": "metadata.name=ev-put"}, expect=200),
            get(f"{EVENTS}/ev-put", expect=404),
        ],
        [f"{EVENTS}/ev-{name}" for name in ("a", "b", "c", "put")],
    ),
    Scenario(
        "new events: a watch in each group sees what the other one writes",
        [
            post(EVENTS, event("ev-w"), expect=201, save={"version": "metadata.resourceVersion"}),
            merge(f"{NEW}/ev-w", {"metadata": {"labels": {"a": "b"}}}, compare="outcome"),
            merge(f"{EVENTS}/ev-w", {"count": 4}, expect=200),
            delete(f"{NEW}/ev-w", expect=200),
            get(NEW, query={**WATCH, "resourceVersion": "${version}"}, expect=200),
            get(EVENTS, query={**WATCH, "resourceVersion": "${version}"}, expect=200),
        ],
        [f"{EVENTS}/ev-w"],
    ),
    Scenario(
        "new events: what is refused",
        [
            refused(without("eventTime")),
            refused(without("reportingController", "reportingInstance", "action", "reason", "type")),
            refused(fresh("ev-bad", reportingController="a b", reportingInstance="i" * 129, note="n" * 1025)),
            refused(fresh("ev-bad", type="Odd")),
            refused(fresh("ev-bad", series={"count": 1})),
            refused(
                fresh(
                    "ev-bad",
                    deprecatedCount=1,
                    deprecatedFirstTimestamp="2026-01-01T00:00:00Z",
                    deprecatedLastTimestamp="2026-01-01T00:00:00Z",
                    deprecatedSource={"component": "c"},
                )
            ),
            refused(fresh("Ev_Bad")),
            post("/apis/events.k8s.io/v1/namespaces/kube-public/events", fresh("ev-bad"), expect=422),
            post(NEW, fresh("ev-bad", regarding={"namespace": "kube-system"}), expect=201),
            post(NEW, event("ev-bad"), compare="outcome", expect=400),
            post(EVENTS, fresh("ev-bad"), compare="outcome", expect=400),
            post(
                NEW, fresh("ev-bad2", message="x"), query={"fieldValidation": "Strict"}, compare="outcome", expect=400
            ),
            post(NEW, fresh("ev-upd"), expect=201),
            merge(f"{NEW}/ev-upd", {"note": "other", "reason": "Other", "type": "Warning", "action": "b"}, expect=422),
            merge(f"{NEW}/ev-upd", {"regarding": {"name": "m"}, "related": {"name": "x"}}, expect=422),
            merge(f"{NEW}/ev-upd", {"deprecatedCount": 2, "deprecatedSource": {"host": "h"}}, expect=422),
            merge(f"{NEW}/ev-upd", {"deprecatedFirstTimestamp": "2026-01-01T00:00:00Z"}, expect=422),
            merge(f"{NEW}/ev-upd", {"eventTime": "2026-01-01T00:00:00.000001Z"}, expect=422),
            merge(f"{NEW}/ev-upd", {"reportingController": "c.d/e", "reportingInstance": "x"}, expect=422),
            merge(f"{NEW}/ev-upd", {"series": {"count": 1}}, expect=422),
        ],
        [f"{EVENTS}/ev-bad", f"{EVENTS}/ev-upd"],
    ),
]
