"""A kubeconfig is renewed on disk, and what it held before is refused: the leader goes on, and the
standby can take over. Where it names another server, the process ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.testing.waiting import eventually
from tests.integration.conftest import Cluster, Share
from tests.support.api import API, LEASE, NAMESPACES
from tests.support.managers import Managers
from tests.support.process import Start

pytestmark = pytest.mark.row("O12")

ACCOUNT = "renewed"
ACCOUNTS = f"{NAMESPACES}/kube-system/serviceaccounts"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
CACHED = 60.0
"""kube-apiserver takes a token that it knows for ten seconds more; and a busy machine is late."""


class Renewed:
    """An identity with one token at a time, in a kubeconfig."""

    def __init__(self, api: Cluster, folder: Path) -> None:
        self.api = api
        self.path = folder / "renewed"
        if isinstance(api.server, EmbeddedAPIServer):
            self._user = api.server.access.add_user("first", ACCOUNT, groups=("system:masters",))
        else:
            account = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "kube-system"}
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
            api.create(BINDINGS, {"metadata": {"name": ACCOUNT}, "subjects": [account], "roleRef": role})
        self.token = self._next("first")
        self._write()

    def renew(self, server: str = "") -> None:
        """Another token in the file, and another `server`; the former token is refused."""
        former, self.token = self.token, self._next(self.token)
        self._write(server)
        eventually(lambda: self._is_refused(former), CACHED)

    def _next(self, former: str) -> str:
        if isinstance(self.api.server, EmbeddedAPIServer):
            self.api.server.access.add_token(f"{former}+", self._user)
            self.api.server.access.revoke(former)
            return f"{former}+"
        # Tokens of an account that was made again name another UID.
        self.api.delete(f"{ACCOUNTS}/{ACCOUNT}")
        self.api.create(ACCOUNTS, {"metadata": {"name": ACCOUNT}})
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token: str = self.api.create(f"{ACCOUNTS}/{ACCOUNT}/token", asked)["status"]["token"]
        return token

    def _write(self, server: str = "") -> None:
        new = self.path.with_name("new")
        self.api.server.write_kubeconfig(new, token=self.token)
        config = yaml.safe_load(new.read_text())
        if server:
            config["clusters"][0]["cluster"]["server"] = server
        new.write_text(yaml.safe_dump(config))
        os.replace(new, self.path)

    def _is_refused(self, token: str) -> bool:
        return API(self.api.url, token, self.api.ca_file).request("GET", LEASE)[0] == 401

    def close(self) -> None:
        if self.api.is_real:
            self.api.delete(f"{BINDINGS}/{ACCOUNT}")
            self.api.delete(f"{ACCOUNTS}/{ACCOUNT}")


@pytest.fixture
def renewed(api: Cluster, tmp_path: Path) -> Iterator[Renewed]:
    made = Renewed(api, tmp_path)
    yield made
    made.close()


@pytest.fixture
def managers(api: Cluster, start: Start, share: Share, tmp_path: Path) -> Managers:
    share({"on_demand": {"types": ["m-2"], "zones": ["z-1"], "region": "r-1"}})
    return Managers(api, start, tmp_path)


def test_the_leader_goes_on_and_the_standby_takes_over(managers: Managers, renewed: Renewed) -> None:
    leader = managers(kubeconfig=renewed.path)
    eventually(lambda: "running: " in leader.log, 60, lambda: leader.log)
    standby = managers(kubeconfig=renewed.path)
    eventually(lambda: standby.ask("/readyz")[0] == 200, 60, lambda: standby.log)
    renewed.renew()
    managers.add_node("after")
    eventually(lambda: managers.is_initialised("after"), 60, lambda: leader.log)
    leader.signal(signal.SIGTERM)
    assert leader.ended() == 0, leader.log
    eventually(lambda: "running: " in standby.log, 60, lambda: standby.log)
    managers.add_node("later")
    eventually(lambda: managers.is_initialised("later"), 60, lambda: standby.log)
    assert standby.ask("/livez")[0] == 200
    for process in (leader, standby):
        assert "has changed: from now on it is the token of user" in process.log
        assert renewed.token not in process.log


def test_another_server_ends_the_process_once_the_credentials_fail(managers: Managers, renewed: Renewed) -> None:
    leader = managers(kubeconfig=renewed.path)
    eventually(lambda: "running: " in leader.log, 60, lambda: leader.log)
    standby = managers(kubeconfig=renewed.path)
    eventually(lambda: standby.ask("/readyz")[0] == 200, 60, lambda: standby.log)
    renewed.renew(server="https://127.0.0.1:1")
    assert standby.ended(90) == 1, standby.log
    assert "has another server now, and our credentials fail" in standby.log
    assert leader.ended(90) == 1, leader.log
