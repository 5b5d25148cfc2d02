"""The manifest's rights are enough for all controllers, and each of them is used: over the real API
server (X6).

Its audit log says what the manager did there. A right that nothing of this test uses would be one
that could go, and a 403 one that is missing; so the rights and what is done with them must be the
same.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from cloudprovider.testing.fake import raises
from cloudprovider.testing.waiting import eventually
from cloudprovider.wellknown import TAINT_NODE_SHUTDOWN
from tests.integration.conftest import REAL, Cluster, Share
from tests.lab.envtest.server import MANAGER_USER, RealAPIServer
from tests.support.api import NODES
from tests.support.failover.audit import AuditLog, rights_used, username
from tests.support.https import ask, free_port
from tests.support.nodes import is_tainted, small_node
from tests.support.process import MODULE, Start
from tests.support.rights import RBAC
from tests.support.services import SERVICES, ingress, lb_service

CLOUD = """
generate: [{count: 3}]
routes:
  existing:
  - {name: stale, destination_cidr: 10.244.9.0/24, cluster: kubernetes, target_node: vanished, foreign: false}
"""
Right = tuple[str, str, str]


def granted() -> set[Right]:
    """(verb, resource, name) of every rule of the manifest; the name where the rule is for one."""
    rules = [rule for one in yaml.safe_load_all(RBAC.read_text()) for rule in one.get("rules", ())]
    return {
        (verb, resource, name)
        for rule in rules
        for verb in rule["verbs"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
    }


@pytest.mark.row("X6")
@pytest.mark.parametrize("api", [REAL], indirect=True)
def test_every_right_of_the_manifest_is_used_and_no_other_is_missed(
    api: Cluster, start: Start, share: Share, tmp_path: Path
) -> None:
    assert isinstance(api.server, RealAPIServer)
    audit = AuditLog(api.server.audit_log, username)
    cloud = share(CLOUD)
    cloud.faults.on("instance*_metadata", raises(RuntimeError("no such luck")), key="node-0002")
    for number in range(3):
        # Whom the cloud calls gone is not Ready, and a Ready node vouches for the cloud: nothing is
        # waited for.
        ready = "False" if number == 1 else "True"
        node = small_node(f"node-000{number}", cidrs=[f"10.244.{number}.0/24"], ready=ready)
        api.create(NODES, node)
    api.create(SERVICES, lb_service("web"))
    port = free_port()
    flags = (
        "--cloud-provider=fake",
        f"--cloud-config={tmp_path / 'cloud.json'}",
        f"--kubeconfig={api.kubeconfig}",
        "--bind-address=127.0.0.1",
        "--controllers=*",
        "--allocate-node-cidrs",
        "--cluster-cidr=10.244.0.0/16",
        "--node-monitor-period=500ms",
        "--node-deletion-young-grace=0s",
        "--route-reconciliation-period=2s",
    )
    process = start(*flags, f"--secure-port={port}", command=MODULE)

    def initialised(name: str) -> bool:
        return not is_tainted(api.get(f"{NODES}/{name}"))

    eventually(lambda: initialised("node-0000") and initialised("node-0001"), 90, lambda: process.log)
    eventually(lambda: ingress(api.get(f"{SERVICES}/web")), 90, lambda: process.log)
    eventually(lambda: {route.target_node for route in cloud.console.routes()} >= {"node-0000"}, 90)
    eventually(lambda: "stale" not in {route.name for route in cloud.console.routes()}, 90, lambda: process.log)
    cloud.console.set_shutdown("node-0001")
    eventually(lambda: TAINT_NODE_SHUTDOWN in json.dumps(api.get(f"{NODES}/node-0001")), 90, lambda: process.log)
    cloud.console.remove_instance("node-0001")
    eventually(lambda: api.find(f"{NODES}/node-0001") is None, 90, lambda: process.log)
    api.delete(f"{SERVICES}/web")
    eventually(lambda: api.find(f"{SERVICES}/web") is None, 90, lambda: process.log)
    eventually(lambda: any(event.get("count", 1) > 1 for event in api.events_of("node-0002")), 90, lambda: process.log)

    # Who has this token, and what they may read here: asked by the manager.
    assert ask(port, "/metrics", token=api.server.manager_token)[0] == 403

    standby = start(*flags, "--secure-port=0", command=MODULE)
    eventually(lambda: "this process stands by" in standby.log, 90, lambda: standby.log)

    wanted = granted()
    named = {resource for _, resource, name in wanted if name}

    def used() -> set[Right]:
        return rights_used(audit.by(MANAGER_USER), named)

    eventually(lambda: used() >= wanted, 90, lambda: (wanted - used(), process.log))
    assert sorted(used() - wanted) == []
    assert [one.uri for one in audit.by(MANAGER_USER) if one.code == 403] == []
    assert "missing permission" not in process.log + standby.log
