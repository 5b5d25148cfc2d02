"""The two API servers that every integration test runs against: the embedded one and the real kube-apiserver.

``api`` is parametrised over both and hands the test an empty cluster. The real server is started once per worker
process: a test clears the whole cluster, so that workers cannot share one. Where it cannot be had the tests are
skipped with a message, or fail where ``REQUIRE_REAL_API_SERVER`` is set, as CI does.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from controllers.runtime.api import ClientBuilder
from tests.envtest.build import AssetsMissing, assets
from tests.envtest.server import RealAPIServer
from tests.support.api import API
from tests.support.process import Start
from tests.support.rights import Restricted, apply_rbac, await_namespaces, restricted

REAL = pytest.param("real", marks=[pytest.mark.real, pytest.mark.xdist_group("real")])


class Cluster(API):
    """An API server under test, with a kubeconfig whose identity is the manager's (bound by our RBAC manifest)."""

    def __init__(self, server: EmbeddedAPIServer | RealAPIServer, kubeconfig: Path, ca_file: Path | None) -> None:
        super().__init__(server.url, server.token, ca_file)
        self.server = server
        self.kubeconfig = kubeconfig
        self._builders: list[ClientBuilder] = []

    @property
    def is_real(self) -> bool:
        return isinstance(self.server, RealAPIServer)

    def clients(self, *, as_admin: bool = False) -> ClientBuilder:
        """A new client builder with the manager's rights, or with all rights; closed at the end of the test."""
        kubeconfig = self.kubeconfig
        if as_admin:
            kubeconfig = Path(self.server.write_kubeconfig(kubeconfig.with_name("admin.kubeconfig")))
        builder = ClientBuilder.from_options(kubeconfig=str(kubeconfig))
        self._builders.append(builder)
        return builder

    def kubelet(self, name: str) -> API:
        """The API as the kubelet of a node sees it: user system:node:NAME in the group system:nodes.

        On the real server the Node authorizer and the NodeRestriction admission decide what it may do; it has a token
        for the nodes in KUBELET_NODES. The embedded server imitates neither: there it may do everything, so tests of
        refusals look at `is_real`.
        """
        if isinstance(self.server, RealAPIServer):
            return API(self.url, self.server.kubelet_tokens[name], self.ca_file)
        token = secrets.token_hex(16)
        self.server.access.add_user(token, f"system:node:{name}", groups=("system:nodes",))
        return API(self.url, token, self.ca_file)

    def lacking(self, verb: str, resource: str, kubeconfig: Path) -> AbstractContextManager[Restricted]:
        """For the with statement: another identity, which has the manager's rights but this one.

        Its kubeconfig is written to the path given.
        """
        return restricted(self, self.server, verb, resource, kubeconfig)

    def close(self) -> None:
        for builder in self._builders:
            builder.close()


@pytest.fixture(scope="session")
def real_api_server() -> Iterator[RealAPIServer]:
    """The real kube-apiserver of this worker process, with our RBAC manifest applied."""
    try:
        assets()
    except AssetsMissing as missing:
        if os.environ.get("REQUIRE_REAL_API_SERVER"):
            pytest.fail(f"REQUIRE_REAL_API_SERVER is set, but {missing}")
        pytest.skip(f"the real API server tier: {missing}")
    server = RealAPIServer()
    try:
        server.start()
        admin = API(server.url, server.token, server.ca_file)
        await_namespaces(admin)
        apply_rbac(admin)
        yield server
    finally:
        server.stop()


@pytest.fixture(params=["embedded", REAL])
def api(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """An empty cluster, on the embedded API server and on the real one."""
    if request.param == "embedded":
        with EmbeddedAPIServer(bookmark_interval=5.0) as embedded:  # a minute is long for a test
            cluster = Cluster(embedded, Path(embedded.write_kubeconfig(tmp_path / "kubeconfig")), None)
            yield cluster
            cluster.close()
        return
    real: RealAPIServer = request.getfixturevalue("real_api_server")
    kubeconfig = real.write_kubeconfig(tmp_path / "kubeconfig", token=real.manager_token)
    cluster = Cluster(real, kubeconfig, real.ca_file)
    cluster.clear()
    yield cluster
    cluster.close()
    cluster.clear()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the manager as processes in the test's own directory."""
    made = Start(tmp_path)
    yield made
    made.close()
