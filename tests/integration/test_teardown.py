"""`teardown` as a process, after a manager that worked: without an API server, and with one, which
says whose cluster it is and whether its manager still works."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from cloudprovider.testing.fake import FakeCloud
from cloudprovider.testing.fake.loadbalancers import KEEP
from cloudprovider.testing.waiting import eventually
from tests.integration.conftest import Cluster, Share
from tests.support.api import LEASE
from tests.support.process import MODULE, Start
from tests.support.services import SERVICES, ingress, lb_service

SETTINGS = {"instances": [{"name": "n0"}], "capabilities": ["load_balancer", "owned_load_balancers", "owned_resources"]}


@pytest.fixture
def cloud(share: Share) -> FakeCloud:
    return share(SETTINGS)


def teardown(start: Start, tmp_path: Path, *flags: str, expect: int) -> tuple[str, str]:
    """Its standard output and its log."""
    config = f"--cloud-config={tmp_path / 'cloud.json'}"
    process = start("teardown", "--cloud-provider=fake", config, *flags, command=MODULE)
    code, output = process.ended(), process.output()
    assert code == expect, (code, output, process.log)
    return output, process.log


def test_what_a_manager_built_is_torn_down_when_it_is_gone(
    api: Cluster, cloud: FakeCloud, start: Start, tmp_path: Path
) -> None:
    flags = ["--controllers=service-lb-controller", "--cluster-name=kubernetes", "--leader-elect-lease-duration=6s"]
    flags += ["--leader-elect-renew-deadline=4s", "--leader-elect-retry-period=1s", f"--kubeconfig={api.kubeconfig}"]
    config = f"--cloud-config={tmp_path / 'cloud.json'}"
    api.create(SERVICES, lb_service("web"))
    kept = lb_service("kept")
    api.create(SERVICES, {**kept, "metadata": {**kept["metadata"], "annotations": {KEEP: "true"}}})
    manager = start("--cloud-provider=fake", config, *flags, command=MODULE)
    for name in ("web", "kept"):
        eventually(lambda name=name: ingress(api.get(f"{SERVICES}/{name}")), 60, lambda: manager.log)  # type: ignore[misc]
    api.delete(f"{SERVICES}/kept")
    eventually(lambda: api.find(f"{SERVICES}/kept") is None)
    cloud.console.add_resource("sg-1", "kubernetes")
    # The manager's own arguments serve, and it is seen to work.
    refused, _ = teardown(start, tmp_path, *flags, "--yes", expect=1)
    assert "holds the Lease kube-system/cloud-controller-manager" in refused
    assert len(cloud.console.load_balancers()) == 2
    manager.signal(signal.SIGKILL)
    manager.ended()
    assert api.get(LEASE)["spec"]["holderIdentity"], "it was not released: that nobody renews it is seen by waiting"
    shown, _ = teardown(start, tmp_path, *flags, expect=3)
    assert "2 things to delete. Nothing was changed." in shown
    _, wrong = teardown(start, tmp_path, *flags, "--yes", "--cluster-identity=u-1", expect=1)
    assert "--cluster-identity=u-1 is not the cluster of the kubeconfig" in wrong
    assert len(cloud.console.load_balancers()) == 2
    uid = api.get("/api/v1/namespaces/kube-system")["metadata"]["uid"]
    refused, _ = teardown(start, tmp_path, *flags, "--yes", expect=1)  # a kubeconfig is no word about the list
    assert f"give --cluster-identity={uid}, the UID of its namespace kube-system." in refused
    assert len(cloud.console.load_balancers()) == 2
    gone, _ = teardown(start, tmp_path, *flags, "--yes", f"--cluster-identity={uid}", expect=0)
    assert "Deleted 2 things." in gone
    [left] = cloud.console.load_balancers()
    assert left.kept
    assert cloud.console.resources() == []
    without = ["--cluster-name=kubernetes", "--also-kept", "--yes"]
    teardown(start, tmp_path, *without, expect=1)  # another cluster's, for all that it knows
    teardown(start, tmp_path, *without, f"--cluster-identity={uid}", expect=0)
    assert cloud.console.load_balancers() == []


def test_flags_are_checked_before_anything_is_asked(cloud: FakeCloud, start: Start, tmp_path: Path) -> None:
    _, bad = teardown(start, tmp_path, "--wait=0s", "--also-keep", expect=2)
    assert "2 problems with the flags" in bad
    assert "teardown --help" in bad
    assert cloud.calls.log() == ()


def test_an_api_server_that_is_named_must_answer(cloud: FakeCloud, start: Start, tmp_path: Path) -> None:
    cloud.console.add_resource("sg-1", "blue")
    flags = ["--cluster-name=blue", "--yes", "--master=http://127.0.0.1:9"]
    _, said = teardown(start, tmp_path, *flags, expect=1)
    assert "Without one, leave out --kubeconfig and --master" in said
    assert [one.id for one in cloud.console.resources()] == ["sg-1"]
