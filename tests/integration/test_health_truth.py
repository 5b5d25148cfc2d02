"""/healthz tells the truth within 15 s: the API server is away or stands still, rights are taken
away while running.

That every cloud call fails is told by `test_cloud_outage.py`.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
import yaml

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.testing.waiting import eventually
from tests.integration.conftest import REAL, Cluster, still
from tests.lab.envtest.server import RealAPIServer
from tests.support.process import Process, Start
from tests.support.rights import BINDINGS, RBAC

pytestmark = pytest.mark.row("O1")
TRUE_WITHIN = 15.0
DATED = r".*; since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ \([\d.]+ s\)"


@pytest.fixture
def manager(api: Cluster, start: Start) -> Process:
    process = start.manager(api.kubeconfig)
    eventually(lambda: process.ask("/healthz") == (200, "ok") and process.ask("/readyz")[0] == 200, 60)
    return process


@contextmanager
def _away(server: EmbeddedAPIServer | RealAPIServer) -> Iterator[None]:
    """Nobody listens there."""
    assert isinstance(server, EmbeddedAPIServer)
    server.stop()
    yield
    server.start()


@contextmanager
def _unbound(api: Cluster) -> Iterator[None]:
    """The manager's ClusterRoleBinding is gone."""
    if isinstance(api.server, RealAPIServer):
        [binding] = [one for one in yaml.safe_load_all(RBAC.read_text()) if one["kind"] == "ClusterRoleBinding"]
        api.delete(f"{BINDINGS}/{binding['metadata']['name']}")
        try:
            yield
        finally:
            api.create(BINDINGS, binding)
        return
    rule = api.server.access.deny(resource=r"(nodes|services|events)(/.*)?")
    yield
    api.server.access.allow_again(rule)


def _told(process: Process, check: str) -> float:
    """Wait for this check to fail, with a reason and since when; returns how long it took."""
    began = time.monotonic()
    line = re.compile(rf"^\[-\]{check}\S* failed: {DATED}$", re.MULTILINE)
    eventually(lambda: line.search(process.ask("/healthz")[1]), TRUE_WITHIN, lambda: process.ask("/healthz"))
    return time.monotonic() - began


@pytest.mark.parametrize(
    ("api", "how"), [("embedded", _away), pytest.param("real", still, marks=REAL.marks)], indirect=["api"]
)
def test_an_api_server_without_answers_is_told(
    api: Cluster, manager: Process, how: Callable[[EmbeddedAPIServer | RealAPIServer], AbstractContextManager[None]]
) -> None:
    with how(api.server):
        _told(manager, "api-server")
        assert manager.ask("/livez")[0] == 200, "a restart of this process mends no API server"
        eventually(lambda: "health: api-server fails since" in manager.log, TRUE_WITHIN)
    eventually(lambda: manager.ask("/healthz")[0] == 200, TRUE_WITHIN, lambda: manager.ask("/healthz"))
    eventually(lambda: "health: api-server passes again, after" in manager.log)


def test_rights_that_are_taken_away_while_it_runs_are_told(api: Cluster, manager: Process) -> None:
    with _unbound(api):
        _told(manager, "rights-nodes")
        assert manager.ask("/livez")[0] == 200
    eventually(lambda: manager.ask("/healthz")[0] == 200, TRUE_WITHIN, lambda: manager.ask("/healthz"))
    manager.signal(signal.SIGTERM)
    assert manager.ended() == 0
