"""Watches without sockets: what a watcher sees, resuming, selectors, bookmarks, expiry."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.testing.apiserver.errors import StatusError
from cloudprovider.testing.apiserver.watchstream import STOP, WatchStream
from tests.unit.apiserver.conftest import Client, node

NODES = "/api/v1/nodes?watch=1"


def events(stream: WatchStream) -> list[tuple[str, dict[str, Any]]]:
    """Everything that the stream has to say up to now."""
    stream.signal(STOP)
    found: list[tuple[str, dict[str, Any]]] = []
    for batch in stream.batches():
        assert isinstance(batch, list)
        for line in batch:
            event = json.loads(line)
            found.append((event["type"], event["object"]))
    stream.close()
    return found


def shown(stream: WatchStream) -> list[tuple[str, str]]:
    return [(kind, obj["metadata"]["name"]) for kind, obj in events(stream)]


def test_without_a_version_the_present_comes_first(client: Client, server: EmbeddedAPIServer) -> None:
    server.create(node("a"))
    server.create(node("b"))
    assert shown(client.watch(NODES)) == [("ADDED", "a"), ("ADDED", "b")]
    assert shown(client.watch(NODES + "&resourceVersion=0")) == [("ADDED", "a"), ("ADDED", "b")]


def test_a_watch_resumes_where_it_left_off(client: Client, server: EmbeddedAPIServer) -> None:
    server.create(node("a"))
    version = server.version
    server.patch("nodes", "a", {"spec": {"unschedulable": True}})
    server.patch("nodes", "a", {"spec": {"unschedulable": True}})
    server.create(node("b"))
    server.delete("nodes", "a")
    seen = events(client.watch(f"{NODES}&resourceVersion={version}"))
    assert [(kind, obj["metadata"]["name"]) for kind, obj in seen] == [
        ("MODIFIED", "a"),
        ("ADDED", "b"),
        ("DELETED", "a"),
    ]
    versions = [int(obj["metadata"]["resourceVersion"]) for _, obj in seen]
    assert versions == [version + 1, version + 2, version + 3]
    assert seen[0][1]["kind"] == "Node"


def test_changes_during_the_watch_arrive(client: Client, server: EmbeddedAPIServer) -> None:
    stream = client.watch(NODES)
    batches = stream.batches()
    server.create(node("a"))
    first = next(batches)
    server.delete("nodes", "a")
    second = next(batches)
    assert isinstance(first, list)
    assert isinstance(second, list)
    assert [json.loads(line)["type"] for line in first + second] == ["ADDED", "DELETED"]
    stream.close()
    assert server.store.subscriptions() == []


def test_selectors_turn_changes_into_additions_and_deletions(client: Client, server: EmbeddedAPIServer) -> None:
    version = server.version
    server.create(node("a"))
    server.patch("nodes", "a", {"metadata": {"labels": {"x": "1"}}})
    server.patch("nodes", "a", {"metadata": {"labels": {"y": "1"}}})
    server.patch("nodes", "a", {"metadata": {"labels": {"x": None}}})
    server.patch("nodes", "a", {"metadata": {"labels": {"x": "1"}}})
    server.delete("nodes", "a")
    seen = events(client.watch(f"{NODES}&resourceVersion={version}&labelSelector=x%3D1"))
    assert [kind for kind, _ in seen] == ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]
    left = seen[2][1]["metadata"]
    assert left["labels"] == {"x": "1", "y": "1"}
    assert int(left["resourceVersion"]) == version + 4


def test_a_namespaced_watch_sees_its_namespace_only(client: Client, server: EmbeddedAPIServer) -> None:
    for namespace in ("default", "kube-system"):
        server.create({"kind": "Lease", "metadata": {"name": "l", "namespace": namespace}})
    seen = events(client.watch("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases?watch=true"))
    assert [obj["metadata"]["namespace"] for _, obj in seen] == ["kube-system"]


@pytest.mark.parametrize("version", ["", "0"])
def test_initial_events_end_with_a_marked_bookmark(client: Client, server: EmbeddedAPIServer, version: str) -> None:
    server.create(node("a"))
    query = (
        f"&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&resourceVersion={version}"
    )
    seen = events(client.watch(NODES + query))
    assert [kind for kind, _ in seen] == ["ADDED", "BOOKMARK"]
    mark = seen[1][1]["metadata"]
    assert mark["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert mark["resourceVersion"] == str(server.version)


def test_bookmarks_say_how_far_the_watcher_is() -> None:
    server = EmbeddedAPIServer(bookmark_interval=0.0)
    client = Client(server)
    stream = client.watch(f"{NODES}&resourceVersion={server.version}&allowWatchBookmarks=true")
    batches = stream.batches()
    server.create({"kind": "Lease", "metadata": {"name": "elsewhere"}})
    batch = next(batches)
    assert isinstance(batch, list)
    bookmark = json.loads(batch[0])
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"]["resourceVersion"] == str(server.version)
    stream.close()


def test_a_bookmark_never_runs_ahead_of_a_pending_change() -> None:
    server = EmbeddedAPIServer(bookmark_interval=0.0)
    stream = Client(server).watch(f"{NODES}&resourceVersion={server.version}&allowWatchBookmarks=true")
    batches = stream.batches()
    next(batches)
    server.create(node("a"))
    told: list[str] = []
    while "ADDED" not in told:
        batch = next(batches)
        assert isinstance(batch, list)
        for line in batch:
            event = json.loads(line)
            assert event["type"] != "BOOKMARK" or int(event["object"]["metadata"]["resourceVersion"]) < server.version
            told.append(event["type"])
    stream.close()


def test_a_watch_from_the_future_waits_until_the_server_gets_there(client: Client, server: EmbeddedAPIServer) -> None:
    stream = client.watch(f"{NODES}&resourceVersion={server.version + 2}")
    batches = stream.batches()
    stream.signal("begin")
    next(batches)
    for name in "abc":
        server.create(node(name))
    batch = next(batches)
    assert isinstance(batch, list)
    assert json.loads(batch[0])["object"]["metadata"]["name"] == "c"
    stream.close()


def test_a_version_that_was_compacted_is_expired(client: Client, server: EmbeddedAPIServer) -> None:
    version = server.version
    server.create(node("a"))
    server.compact()
    stream = client.watch(f"{NODES}&resourceVersion={version}")
    with pytest.raises(StatusError) as caught:
        list(stream.batches())
    assert (caught.value.code, caught.value.reason) == (410, "Expired")
    assert caught.value.message == f"too old resource version: {version} ({server.version})"


def test_metadata_alone_on_request(client: Client, server: EmbeddedAPIServer) -> None:
    from cloudprovider.testing.apiserver.api import Request

    server.create(node("a"))
    accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    stream = server.api.handle(Request("GET", NODES, {"authorization": f"Bearer {server.token}", "accept": accept}))
    assert isinstance(stream, WatchStream)
    (_, obj), *_ = events(stream)
    assert obj["kind"] == "PartialObjectMetadata"
    assert "spec" not in obj


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("sendInitialEvents=true", 422),
        ("resourceVersionMatch=NotOlderThan&resourceVersion=1", 422),
        ("resourceVersion=x", 500),
        ("fieldSelector=a%3Db", 400),
        ("timeoutSeconds=x", 400),
    ],
)
def test_watches_that_are_refused(client: Client, query: str, code: int) -> None:
    assert client.get(f"{NODES}&{query}").code == code
