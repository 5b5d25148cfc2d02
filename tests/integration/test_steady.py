"""The manager at work for long, and elections won and lost: threads, file descriptors and memory
stay as they are.

`STEADY=10000,1000,200` runs it with 10,000 updates of nodes, 1,000 changes of Services, and 200
elections.
"""

from __future__ import annotations

import gc
import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.testing.fake import FakeCloud
from cloudprovider.testing.waiting import eventually
from controllers.app import Manager, ManagerError, ManagerOptions, Options
from controllers.endpoints.options import ServingOptions
from controllers.registration.options import LeaderElectionOptions
from controllers.runtime.api import ClientBuilder
from tests.integration.conftest import Cluster
from tests.support.api import LEASE, NODES
from tests.support.nodes import big_node
from tests.support.process import Process, Start
from tests.support.services import SERVICES, lb_service
from tests.support.usage import Usage, usage

UPDATES, CHANGES, ELECTIONS = map(int, os.environ.get("STEADY", "800,80,10").split(","))
NODE_COUNT, SERVICE_COUNT = 50, 10
WARM = 0.2
"""After this part of the work pools and caches are filled: from then on nothing may grow."""
QUIET_SECONDS = 75.0 if "STEADY" in os.environ else 0.0
"""Threads and connections that have nothing to do end by themselves within that."""
BUSY = 50  # one left behind by each change of a Service would be 64
"""So many more threads and connections may be at work at one moment than at another, where nobody
waits for that."""


def _work(api: Cluster, first: float, last: float) -> None:
    """A part of all updates and changes, over a few connections."""

    def update(index: int) -> None:
        node = f"{NODES}/node-{index % NODE_COUNT:04d}"
        api.patch(node, {"metadata": {"annotations": {"example.com/beat": str(index)}}})

    def change(index: int) -> None:
        ports = [{"port": 1 + index, "protocol": "TCP"}]
        api.patch(f"{SERVICES}/web-{index % SERVICE_COUNT}", {"spec": {"ports": ports}})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(update, range(int(UPDATES * first), int(UPDATES * last))))
        list(pool.map(change, range(int(CHANGES * first), int(CHANGES * last))))


def _at_rest(process: Process) -> Usage:
    waiting = "service_controller_services_without_address"
    eventually(lambda: process.metric(waiting) == 0 and process.metric("workqueue_depth") == 0, 60)
    time.sleep(QUIET_SECONDS)
    return usage(process.pid)


@pytest.mark.parametrize("api", ["embedded"], indirect=True)
def test_work_leaves_nothing_behind(api: Cluster, start: Start, tmp_path: Path) -> None:
    generate = [{"count": NODE_COUNT, "types": ["small"], "zones": ["zone-a"]}]
    (tmp_path / "cloud.json").write_text(json.dumps({"generate": generate}))
    for number in range(NODE_COUNT):
        api.create(NODES, big_node(f"node-{number:04d}"))
    for number in range(SERVICE_COUNT):
        api.create(SERVICES, lb_service(f"web-{number}"))
    process = start.manager(api.kubeconfig, "--cluster-name=steady", "--node-status-update-frequency=2s")
    eventually(lambda: process.ask("/readyz")[0] == 200, 60, lambda: process.log)
    _work(api, 0, WARM)
    before = _at_rest(process)
    print(f"after {UPDATES * WARM:.0f} updates and {CHANGES * WARM:.0f} changes: {before}")
    _work(api, WARM, 1)
    after = _at_rest(process)
    print(f"after {UPDATES} updates and {CHANGES} changes: {after}")
    busy = 2 if QUIET_SECONDS else BUSY
    assert not after.grown(before, threads=busy, files=busy)


def _elect(api: Cluster, *, lose: bool) -> None:
    """A manager that leads, and then loses its lease to another, or is stopped."""
    election = LeaderElectionOptions(lease_duration=4.0, renew_deadline=3.0, retry_period=0.1)
    manager_options = ManagerOptions(cloud_provider="fake", cluster_name="steady", leader_election=election)
    options = Options(manager_options, {ServingOptions: ServingOptions(secure_port=0)})
    stop = threading.Event()
    ended: list[ManagerError | None] = []
    with FakeCloud() as cloud, ClientBuilder.from_options(kubeconfig=str(api.kubeconfig)) as clients:
        manager = Manager(options, cloud, clients)

        def run() -> None:
            try:
                manager.run(stop)
            except ManagerError as error:
                ended.append(error)
            else:
                ended.append(None)

        thread = threading.Thread(target=run)
        thread.start()
        eventually(lambda: manager.metrics.value("leader_election_master_status", name="cloud-controller-manager"), 60)
        eventually(lambda: (api.find(LEASE) or {}).get("spec", {}).get("holderIdentity"), 60)
        if lose:
            api.patch(LEASE, {"spec": {"holderIdentity": "another"}})
        else:
            stop.set()
        thread.join(30)
    [error] = ended
    assert (error is not None) == lose, error
    if lose:
        assert "leaderelection lost" in str(error)
        api.patch(LEASE, {"spec": {"holderIdentity": ""}})
    assert api.get(LEASE)["spec"]["holderIdentity"] == ""


def _settled(api: Cluster) -> Usage:
    """What this process holds without what the server in it keeps: its history, and Events."""
    assert isinstance(api.server, EmbeddedAPIServer)
    api.clear()
    api.server.compact()
    gc.collect()
    return usage()


def _grown(before: Usage) -> str:
    """What an election has left behind in this process, or a few of them."""
    gc.collect()  # again: a thread of the last manager may end late, and hold its files until then
    return usage().grown(before, threads=0, files=1)


@pytest.mark.parametrize("api", ["embedded"], indirect=True)
def test_elections_leave_nothing_behind(api: Cluster) -> None:
    warm = max(4, int(ELECTIONS * WARM))
    for number in range(warm):
        _elect(api, lose=number % 2 == 0)
    before = _settled(api)
    print(f"after {warm} elections: {before}")
    for number in range(warm, ELECTIONS):
        _elect(api, lose=number % 2 == 0)
    _settled(api)
    eventually(lambda: not _grown(before), 60, lambda: _grown(before))
    print(f"after {ELECTIONS} elections: {usage()}")
