"""An outage of the API server: what waits for its return does not wait longer than that."""

from __future__ import annotations

import threading
import time

import pytest

from cloudprovider.testing.waiting import eventually
from controllers.runtime.api import ApiError, ClientBuilder, reachability
from controllers.runtime.cache import NODES
from controllers.runtime.cache.informer import Informer
from controllers.runtime.cache.retries import WatchOptions
from controllers.runtime.metrics import Metrics
from tests.integration.conftest import EMBEDDED, Cluster

PATIENT = WatchOptions(first_delay=90.0, longest_delay=90.0, longest_unanswered=90.0, stable_after=0.0)
"""Nothing but the signal ends these delays in time. A watch that is ended right after its start is
no failure here."""


@pytest.mark.row("K17")
@EMBEDDED
def test_any_answered_request_ends_the_back_off_of_the_watch(api: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachability, "OUTAGE", 0.5)
    with api.proxied() as (proxy, kubeconfig), ClientBuilder.from_options(kubeconfig=str(kubeconfig)) as clients:
        other = clients.rest("other")
        informer = Informer(clients.rest("shared-informers"), NODES, metrics=Metrics(), options=PATIENT)
        informer.start()
        eventually(informer.has_synced, timeout=30, message="synced")

        proxy.go_away()
        gone, end = time.monotonic(), threading.Event()
        while time.monotonic() - gone < 1.0:
            with pytest.raises(ApiError):
                other.get("/api/v1/nodes", query={"limit": "1"})
            end.wait(0.1)
        proxy.come_back()
        other.get("/api/v1/nodes", query={"limit": "1"})
        api.create("/api/v1/nodes", {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "late"}})
        eventually(lambda: informer.lister.get("late") is not None, timeout=20, message="the new node is seen")
        assert informer.stop(5.0)
