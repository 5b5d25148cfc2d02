"""Informers over real HTTP, unchanged against the embedded and the real API server."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from kubernetes.client.models.v1_node import V1Node

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.testing.waiting import eventually
from controllers.runtime.api import RestClient
from controllers.runtime.cache import NODES, SERVICES, InformerFactory, version_of
from controllers.runtime.cache.informer import Informer
from controllers.runtime.cache.resources import LEASES, NAMESPACES, PERSISTENT_VOLUMES
from controllers.runtime.cache.watchtypes import Body, Lines, WatchOptions
from controllers.runtime.metrics import Metrics
from controllers.runtime.protobuf import JSON
from tests.integration.conftest import Cluster

WAIT = 30.0
OPTIONS = WatchOptions(page_size=3, first_delay=0.05, longest_delay=0.5)


class OldRest:
    """A client that can be made to end its watch and to begin the next one at the beginning of
    time.

    The real server no longer knows that time and answers 410; the embedded one repeats all that has
    been.
    """

    def __init__(self, rest: RestClient) -> None:
        self._rest = rest
        self.queries: list[dict[str, str]] = []
        self._old = False
        self._lines: Lines | None = None

    def go_back(self) -> None:
        self._old = True
        if self._lines is not None:
            self._lines.close()

    @property
    def protobuf(self) -> bool:
        return self._rest.protobuf

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        accept: str = JSON,
        timeout: float | None = None,
    ) -> Body:
        self.queries.append(dict(query or {}))
        return self._rest.request(method, path, query=query, accept=accept, timeout=timeout)

    def stream(self, path: str, *, query: Mapping[str, str], read_timeout: float, accept: str = JSON) -> Lines:
        if self._old:
            self._old = False
            query = {**query, "resourceVersion": "1"}
        self._lines = self._rest.stream(path, query=query, read_timeout=read_timeout, accept=accept)
        return self._lines


def create(api: Cluster, *names: str) -> None:
    for name in names:
        api.create("/api/v1/nodes", {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}})


def versions(api: Cluster) -> dict[str, str]:
    items = api.items("/api/v1/nodes")
    return {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in items}


def test_a_cache_follows_its_server_through_pages_changes_expiry_and_restart(api: Cluster) -> None:
    create(api, *[f"n{i}" for i in range(8)])
    rest = OldRest(api.clients().rest("shared-informers"))
    informer = Informer(rest, NODES, metrics=Metrics(), options=OPTIONS)
    told: list[str] = []

    def same() -> bool:
        nodes = informer.lister.list()
        return {str(n.metadata.name): version_of(n) for n in nodes if n.metadata} == versions(api)

    def on_delete(node: V1Node) -> None:
        told.append(f"delete {node.metadata.name if node.metadata else ''}")

    registration = informer.add_handler(None, lambda old, new: told.append("update"), on_delete)
    try:
        informer.start()
        eventually(registration.has_synced, WAIT)
        assert same()
        assert [sorted(query) for query in rest.queries] == [["limit"], ["continue", "limit"], ["continue", "limit"]]

        api.patch("/api/v1/nodes/n1", {"metadata": {"labels": {"a": "b"}}})
        api.delete("/api/v1/nodes/n2")
        create(api, "late")
        eventually(lambda: same() and "delete n2" in told, WAIT)
        assert "update" in told

        api.server.restart()
        api.delete("/api/v1/nodes/n3")
        create(api, "n3")
        eventually(same, WAIT)
        eventually(lambda: "delete n3" in told, WAIT)

        rest.go_back()
        api.delete("/api/v1/nodes/n4")
        eventually(same, WAIT)
        eventually(lambda: told[-1] == "delete n4", WAIT)
        if api.is_real:
            not_older = [query for query in rest.queries if query.get("resourceVersionMatch") == "NotOlderThan"]
            assert len(not_older) == 1, "the list after the 410 is not older than what was seen"
            assert rest.queries[-1].get("continue"), "and comes in pages, too"
    finally:
        assert informer.stop(1.0)


def test_every_kind_syncs_and_stops(api: Cluster) -> None:
    create(api, "n1")
    clients = api.clients(as_admin=True)  # the manager's rights end where its controllers do
    factory = InformerFactory(clients.rest("shared-informers"), metrics=Metrics(), options=OPTIONS)
    nodes, services = factory.informer(NODES), factory.informer(SERVICES)
    factory.informer(PERSISTENT_VOLUMES)
    factory.informer(LEASES)
    factory.start()
    try:
        assert factory.wait_for_sync(threading.Event(), WAIT)
        assert list(nodes.lister.keys()) == ["n1"]
        assert services.lister.get("default/kubernetes") is not None
        assert [health.error for health in factory.health()] == [""] * 4
        assert all(not health.quarantined for health in factory.health())
    finally:
        assert factory.stop(1.0)


def test_a_right_that_is_missing_is_told_and_costs_the_others_nothing(api: Cluster) -> None:
    if isinstance(api.server, EmbeddedAPIServer):
        api.server.faults.status(403, path="/namespaces")
    factory = InformerFactory(api.clients().rest("shared-informers"), metrics=Metrics(), options=OPTIONS)
    nodes, namespaces = factory.informer(NODES), factory.informer(NAMESPACES)
    factory.start()
    try:
        eventually(nodes.has_synced, WAIT)
        eventually(lambda: "403" in namespaces.health().error, WAIT)
        assert not namespaces.has_synced()
    finally:
        assert factory.stop(1.0)
