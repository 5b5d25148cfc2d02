"""The fixtures that the wheel gives to vendors, `cluster` and `manager`, as a vendor uses them,
with the fake cloud."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudprovider.testing import objects
from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.testing.fake import FakeCloud, FakeConfig
from cloudprovider.wellknown import TAINT_NODE_SHUTDOWN
from controllers.app import ManagerError
from controllers.testing import Cluster, ManagerRun
from tests.integration.conftest import Cluster as Server

VENDORS_TEST = """
import pytest
from cloudprovider.testing.fake import FakeCloud

@pytest.fixture
def provider():
    with FakeCloud() as cloud:
        cloud.console.add_instance("node-1")
        yield cloud

def test_joins(cluster, manager):
    node = cluster.join("node-1")
    cluster.wait_until(lambda: node.is_initialized)
    assert node.provider_id == "fake://i-node-1"

def test_fails(cluster, manager):
    node = cluster.join("node-2")
    cluster.wait_until(lambda: node.is_initialized, timeout=0.5, what="node-2 is initialised")
"""


@pytest.fixture
def provider() -> Iterator[FakeCloud]:
    with FakeCloud() as cloud:
        yield cloud


def test_a_node_joins_is_switched_off_and_goes(cluster: Cluster, manager: ManagerRun, provider: FakeCloud) -> None:
    provider.console.add_instance("node-1", zone="zone-b", addresses={"InternalIP": "10.0.0.7"})
    node = cluster.join("node-1", labels={"team": "blue"})
    cluster.wait_until(lambda: node.is_initialized)
    assert node.provider_id == "fake://i-node-1"
    assert ("InternalIP", "10.0.0.7") in node.addresses
    assert node.taints == {}
    assert node.labels["team"] == "blue"
    assert node.object.metadata is not None
    assert node.object.metadata.uid == node.uid
    cluster.wait_until(lambda: [event.reason for event in cluster.events(node)] == ["Synced"])
    provider.console.change_instance("node-1", addresses=[("InternalIP", "10.0.0.8")])
    cluster.wait_until(lambda: ("InternalIP", "10.0.0.8") in node.addresses)
    provider.console.set_shutdown("node-1")
    node.mark_not_ready()
    cluster.wait_until(lambda: TAINT_NODE_SHUTDOWN in node.taints)
    assert not node.is_ready
    provider.console.set_shutdown("node-1", False)
    node.mark_ready()
    cluster.wait_until(lambda: node.taints == {})
    provider.console.remove_instance("node-1")
    node.mark_not_ready()
    cluster.wait_until(lambda: not node.exists)
    assert manager.metric("controller_reconcile_total", result="success") >= 1


def test_a_service_on_both_api_servers(api: Server, tmp_path: Path) -> None:
    admin = api.server.write_kubeconfig(tmp_path / "admin")
    with FakeCloud() as cloud, Cluster(admin) as cluster, ManagerRun(api.kubeconfig, cloud) as manager:
        cluster.watch_over(manager)
        cloud.console.add_instance("node-1")
        node = cluster.join("node-1")
        cluster.wait_until(lambda: node.is_initialized)
        assert node.taints == {}
        service = cluster.expose("web", ports=(80, 443), annotations={"example.com/tier": "gold"})
        [address] = cluster.wait_until(lambda: service.addresses)
        [balancer] = cloud.console.load_balancers()
        assert address in str(balancer)
        assert service.annotations["example.com/tier"] == "gold"
        service.delete()
        cluster.wait_until(lambda: not service.exists)
        assert cloud.console.load_balancers() == []
        assert len(cluster.wait_until(lambda: cloud.console.routes())) == 1
        left = cluster.expose("left")
        cluster.wait_until(lambda: left.finalizers)
    assert api.find("/api/v1/namespaces/default/services/left") is None  # whatever a test made goes with it
    assert api.find("/api/v1/nodes/node-1") is None


def test_a_killed_manager_changes_nothing_more(cluster: Cluster, manager: ManagerRun, provider: FakeCloud) -> None:
    manager.kill()
    assert not manager.is_running
    provider.console.add_instance("node-1")
    node = cluster.join("node-1")
    service = cluster.expose("web")
    with FakeCloud(FakeConfig()) as successor:
        successor.console.add_instance("node-1")
        manager.start(successor)
        cluster.wait_until(lambda: node.is_initialized and service.addresses)
    assert provider.console.load_balancers() == []
    assert manager.log.count("] running: ") == 2


@pytest.mark.parametrize("manager_flags", [["--controllers=service-lb-controller"]])
def test_flags_choose_the_controllers(cluster: Cluster, manager: ManagerRun) -> None:
    assert "started service-lb-controller" in manager.log
    assert "started cloud-node-controller" not in manager.log


def test_a_wait_in_vain_shows_what_was_last_seen(cluster: Cluster, manager: ManagerRun) -> None:
    node = cluster.join("node-1")
    service = cluster.expose("web", type="ClusterIP")
    cluster.wait_until(lambda: cluster.events(node))
    with pytest.raises(AssertionError) as failure:
        cluster.wait_until(lambda: node.is_initialized, timeout=0.2, what="node-1 is initialised")
    text = str(failure.value)
    assert text.startswith("not within 0.2 s: node-1 is initialised (last value: False)\nNode node-1 (resourceVersion ")
    assert "  taints: node.cloudprovider.kubernetes.io/uninitialized:NoSchedule\n" in text
    assert "  Event Warning FailedToInitializeNode: no instance node-1" in text
    assert "Service default/web" in text
    assert "  load balancer: none" in text
    assert "the manager's log, the last " in text
    assert "started cloud-node-controller" in text
    service.delete()
    wanted = r"\(last error: KeyError: 'zone'\)\n(.|\n)*Service default/web: does not exist"
    with pytest.raises(AssertionError, match=wanted):
        cluster.wait_until(lambda: node.labels["zone"], timeout=0.1)


def test_a_wait_ends_with_the_manager(cluster: Cluster, manager: ManagerRun) -> None:
    assert manager.manager is not None
    node = cluster.join("node-1")
    manager.manager.abort("the test says so")
    with pytest.raises(AssertionError, match=r"the manager has ended: ManagerError: (.|\n)*the test says so"):
        cluster.wait_until(lambda: node.is_initialized)
    with pytest.raises(ManagerError):
        manager.stop()


def test_what_keeps_a_manager_from_starting_is_raised(cluster: Cluster) -> None:
    with FakeCloud(FakeConfig(has_cluster_id=False)) as cloud:
        run = ManagerRun(cluster.kubeconfig, cloud)
        with pytest.raises(ManagerError, match="--allow-untagged-cloud"):
            run.start()
        with pytest.raises(ManagerError):
            run.close()
        with pytest.raises(ValueError, match=r"--node-monitor-perod: .*; --controllers: no controller is called 'nod'"):
            ManagerRun(cluster.kubeconfig, cloud, ["--node-monitor-perod=1s", "--controllers=nod"])


def run_pytest(folder: Path, *arguments: str) -> tuple[int, str]:
    """The vendor's test in a run of its own, in an empty folder; the exit code and what it
    printed."""
    (folder / "test_vendor.py").write_text(VENDORS_TEST)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--rootdir={folder}", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_failing_test_reports_the_managers_log_once(tmp_path: Path) -> None:
    with EmbeddedAPIServer() as server:  # it stands for a cluster that lives longer than a test
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        code, text = run_pytest(tmp_path, f"--apiserver={kubeconfig}")
        assert server.list("nodes") == []
    assert code == 1, text
    assert "1 failed, 1 passed" in text
    assert "- manager's log -" in text
    own = text[text.index("- manager's log -") :].partition("short test summary")[0]  # with CI set, that shows it whole
    assert own.count("] running: ") == 1
    assert "Captured log" not in text
    assert 'cluster.wait_until(lambda: node.is_initialized, timeout=0.5, what="node-2 is initialised")' in text


def test_without_the_plugin_pytest_runs_as_ever(tmp_path: Path) -> None:
    code, text = run_pytest(tmp_path, "-p", "no:cloudprovider")
    assert code == 1
    assert "fixture 'cluster' not found" in text


def test_what_was_only_looked_at_stays(tmp_path: Path) -> None:
    """Not every Node of a cluster that lives longer than the test is the test's."""
    with EmbeddedAPIServer() as server:
        server.create(objects.node("theirs"))
        server.create(objects.service("theirs"))
        with Cluster(server.write_kubeconfig(tmp_path / "kubeconfig")) as cluster:
            assert cluster.node("theirs").exists
            assert cluster.service("theirs").exists
            cluster.join("mine")
            cluster.expose("mine")
            assert "Node theirs" in cluster.describe()
        assert [one["metadata"]["name"] for one in server.list("nodes")] == ["theirs"]
        assert [one["metadata"]["name"] for one in server.list("services")] == ["kubernetes", "theirs"]
