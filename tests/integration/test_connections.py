"""What happens on the way to the API server: connections that lead nowhere."""

from __future__ import annotations

import threading

import pytest

from cloudprovider.testing.waiting import eventually
from controllers.runtime.api import MERGE_PATCH, ClientBuilder, Unreachable
from tests.integration.conftest import EMBEDDED, Cluster
from tests.support.api import NODES
from tests.support.nodes import small_node


@pytest.mark.row("K4")
@EMBEDDED
def test_connections_that_lead_nowhere_cost_one_timeout(api: Cluster) -> None:
    """Formerly each of them cost one, which was enough to lose a lease."""
    api.create(NODES, small_node("n1"))
    with api.proxied() as (proxy, kubeconfig), ClientBuilder.from_options(kubeconfig=str(kubeconfig)) as clients:
        rest = clients.rest("test")

        def several_idle() -> bool:
            threads = [threading.Thread(target=rest.get, args=(NODES,)) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return clients.transport.connections()[1] >= 3

        eventually(several_idle, 60)
        proxy.swallow()
        body, path = {"metadata": {"labels": {"a": "b"}}}, f"{NODES}/n1"
        with pytest.raises(Unreachable, match="timed out"):
            rest.request("PATCH", path, body=body, content_type=MERGE_PATCH, timeout=1)
        rest.request("PATCH", path, body=body, content_type=MERGE_PATCH, timeout=60)
        assert api.get(path)["metadata"]["labels"]["a"] == "b"
