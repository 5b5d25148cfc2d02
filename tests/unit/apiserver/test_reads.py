"""Lists over the API: pages of one snapshot, expiry, what resourceVersion means."""

from __future__ import annotations

import pytest

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from tests.unit.apiserver.conftest import Client, Reply, node

NODES = "/api/v1/nodes"


@pytest.fixture(autouse=True)
def five_nodes(server: EmbeddedAPIServer) -> None:
    for name in "abcde":
        server.create(node(name, metadata={"labels": {"n": name}}))


def names(reply: Reply) -> list[str]:
    assert reply.code == 200, reply.body
    return [item["metadata"]["name"] for item in reply.body["items"]]


def test_what_was_compacted_is_gone_and_a_page_tells_how_to_go_on(client: Client, server: EmbeddedAPIServer) -> None:
    version, first = server.version, client.get(f"{NODES}?limit=2")
    server.delete("nodes", "d")
    server.compact()
    gone = client.get(f"{NODES}?limit=2&continue={first.body['metadata']['continue']}")
    assert (gone.code, gone.reason) == (410, "Expired")
    assert "inconsistent list" in gone.body["message"]
    rest = client.get(f"{NODES}?continue={gone.body['metadata']['continue']}")
    assert names(rest) == ["c", "e"]
    exact = client.get(f"{NODES}?resourceVersion={version}&resourceVersionMatch=Exact")
    assert (exact.code, exact.reason) == (410, "Expired")
    assert exact.body["message"] == "The resourceVersion for the provided list is too old."
