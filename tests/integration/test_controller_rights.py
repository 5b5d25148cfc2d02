"""Each controller alone, with the rights that the manifest gives to it alone: none is missing, and
none is left over.

Over the real API server, whose audit log says what the manager asked for and what was refused (X6).
And with the rights of a Go cloud-controller-manager, which are narrower in places: it runs, and
names what it misses.
"""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path
from typing import Any

import pytest

from cloudprovider.testing.fake import FakeCloud, raises
from cloudprovider.testing.waiting import eventually
from controllers.catalog import CATALOG
from controllers.cli.rbac import grants
from controllers.registration.entry import enabled
from tests.integration.conftest import REAL, Cluster, Share
from tests.lab.envtest.server import RESTRICTED_USER, RealAPIServer
from tests.support.api import MERGE, NODES
from tests.support.failover.audit import AuditLog, rights_used, username
from tests.support.https import ask, free_port, status
from tests.support.kubeletcsr import CSRS, csr, pem
from tests.support.nodes import UNINITIALIZED, small_node
from tests.support.process import MODULE, Start
from tests.support.rights import bound
from tests.support.services import SERVICES, lb_service
from tests.support.sshkeys import PUBLIC

CLOUD = """
generate: [{count: 4}]
latency: {"*": 200ms}
routes:
  existing:
  - {name: stale, destination_cidr: 10.244.9.0/24, cluster: kubernetes, target_node: vanished, foreign: false}
volumes:
"""
VOLUMES = "/api/v1/persistentvolumes"
TURNS = 200
CLOUD += "".join(f"- {{id: volume-{number:04d}, zones: [z-1]}}\n" for number in range(TURNS))
TRIED = [
    entry.name
    for entry in CATALOG
    if os.environ.get("CONTROLLER_RIGHTS") == "all" or not entry.name.startswith("cloud-node-")
]
"""The node controllers look at a node again only when a write met another one: waiting for that
takes a minute."""
IDENTITY = ("get", "namespaces", "kube-system")
"""For the service controller, and for providers that ask which cluster this is; the fake cloud does
not."""
APPROVER = ("approve", "signers", "kubernetes.io/kubelet-serving")
FLAGS = (
    "--cloud-provider=fake",
    "--bind-address=127.0.0.1",
    "--allocate-node-cidrs",
    "--cluster-cidr=10.244.0.0/16",
    "--node-monitor-period=300ms",
    "--node-uninitialized-grace-period=1s",
    "--node-deletion-young-grace=0s",
    "--route-reconciliation-period=1s",
    "--ssh-user=ada",
)


def kubeconfig_of(api: Cluster, path: Path) -> Path:
    assert isinstance(api.server, RealAPIServer)
    return api.server.write_kubeconfig(path, token=api.server.restricted_token)


def fill(api: Cluster, *, initialised: bool) -> None:
    """Four nodes that are not ready, two Services, and a volume whose disk the cloud does not
    have."""
    _create_volume(api, "lost")
    for number in range(4):
        provider_id = f"fake://i-node-000{number}" if initialised else ""
        cidrs = [f"10.244.{number}.0/24"]
        api.create(NODES, small_node(f"node-000{number}", provider_id=provider_id, cidrs=cidrs, ready="False"))
    for name in ("web", "broken"):
        api.create(SERVICES, lb_service(name))


def _create_volume(api: Cluster, name: str) -> None:
    size = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
    spec = {"flexVolume": {"driver": "example.com/disk"}, **size}  # a disk that only a cloud can have
    api.create(VOLUMES, {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec})


def unlucky(share: Share) -> FakeCloud:
    """A cloud in which something fails for every controller."""
    cloud = share(CLOUD)
    bad = raises(RuntimeError("no such luck"))
    cloud.faults.on("instance*", bad, key="node-0002")
    cloud.faults.on("*route", bad, key="*node-0002*")
    cloud.faults.on("ensure_load_balancer", bad, key="*broken*")
    cloud.faults.on("add_ssh_key*", bad)
    return cloud


def jostle(api: Cluster, cloud: FakeCloud, turn: int) -> None:
    """Give every controller something to do, and change what it is about to write: that takes a
    look at the new one."""
    cloud.console.set_shutdown("node-0001", turn % 2 == 0)
    volume = f"volume-{turn % TURNS:04d}"
    if api.find(f"{VOLUMES}/{volume}") is None:
        _create_volume(api, volume)
    for number in range(20):
        for name in ("node-0000", "node-0001"):  # no test of speed: they are to meet the manager's own writes
            api.request("PATCH", f"{NODES}/{name}", {"metadata": {"labels": {"turn": f"{turn}-{number}"}}}, MERGE)
        api.request("PATCH", f"{VOLUMES}/{volume}", {"metadata": {"labels": {"turn": str(number)}}}, MERGE)
    if turn == 2:
        cloud.console.remove_instance("node-0003")
    if turn % 3 == 0:
        taints = api.get(f"{NODES}/node-0000")["spec"].get("taints", [])
        if UNINITIALIZED not in taints:
            api.patch(f"{NODES}/node-0000", {"spec": {"taints": [*taints, UNINITIALIZED]}})


def crowd(api: Cluster, turn: int) -> None:
    """Nodes come for which no pod CIDR is free, and one of those that have one goes."""
    api.create(NODES, small_node(f"guest-{turn}", taints=[]))
    if turn >= 2:
        api.delete(f"{NODES}/node-0002")


def certify(api: Cluster, cloud: FakeCloud, turn: int) -> None:
    """A kubelet asks for its certificate, and somebody changes the request while the cloud is
    asked; another one asks for what is not its own, so that the same Event comes again."""
    for name in ("node-0000", "node-0001"):
        addresses = [{"type": kind, "address": address} for kind, address in cloud.console.instance(name).addresses]
        api.request("PATCH", f"{NODES}/{name}/status", {"status": {"addresses": addresses}}, MERGE)
    own = [address for kind, address in cloud.console.instance("node-0000").addresses if kind == "InternalIP"]
    if turn == 0:
        api.kubelet("node-0001").create(CSRS, csr("stranger", "node-0001", pem("node-0001", own)))
    api.kubelet("node-0000").create(CSRS, csr(f"csr-{turn}", "node-0000", pem("node-0000", own)))
    for number in range(50):
        api.request("PATCH", f"{CSRS}/csr-{turn}", {"metadata": {"labels": {"turn": str(number)}}}, MERGE)


def trouble(api: Cluster, cloud: FakeCloud, controller: str, turn: int) -> None:
    """A turn of what makes this controller use all its rights."""
    if controller == "kubelet-serving-csr":
        certify(api, cloud, turn)
    else:
        jostle(api, cloud, turn)
    if controller == "node-ipam-controller":
        crowd(api, turn)


@pytest.mark.row("X6", "N7")
@pytest.mark.parametrize("controller", TRIED)
@pytest.mark.parametrize("api", [REAL], indirect=True)
def test_one_controller_with_its_own_rights_is_refused_nothing_and_uses_all(
    api: Cluster, start: Start, share: Share, tmp_path: Path, controller: str
) -> None:
    assert isinstance(api.server, RealAPIServer)
    rules: dict[str, list[dict[str, Any]]] = {}
    wanted = set()
    for grant in grants(enabled([controller], CATALOG)):
        rule = {"apiGroups": [grant.group], "resources": [grant.resource], "verbs": list(grant.verbs)}
        rules.setdefault(grant.namespace, []).append(rule | ({"resourceNames": grant.names} if grant.names else {}))
        wanted |= {(verb, grant.resource, name) for verb in grant.verbs for name in grant.names or ("",)}
    named = {resource for _, resource, name in wanted if name}
    must = wanted if controller == "service-lb-controller" else wanted - {IDENTITY}
    must = must - {APPROVER}  # asked by the API server itself
    cloud = unlucky(share)
    audit = AuditLog(api.server.audit_log, username)

    def used() -> set[tuple[str, str, str]]:
        return rights_used(audit.by(RESTRICTED_USER), named)

    fill(api, initialised=controller != "cloud-node-controller")
    port = free_port()
    with bound(api, rules):
        kubeconfig = kubeconfig_of(api, tmp_path / "own.kubeconfig")
        (tmp_path / "keys.pub").write_text(PUBLIC)
        files = (f"--cloud-config={tmp_path / 'cloud.json'}", f"--ssh-keyfile={tmp_path / 'keys.pub'}")
        own = ("--cluster-cidr=10.244.0.0/22",) if controller == "node-ipam-controller" else ()
        flags = (*FLAGS, *own, *files, f"--kubeconfig={kubeconfig}")
        process = start(*flags, f"--controllers={controller}", f"--secure-port={port}", command=MODULE)
        eventually(lambda: status(port, "/readyz") == 200, 60, lambda: process.log)
        # A second one stands by, and watches the Lease.
        start(*flags, f"--controllers={controller}", "--secure-port=0", command=MODULE)
        # Who has this token, and what they may see here: asked by the manager.
        assert ask(port, "/metrics", token=api.server.restricted_token)[0] == 403
        deadline = time.monotonic() + 120
        for turn in itertools.count():
            if used() >= must:
                break
            assert time.monotonic() < deadline, (must - used(), process.log)
            # What is missing after a few turns waits for a retry; turns meanwhile only cost CPU.
            if turn < 4 or turn % 10 == 0 or controller.startswith("cloud-node-"):
                trouble(api, cloud, controller, turn)
            time.sleep(0.2)  # the audit log is written in batches
        assert sorted(used() - wanted) == []
        assert [one.uri for one in audit.by(RESTRICTED_USER) if one.code == 403] == []
        assert "missing permission" not in process.log


GO_RULES = [
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch", "update"]},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["*"]},
    {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["services"], "verbs": ["list", "patch", "update", "watch"]},
    {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["persistentvolumes"], "verbs": ["get", "list", "update", "watch"]},
    {"apiGroups": [""], "resources": ["endpoints"], "verbs": ["create", "get", "list", "watch", "update"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]},
]
"""What the Kubernetes documentation grants a cloud-controller-manager, with the lease that it
needs."""


@pytest.mark.row("N7")
@pytest.mark.parametrize("api", [REAL], indirect=True)
def test_with_the_rules_of_a_go_manager_it_runs_and_names_what_it_misses(
    api: Cluster, start: Start, share: Share, tmp_path: Path
) -> None:
    cloud = unlucky(share)
    fill(api, initialised=False)
    port = free_port()
    with bound(api, {"": GO_RULES}):
        kubeconfig = kubeconfig_of(api, tmp_path / "own.kubeconfig")
        flags = (*FLAGS, f"--cloud-config={tmp_path / 'cloud.json'}", f"--kubeconfig={kubeconfig}")
        process = start(*flags, f"--secure-port={port}", command=MODULE)
        eventually(lambda: "missing permission: patch on services/status" in process.log, 60, lambda: process.log)
        for number in (0, 1, 3):
            path = f"{NODES}/node-000{number}"
            eventually(lambda path=path: api.get(path)["spec"].get("providerID"), 60, lambda: process.log)  # type: ignore[misc]  # bound now
        eventually(lambda: len(cloud.console.load_balancers()) == 1, 60, lambda: process.log)
        eventually(lambda: "node-0000" in {route.target_node for route in cloud.console.routes()}, 60)
        assert "Services never show their load balancer's address" in process.log
        code, text = ask(port, "/healthz")
        assert code == 500
        assert "[-]rights-services/status failed" in text
        assert ask(port, "/livez")[0] == 200
        assert ask(port, "/metrics", token=api.server.token)[0] == 401  # nobody can be asked who has this token
