"""etcd restored from a backup: what was seen after it never happened, and resourceVersions are
given a second time."""

from __future__ import annotations

import pytest

from cloudprovider.testing.waiting import eventually
from controllers.runtime.cache import NODES, version_of
from controllers.runtime.cache.informer import Informer
from controllers.runtime.cache.retries import WatchOptions
from controllers.runtime.metrics import Metrics
from tests.integration.conftest import REAL, Cluster
from tests.lab.envtest.server import RealAPIServer

PATH = "/api/v1/nodes"
OPTIONS = WatchOptions(first_delay=0.3, longest_delay=2.0, longest_unanswered=1.0, believe_after=1.0)


def _create(api: Cluster, name: str) -> None:
    api.create(PATH, {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}})


@pytest.mark.row("K2")
@pytest.mark.parametrize("api", [REAL], indirect=True)
def test_the_cache_follows_a_server_restored_from_a_backup(api: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("kept", "changed", "deleted"):
        _create(api, name)
    assert isinstance(api.server, RealAPIServer)
    backup = api.server.backup()
    metrics = Metrics()
    informer = Informer(api.clients().rest("shared-informers"), NODES, metrics=metrics, options=OPTIONS)
    told: list[str] = []
    informer.add_handler(None, None, lambda node: told.append(node.metadata.name or "" if node.metadata else ""))
    informer.start()
    try:
        eventually(informer.has_synced, timeout=60, message="synced")
        for number in range(60):
            api.patch(f"{PATH}/changed", {"metadata": {"labels": {"number": str(number)}}})
        api.delete(f"{PATH}/deleted")
        _create(api, "forgotten")
        eventually(lambda: sorted(informer.lister.keys()) == ["changed", "forgotten", "kept"], timeout=60)

        api.server.restore(backup)
        api.patch(f"{PATH}/changed", {"metadata": {"labels": {"after": "the-restore"}}})
        _create(api, "new")

        def same() -> bool:
            there = api.versions(PATH)
            cached = {key: informer.lister.get(key) for key in list(informer.lister.keys())}
            assert {key: version_of(node) for key, node in cached.items() if node is not None} == there
            return True

        eventually(same, timeout=90, message="the cache is as the server")
        assert sorted(informer.lister.keys()) == ["changed", "deleted", "kept", "new"]
        changed = informer.lister.get("changed")
        assert changed is not None
        assert changed.metadata is not None
        assert changed.metadata.labels == {"after": "the-restore"}
        eventually(lambda: "forgotten" in told, timeout=10, message="the handler is told")
        assert metrics.value("informer_history_resets_total", resource="nodes") == 1
        assert any(r.levelname == "ERROR" and "restored from a backup" in r.getMessage() for r in caplog.records)

        api.delete(f"{PATH}/new")
        eventually(lambda: "new" in told, timeout=60, message="the watch goes on")
    finally:
        assert informer.stop(5.0)
