"""--use-service-account-credentials: each controller acts as the service account of its own, with
its own rights.

On the real server RBAC decides, with the manifest printed for the flag and a manager that has only
what it grants. The embedded server knows no RBAC: there the manager itself is denied what only
controllers may do, and tokens are taken away.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.testing.waiting import eventually
from controllers.catalog import CATALOG
from controllers.cli.rbac import manifest
from tests.integration.conftest import REAL, Cluster
from tests.lab.envtest.server import RESTRICTED_USER, RealAPIServer
from tests.support.api import NODES
from tests.support.failover.audit import AuditLog, username
from tests.support.nodes import is_tainted, small_node
from tests.support.process import MODULE, Process, Start
from tests.support.rights import created, user
from tests.support.services import SERVICES, ingress, lb_service

ACCOUNTS = "/api/v1/namespaces/kube-system/serviceaccounts"
CLOUD = "on_demand: {types: [m-2], zones: [z-1], region: r-1}\n"


def initialised(api: Cluster, name: str) -> bool:
    return not is_tainted(api.get(f"{NODES}/{name}"))


def run(start: Start, kubeconfig: Path, tmp_path: Path, *, elects: bool = False) -> Process:
    (tmp_path / "cloud.yaml").write_text(CLOUD)
    return start(
        "--cloud-provider=fake",
        f"--cloud-config={tmp_path / 'cloud.yaml'}",
        f"--kubeconfig={kubeconfig}",
        f"--leader-elect={'true' if elects else 'false'}",
        "--secure-port=0",
        "--health-bind-address=127.0.0.1:0",
        "--use-service-account-credentials",
        command=MODULE,
    )


@pytest.fixture
def narrow(api: Cluster) -> Iterator[RealAPIServer]:
    """The real server with the manifest for the flag; the manager's own rights are the restricted
    user's."""
    assert isinstance(api.server, RealAPIServer)
    text = manifest(CATALOG, ["cloud-provider"]).replace("system:cloud-controller-manager", "test:accounts")
    documents = [one for one in yaml.safe_load_all(text) if one["metadata"]["name"] != "cloud-controller-manager"]
    for one in documents:
        if "subjects" in one:
            own = [subject["name"] == "cloud-controller-manager" for subject in one["subjects"]]
            one["subjects"] = [
                user(RESTRICTED_USER) if mine else subject for mine, subject in zip(own, one["subjects"], strict=True)
            ]
    with created(api, documents):
        yield api.server


@pytest.mark.row("X6")
@pytest.mark.parametrize("api", [REAL], indirect=True)
def test_each_controller_has_its_own_name_and_no_more_rights_than_it_uses(
    api: Cluster, narrow: RealAPIServer, start: Start, tmp_path: Path
) -> None:
    audit = AuditLog(narrow.audit_log, username)
    kubeconfig = narrow.write_kubeconfig(tmp_path / "narrow", token=narrow.restricted_token)
    api.create(NODES, small_node("n1"))
    api.create(SERVICES, lb_service("web"))
    process = run(start, kubeconfig, tmp_path, elects=True)
    eventually(lambda: initialised(api, "n1"), 60, lambda: process.log)
    eventually(lambda: ingress(api.get(f"{SERVICES}/web")), 60, lambda: process.log)
    eventually(lambda: process.ask("/healthz")[0] == 200, 60, lambda: process.ask("/healthz?verbose")[1] + process.log)
    process.signal(signal.SIGTERM)
    assert process.ended() == 0

    def written() -> dict[str, set[str]]:
        who: dict[str, set[str]] = {}
        for one in audit.read():
            if one.writes and "admin" not in one.who:
                who.setdefault(one.who.rpartition(":")[2], set()).add(one.resource)
        return who

    def is_told() -> bool:
        return {"events", "services/status"} <= written().get("service-controller", set())

    eventually(is_told, 10)
    found = written()
    assert found["node-controller"] == {"nodes", "nodes/status", "events"}
    assert found["service-controller"] == {"services", "services/status", "events"}
    assert found[RESTRICTED_USER.rpartition(":")[2]] == {"serviceaccounts/token", "leases", "events"}
    refused = [one for one in audit.read() if one.code in (401, 403)]
    assert [one.uri for one in refused if one.who != "system:anonymous"] == []
    assert "missing permission" not in process.log


@pytest.mark.parametrize("api", ["embedded"], indirect=True)
def test_missing_accounts_are_created_and_a_lost_token_is_renewed_at_once(
    api: Cluster, start: Start, tmp_path: Path
) -> None:
    assert isinstance(api.server, EmbeddedAPIServer)
    api.server.access.deny(user="admin", verb="patch", resource="nodes.*")
    api.create(NODES, small_node("n1"))
    process = run(start, api.kubeconfig, tmp_path)
    try:
        eventually(lambda: api.find(f"{ACCOUNTS}/node-controller"), 60, lambda: process.log)
        eventually(lambda: initialised_embedded(api.server, "n1"), 60, lambda: process.log)
        api.delete(f"{ACCOUNTS}/node-controller")  # its token is worth nothing now
        api.create(NODES, small_node("n2"))
        eventually(lambda: initialised_embedded(api.server, "n2"), 60, lambda: process.log)
    finally:
        process.signal(signal.SIGTERM)
    assert process.ended() == 0
    assert process.log.count("created the service account kube-system/node-controller") == 2


@pytest.mark.row("N7")
@pytest.mark.parametrize("api", ["embedded"], indirect=True)
def test_a_token_that_cannot_be_had_is_told_with_the_missing_rule_and_tried_again(
    api: Cluster, start: Start, tmp_path: Path
) -> None:
    assert isinstance(api.server, EmbeddedAPIServer)
    rule = api.server.access.deny(resource="serviceaccounts/token")
    api.create(NODES, small_node("n1"))
    process = run(start, api.kubeconfig, tmp_path)
    wanted = (
        "resources [serviceaccounts/token], resourceNames [node-controller], verbs [create], namespace kube-system",
        "missing permission: create on serviceaccounts/token",
    )
    eventually(lambda: all(text in process.log for text in wanted), 60, lambda: process.log)
    assert "rights-serviceaccounts/token" in process.ask("/healthz?verbose")[1]
    assert not initialised_embedded(api.server, "n1")
    api.server.access.allow_again(rule)
    eventually(lambda: initialised_embedded(api.server, "n1"), 60, lambda: process.log)
    process.signal(signal.SIGTERM)
    assert process.ended() == 0


def initialised_embedded(server: EmbeddedAPIServer | RealAPIServer, name: str) -> bool:
    """Asked of the store, as the administrator's own requests are counted and refused here."""
    assert isinstance(server, EmbeddedAPIServer)
    return not is_tainted(server.get("nodes", name))
