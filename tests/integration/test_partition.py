"""A leader is cut off in the middle of a write, and the network is mended after the takeover: the
write never arrives.

In a network namespace of its own, which takes root: the packets are lost in the kernel, as on a
broken switch.
"""

from __future__ import annotations

import signal
import sys
import time
import urllib.parse
from pathlib import Path

import pytest

from cloudprovider.testing.waiting import eventually
from tests.integration.conftest import Cluster
from tests.support.api import NODES
from tests.support.nodes import small_node
from tests.support.partition import Island, why_not
from tests.support.process import Start

PROGRAM = """
import sys, threading
from cloudprovider import Interface, InstancesV2, register_cloud_provider
from controllers.app import ControllerEntry, main
from controllers.runtime.api import MERGE_PATCH, ApiError
from kubernetes.client import CoreV1Api
WHO = sys.argv[1]
class Cloud(Interface, InstancesV2):
    def provider_name(self): return "acme"
    def initialize(self, client_builder, stop): pass
    def instances_v2(self): return self
    def instance_exists(self, node): return True
    def instance_shutdown(self, node): return False
    def instance_metadata(self, node): raise RuntimeError("nobody asks")
class Writer:
    def __init__(self, context):
        self.rest, self.core = context.clients.rest("writer"), CoreV1Api(context.clients.client("acme"))
    def health(self): return []
    def ours(self, label):
        self.rest.request("PATCH", "/api/v1/nodes/ours", body=label, content_type=MERGE_PATCH)
    def vendors(self, label):
        self.core.patch_node("vendors", label)
    def run(self, stop):
        threads = [threading.Thread(target=self.go_on, args=(stop, way)) for way in (self.ours, self.vendors)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
    def go_on(self, stop, write):
        number = 0
        while not stop.is_set():
            number += 1
            try:
                write({"metadata": {"labels": {"writer": f"{WHO}-{number}"}}})
            except Exception as error:
                print(WHO, type(error).__name__, error, file=sys.stderr)
            if WHO == "B":
                stop.wait()
            stop.wait(0.005)
register_cloud_provider("acme", lambda config: Cloud())
sys.exit(main(["--cloud-provider=acme", "--secure-port=0", "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=500ms", *sys.argv[2:]],
    catalog=[ControllerEntry(name="writer", construct=Writer)]))
"""


@pytest.mark.row("K18", "M2")
@pytest.mark.parametrize("stands_still", [False, True])
@pytest.mark.parametrize("api", ["embedded"], indirect=True)
def test_a_write_that_was_stuck_in_the_network_is_not_applied_after_the_next_leaders(
    api: Cluster, start: Start, tmp_path: Path, stands_still: bool
) -> None:
    """Writes of our own clients, to the node `ours`, and of a vendor's official client, to
    `vendors`. Whose server it is does not matter, as the client's kernel decides.

    `stands_still`: the process is stopped before its lease is over, so that only the kernel can
    drop the write.
    """
    if problem := why_not():
        pytest.skip(f"a partition: {problem}")
    for name in ("ours", "vendors"):
        api.create(NODES, small_node(name, taints=[]))
    where = urllib.parse.urlsplit(api.url)
    assert where.hostname is not None
    assert where.port is not None
    with Island(tmp_path, (where.hostname, where.port)) as island:
        cut_off = tmp_path / "cut-off"
        cut_off.write_text(api.kubeconfig.read_text().replace(api.url, f"{where.scheme}://127.0.0.1:{island.port}"))
        cut_off.chmod(0o600)

        def labels() -> list[str]:
            nodes = [api.get(f"{NODES}/{name}")["metadata"] for name in ("ours", "vendors")]
            return [str(node.get("labels", {}).get("writer", "")) for node in nodes]

        program = (sys.executable, "-c", PROGRAM)
        leader = start(f"--kubeconfig={cut_off}", command=(*island.inside, *program, "A"))
        eventually(lambda: all(label.startswith("A-") for label in labels()), 90, lambda: leader.log)
        other = start(f"--kubeconfig={api.kubeconfig}", command=(*program, "B"))
        eventually(lambda: "stands by" in other.log, 90, lambda: other.log)
        cut = time.monotonic()
        island.cut()
        if stands_still:
            time.sleep(0.2)  # real time: the writes are under way
            leader.signal(signal.SIGSTOP)
        else:
            assert leader.ended(20) == 1
        eventually(lambda: labels() == ["B-1", "B-1"], 60, lambda: (leader.log, other.log))
        island.heal()
        # The kernel doubles its pauses, so its next try comes before the time since the cut has
        # doubled.
        until = 2 * time.monotonic() - cut + 1.0
        while time.monotonic() < until:
            assert labels() == ["B-1", "B-1"]
            time.sleep(0.1)
        if stands_still:
            leader.signal(signal.SIGCONT)
            assert leader.ended(20) == 1
        assert labels() == ["B-1", "B-1"]
