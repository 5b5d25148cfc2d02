"""Informers over real HTTP, unchanged against the embedded and the real API server."""

from __future__ import annotations

import threading

from controllers.runtime.cache import NODES, SERVICES, InformerFactory, key_of, quorum_list
from controllers.runtime.cache.resources import LEASES, PERSISTENT_VOLUMES
from controllers.runtime.cache.retries import WatchOptions
from controllers.runtime.metrics import Metrics
from tests.integration.conftest import Cluster

WAIT = 30.0
OPTIONS = WatchOptions(page_size=3, first_delay=0.05, longest_delay=0.5)


def create(api: Cluster, *names: str) -> None:
    for name in names:
        api.create("/api/v1/nodes", {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}})


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


def test_a_list_that_proves_something_has_every_page_and_finds_one_object_on_any(api: Cluster) -> None:
    names = [f"n{number}" for number in range(7)]
    create(api, *names)
    rest = api.clients(as_admin=True).rest("proof")
    for size in (2, 7, 500):
        assert sorted(map(key_of, quorum_list(rest, NODES, NODES.parse, page_size=size))) == names
    for name in names:
        assert [*map(key_of, quorum_list(rest, NODES, NODES.parse, name, page_size=2))] == [name]
    assert quorum_list(rest, NODES, NODES.parse, "n7", page_size=2) == []
    assert len(quorum_list(rest, SERVICES, SERVICES.parse, "default/kubernetes", page_size=1)) == 1
    assert quorum_list(rest, SERVICES, SERVICES.parse, "kube-system/kubernetes") == []
