"""Watches: initial events, resuming, selectors, bookmarks, versions from the future."""

from __future__ import annotations

from tests.integration.parity.model import Scenario, Step, delete, get, merge, post
from tests.integration.parity.nodes import NODES, node

MINE = "parity=watch"


def watch(**query: str) -> Step:
    """A watch of a second on this table's nodes."""
    return get(NODES, query={"watch": "1", "timeoutSeconds": "1", "labelSelector": MINE, **query})


def watch_with_initial_events(**query: str) -> Step:
    """A watch that shows first what is there; it is read until the bookmark that ends that."""
    shown = {"sendInitialEvents": "true", "allowWatchBookmarks": "true", "resourceVersionMatch": "NotOlderThan"}
    return watch(**shown, timeoutSeconds="30", **query)


LABELS = {"labels": {"parity": "watch"}}

SCENARIOS = [
    Scenario(
        "a watch without a version shows what is there; with one, what came later",
        [
            post(NODES, node("wp-1", metadata=LABELS)),
            get(NODES, query={"labelSelector": MINE}, save={"version": "metadata.resourceVersion"}),
            post(NODES, node("wp-2", metadata=LABELS)),
            merge(f"{NODES}/wp-1", {"spec": {"unschedulable": True}}),
            merge(f"{NODES}/wp-1", {"spec": {"unschedulable": True}}),
            merge(f"{NODES}/wp-2", {"metadata": {"labels": {"parity": "gone"}}}),
            merge(f"{NODES}/wp-2", {"metadata": {"labels": {"parity": "watch"}}}),
            delete(f"{NODES}/wp-2"),
            watch(),
            watch(resourceVersion="0"),
            watch(resourceVersion="${version}"),
            watch(resourceVersion="${version}", fieldSelector="metadata.name=wp-2"),
            watch(resourceVersion="${version}", fieldSelector="spec.unschedulable=true"),
        ],
        [f"{NODES}/wp-1", f"{NODES}/wp-2"],
    ),
    Scenario(
        "initial events end with a bookmark",
        [
            post(NODES, node("wp-3", metadata=LABELS)),
            watch_with_initial_events(resourceVersion=""),
            watch_with_initial_events(resourceVersion="0"),
            watch(sendInitialEvents="true", resourceVersionMatch="NotOlderThan"),
            watch(sendInitialEvents="false", resourceVersionMatch="NotOlderThan", resourceVersion="0"),
            watch(allowWatchBookmarks="true"),
        ],
        [f"{NODES}/wp-3"],
    ),
    Scenario(
        "true and false are written in any way",
        [
            post(NODES, node("wp-4", metadata=LABELS)),
            watch(watch="True"),
            watch(watch=""),
            watch(
                watch="True",
                sendInitialEvents="True",
                allowWatchBookmarks="True",
                resourceVersionMatch="NotOlderThan",
                timeoutSeconds="30",
            ),
            watch(sendInitialEvents="False", resourceVersionMatch="NotOlderThan", resourceVersion="0"),
            get(NODES, query={"watch": "False", "labelSelector": MINE}, expect=200),
            get(NODES, query={"watch": "0", "labelSelector": MINE}, expect=200),
        ],
        [f"{NODES}/wp-4"],
    ),
    Scenario(
        "watches that are refused",
        [
            get(NODES, query={"watch": "1", "sendInitialEvents": "true"}, expect=422),
            get(NODES, query={"watch": "1", "resourceVersionMatch": "Exact", "resourceVersion": "5"}, expect=422),
            get(NODES, query={"watch": "1", "resourceVersion": "x", "timeoutSeconds": "1"}, expect=500),
            get(NODES, query={"watch": "1", "fieldSelector": "spec.x=y"}, compare="outcome", expect=400),
            get(NODES, query={"watch": "1", "timeoutSeconds": "x"}, compare="outcome", expect=400),
            get(NODES, query={"watch": "1", "timeoutSeconds": "1", "resourceVersion": "1"}, compare="outcome"),
            get(
                NODES,
                query={"watch": "1", "timeoutSeconds": "1", "resourceVersion": "999999999", "labelSelector": "a=none"},
            ),
        ],
    ),
]
