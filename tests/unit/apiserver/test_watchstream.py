"""Watches without sockets: bookmarks, waiting, expiry. What a watcher sees: the parity table."""

from __future__ import annotations

import json

import pytest

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.testing.apiserver.errors import StatusError
from tests.unit.apiserver.conftest import Client, node

NODES = "/api/v1/nodes?watch=1"


def test_changes_during_the_watch_arrive(client: Client, server: EmbeddedAPIServer) -> None:
    stream = client.watch(NODES)
    batches = stream.batches()
    server.create(node("a"))
    first = next(batches)
    server.delete("nodes", "a")
    second = next(batches)
    assert [json.loads(line)["type"] for line in first + second] == ["ADDED", "DELETED"]
    stream.close()
    assert not server.store.collection("nodes").subscriptions


def test_bookmarks_say_how_far_the_watcher_is() -> None:
    server = EmbeddedAPIServer(bookmark_interval=0.0)
    client = Client(server)
    stream = client.watch(f"{NODES}&resourceVersion={server.version}&allowWatchBookmarks=true")
    batches = stream.batches()
    server.create({"kind": "Lease", "metadata": {"name": "elsewhere"}})
    bookmark = json.loads(next(batches)[0])
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"]["resourceVersion"] == str(server.version)
    stream.close()


def test_a_bookmark_never_runs_ahead_of_a_pending_change() -> None:
    server = EmbeddedAPIServer(bookmark_interval=0.0)
    stream = Client(server).watch(f"{NODES}&resourceVersion={server.version}&allowWatchBookmarks=true")
    batches = stream.batches()
    next(batches)
    server.create(node("a"))
    seen: list[str] = []
    while "ADDED" not in seen:
        for line in next(batches):
            event = json.loads(line)
            assert event["type"] != "BOOKMARK" or int(event["object"]["metadata"]["resourceVersion"]) < server.version
            seen.append(event["type"])
    stream.close()


def test_a_watch_from_the_future_waits_until_the_server_gets_there(client: Client, server: EmbeddedAPIServer) -> None:
    stream = client.watch(f"{NODES}&resourceVersion={server.version + 2}")
    batches = stream.batches()
    for name in "abc":
        server.create(node(name))
    assert json.loads(next(batches)[0])["object"]["metadata"]["name"] == "c"
    stream.close()


def test_a_watch_is_ended_after_what_came_before(client: Client, server: EmbeddedAPIServer) -> None:
    stream = client.watch(NODES)
    server.create(node("a"))
    stream.end()
    server.create(node("b"))
    [batch] = stream.batches()
    assert [json.loads(line)["object"]["metadata"]["name"] for line in batch] == ["a"]


def test_a_version_that_was_compacted_is_expired(client: Client, server: EmbeddedAPIServer) -> None:
    version = server.version
    server.create(node("a"))
    server.compact()
    stream = client.watch(f"{NODES}&resourceVersion={version}")
    with pytest.raises(StatusError) as caught:
        list(stream.batches())
    assert (caught.value.code, caught.value.reason) == (410, "Expired")
    assert caught.value.message == f"too old resource version: {version} ({server.version})"
