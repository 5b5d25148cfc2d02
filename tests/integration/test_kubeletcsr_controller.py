"""The controller kubelet-serving-csr over both API servers: a kubelet gets a certificate for its
machine, and nothing of another's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cloudprovider.testing.fake import FakeCloud, FakeConfig
from cloudprovider.testing.waiting import eventually
from controllers.kubeletcsr.controller import KubeletCSRController
from controllers.runtime.cache import KUBELET_SERVING_REQUESTS
from tests.integration.conftest import EMBEDDED, Cluster, Share
from tests.support import kubeletcsr as make
from tests.support.api import NODES
from tests.support.nodes import small_node
from tests.support.process import MODULE, Start
from tests.support.running import at_work

CLOUD = {"generate": [{"count": 2}]}
OWN, OTHER = "node-0000", "node-0001"
REASON = "KubeletCertificateNotApproved"


@pytest.fixture(autouse=True)
def short_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node is asked about every 5 s at most, which the unit tests prove; here nobody waits for
    that."""
    monkeypatch.setattr("controllers.kubeletcsr.controller._LEAST", 0.2)


class World:
    """Two nodes, initialised, with the addresses that the cloud has."""

    def __init__(self, api: Cluster, cloud: FakeCloud | None = None) -> None:
        self.api = api
        self.cloud = cloud or FakeCloud(FakeConfig.model_validate(CLOUD))
        self.ips = {name: self._register(name) for name in (OWN, OTHER)}

    def _register(self, name: str) -> str:
        machine = self.cloud.console.instance(name)
        node = small_node(name, provider_id=f"fake://{machine.id}")
        node["status"]["addresses"] = [{"type": kind, "address": address} for kind, address in machine.addresses]
        self.api.create(NODES, node)
        return next(address for kind, address in machine.addresses if kind == "InternalIP")

    def send(self, name: str, sender: str, request: bytes, **spec: Any) -> None:
        """Have a kubelet send a request."""
        self.api.kubelet(sender).create(make.CSRS, make.csr(name, sender, request, **spec))

    def decisions(self, name: str) -> list[str]:
        found = self.api.get(f"{make.CSRS}/{name}")
        return [one["type"] for one in found["status"].get("conditions", ())]

    def told(self) -> str:
        events = [event for name in (OWN, OTHER) for event in self.api.events_of(name)]
        return "\n".join(event["message"] for event in events if event["reason"] == REASON)


def admin(api: Cluster, tmp_path: Path) -> Path:
    """A kubeconfig with all rights: those of the controller alone are tested by
    `test_controller_rights`."""
    return Path(api.server.write_kubeconfig(tmp_path / "admin"))


def test_a_kubelet_gets_its_certificate_approved(api: Cluster, tmp_path: Path) -> None:
    world = World(api)
    world.send("before", OWN, make.pem(OWN, [world.ips[OWN]], [OWN]))
    with at_work(KubeletCSRController, admin(api, tmp_path), world.cloud) as running:
        eventually(lambda: world.decisions("before") == ["Approved"], 60, world.told)
        world.send("since", OTHER, make.pem(OTHER, [world.ips[OTHER]], [OTHER]))
        eventually(lambda: world.decisions("since") == ["Approved"], 60, world.told)
        (approval,) = api.get(f"{make.CSRS}/since")["status"]["conditions"]
        assert approval["reason"] == "ConfirmedByCloud"
        assert world.ips[OTHER] in approval["message"]
        eventually(lambda: running.count("kubelet_serving_csr_pending_nodes") == 0, 10)
    assert not world.told()


def test_a_hostile_kubelet_gets_nothing_of_another_node(api: Cluster, tmp_path: Path) -> None:
    world = World(api)
    theirs = world.ips[OWN]
    kubelet = api.kubelet(OTHER)
    with at_work(KubeletCSRController, admin(api, tmp_path), world.cloud):
        as_the_other = make.csr("as-the-other", OTHER, make.pem(OWN, [theirs], [OWN]), username=f"system:node:{OWN}")
        status, _ = kubelet.request("POST", make.CSRS, as_the_other)
        assert status == (403 if api.is_real else 201), "NodeRestriction, which is no reason to trust the request"
        if not api.is_real:
            eventually(lambda: "its subject is" in world.told(), 60, world.told)
        kubelet.patch(
            f"{NODES}/{OTHER}/status",
            {"status": {"addresses": [{"type": "InternalIP", "address": ip} for ip in (theirs, world.ips[OTHER])]}},
        )
        world.send("both", OTHER, make.pem(OTHER, [theirs, world.ips[OTHER]], [OTHER]))
        eventually(lambda: f"{theirs} is not the machine's" in world.told(), 60, world.told)
        shown, hidden = make.alternatives([world.ips[OTHER]]), make.alternatives([theirs, "fd00::2"])
        world.send("two-lists", OTHER, make.two_attributes(OTHER, shown, hidden))
        eventually(lambda: "must have one extension" in world.told(), 60, world.told)
        # And it still gets its own.
        world.send("honest", OTHER, make.pem(OTHER, [world.ips[OTHER]], [OTHER]))
        eventually(lambda: world.decisions("honest") == ["Approved"], 60, world.told)
    for name in ("both", "two-lists"):
        assert world.decisions(name) == [], name


def test_the_provider_id_of_a_machine_that_is_no_node_brings_a_kubelet_nothing(api: Cluster, tmp_path: Path) -> None:
    """The contract wants the Node's own name as Hostname, so what the cloud says of the provider ID
    fits whatever Node is asked about."""
    vault = {"name": "vault", "addresses": {"InternalIP": "10.9.9.9"}}
    world = World(api, FakeCloud(FakeConfig.model_validate({**CLOUD, "instances": [vault]})))
    own, ids = world.ips[OTHER], {name: f"fake://{world.cloud.console.instance(name).id}" for name in (OTHER, "vault")}
    kubelet = api.kubelet(OTHER)
    api.delete(f"{NODES}/{OTHER}")  # as after a drain: it registers again
    lie = small_node(OTHER, provider_id=ids["vault"])
    del lie["status"]
    kubelet.create(NODES, lie)
    addresses = [{"type": "InternalIP", "address": ip} for ip in ("10.9.9.9", own)]
    kubelet.patch(f"{NODES}/{OTHER}/status", {"status": {"addresses": addresses}})
    with at_work(KubeletCSRController, admin(api, tmp_path), world.cloud):
        world.send("vault", OTHER, make.pem(OTHER, ["10.9.9.9"], [OTHER]))
        eventually(lambda: f"of this name is {ids[OTHER]}" in world.told() or world.decisions("vault"), 60, world.told)
    assert world.decisions("vault") == []


def test_another_signers_requests_are_not_even_read(api: Cluster, tmp_path: Path) -> None:
    world = World(api)
    request = make.pem(OWN)
    client = ["digital signature", "client auth"]
    world.send("client", OWN, request, signerName="kubernetes.io/kube-apiserver-client-kubelet", usages=client)
    with at_work(KubeletCSRController, admin(api, tmp_path), world.cloud) as running:
        world.send("own", OWN, make.pem(OWN, [world.ips[OWN]]))
        eventually(lambda: world.decisions("own") == ["Approved"], 60, world.told)
        assert running.informers.informer(KUBELET_SERVING_REQUESTS).lister.keys() == ["own"]
    assert world.decisions("client") == []


@EMBEDDED
def test_a_plan_shows_what_would_be_approved(api: Cluster, start: Start, share: Share, tmp_path: Path) -> None:
    world = World(api, share(CLOUD))
    world.send("own", OWN, make.pem(OWN, [world.ips[OWN]], [OWN]))
    cloud, kubeconfig = f"--cloud-config={tmp_path / 'cloud.json'}", f"--kubeconfig={admin(api, tmp_path)}"
    flags = ("--cloud-provider=fake", cloud, kubeconfig, "--controllers=kubelet-serving-csr")
    found = start(*flags, "--dry-run", "--dry-run-output=json", command=MODULE)
    assert found.ended() == 3, found.log
    rows = json.loads(found.output())["rows"]
    assert [(row["action"], row["object"]["name"], row["kind"]) for row in rows] == [("set condition", "own", "change")]
    assert world.decisions("own") == []
