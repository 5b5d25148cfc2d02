"""Leader migration with two managers as processes: one stands for kube-controller-manager, with its
own main lease.

Both are candidates for the second lease; whoever holds it runs the Service controller, and the
other one does not.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloudprovider.testing.waiting import eventually
from controllers.catalog import CATALOG
from controllers.cli.rbac import manifest
from controllers.manager.permissions import common_rules
from controllers.registration.options import LeaderElectionOptions
from tests.integration.conftest import Cluster, Share
from tests.lab.envtest.server import MANAGER_USER
from tests.support.api import LEASES
from tests.support.managers import Managers
from tests.support.process import Process, Start
from tests.support.rights import created, user
from tests.support.services import SERVICES, ingress, lb_service

SECOND = "cloud-provider-extraction-migration"


class Moving(Managers):
    """The two managers."""

    def __init__(self, api: Cluster, start: Start, folder: Path) -> None:
        super().__init__(api, start, folder, "--enable-leader-migration")
        self._admin = Path(api.server.write_kubeconfig(folder / "admin"))

    def old(self, *flags: str) -> Process:
        """What stands for kube-controller-manager: another main lease, and only controllers that
        move."""
        names = ("--leader-elect-resource-name=kube-controller-manager", "--controllers=service")
        process = self(*names, *flags, kubeconfig=self._admin)
        eventually(lambda: "running service-lb-controller under the lease" in process.log, 60, lambda: process.log)
        return process

    def new(self, *flags: str) -> Process:
        """The cloud-controller-manager, with its own rights."""
        process = self("--controllers=cloud-node,service", *flags)
        eventually(lambda: "running: " in process.log, 60, lambda: process.log)
        return process

    def holder(self, lease: str = SECOND) -> str:
        found = self.api.find(f"{LEASES}/{lease}") or {}
        return str((found.get("spec") or {}).get("holderIdentity") or "")

    def add_service(self, name: str) -> None:
        self.api.create(SERVICES, lb_service(name))

    def has_address(self, name: str) -> bool:
        return bool(ingress(self.api.get(f"{SERVICES}/{name}")))


@pytest.fixture
def managers(api: Cluster, start: Start, share: Share, tmp_path: Path) -> Iterator[Moving]:
    share({"on_demand": {"types": ["m-2"], "zones": ["z-1"], "region": "r-1"}})
    documents = []
    if api.is_real:  # the manager's own rights, and what the manifest for a migration adds to them
        rules = common_rules(LeaderElectionOptions(), SECOND)
        text = manifest(CATALOG, None, rules).replace("system:cloud-controller-manager", "test:migration")
        documents = [one for one in yaml.safe_load_all(text) if one["metadata"].get("namespace") == "kube-system"]
        documents = [one for one in documents if one["kind"] in ("Role", "RoleBinding")]
        for one in documents:
            if "subjects" in one:
                one["subjects"] = [user(MANAGER_USER)]
    with created(api, documents):
        yield Moving(api, start, tmp_path)
    for lease in ("kube-controller-manager", SECOND):
        if api.find(f"{LEASES}/{lease}"):
            api.delete(f"{LEASES}/{lease}")


def test_a_controller_moves_from_one_manager_to_the_other_and_runs_in_one_at_a_time(managers: Moving) -> None:
    old = managers.old()
    first = managers.holder()
    assert first == managers.holder("kube-controller-manager")  # one identity for both leases
    new = managers.new()
    managers.add_node("n1")
    eventually(lambda: managers.is_initialised("n1"), 60, lambda: new.log)  # the main lease is enough for nodes
    managers.add_service("one")
    eventually(lambda: managers.has_address("one"), 60, lambda: old.log)
    assert "running: cloud-node-controller, for cluster" in new.log
    assert f"leader migration: waiting for the lease {SECOND}" in new.log
    assert "started service-lb-controller" not in new.log
    assert managers.holder() == first
    assert "[+]leaderMigration ok" in new.ask("/healthz?verbose")[1]

    old.signal(signal.SIGTERM)
    assert old.ended() == 0
    managers.add_service("two")
    # That it need not wait for the lease to expire is shown by the log; a busy machine may be late.
    eventually(lambda: managers.has_address("two"), 60, lambda: (old.log, new.log))
    assert f"released the lease kube-system/{SECOND}" in old.log
    assert "running service-lb-controller under the lease" in new.log
    assert managers.holder() == managers.holder("cloud-controller-manager") != first
    new.signal(signal.SIGTERM)
    assert new.ended() == 0
    assert (managers.holder(), managers.holder("cloud-controller-manager")) == ("", "")


@pytest.mark.row("M2")
@pytest.mark.parametrize("api", ["embedded"], indirect=True)
@pytest.mark.parametrize("lease", [SECOND, "cloud-controller-manager"])
def test_losing_either_lease_ends_the_process(lease: str, managers: Moving) -> None:
    new = managers.new()
    eventually(lambda: "running service-lb-controller under the lease" in new.log, 60, lambda: new.log)
    managers.api.patch(f"{LEASES}/{lease}", {"spec": {"holderIdentity": "thief"}})
    assert new.ended(20) == 1
    assert f"thief has taken the lease kube-system/{lease}" in new.log
    assert "ended without draining" in new.log


@pytest.mark.parametrize("api", ["embedded"], indirect=True)
def test_what_another_component_runs_is_left_to_it_and_a_lease_for_nothing_is_left_alone(
    managers: Moving, tmp_path: Path
) -> None:
    config: dict[str, Any] = {
        "apiVersion": "controllermanager.config.k8s.io/v1",
        "kind": "LeaderMigrationConfiguration",
        "leaderName": SECOND,
        "controllerLeaders": [{"name": "service", "component": "kube-controller-manager"}],
    }
    (tmp_path / "migration.yaml").write_text(yaml.safe_dump(config))
    new = managers.new(f"--leader-migration-config={tmp_path / 'migration.yaml'}")
    assert "service-lb-controller is left to kube-controller-manager" in new.log
    assert "nothing here runs under the lease" in new.log
    assert managers.holder() == ""
    managers.add_node("n1")
    eventually(lambda: managers.is_initialised("n1"), 60, lambda: new.log)
    new.signal(signal.SIGTERM)
    assert new.ended() == 0
