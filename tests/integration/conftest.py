"""The two API servers that every integration test runs against: the embedded one and the real
kube-apiserver.

``api`` is parametrised over both and hands the test an empty cluster. The real server is started
once per worker process: a test clears the whole cluster, so that workers cannot share one. Under
xdist two workers have one, each for every second test of the tier. Where it cannot be had the tests
are skipped with a message, or fail where ``REQUIRE_REAL_API_SERVER`` is set, as CI does.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.testing.fake import FakeCloud, FakeConfig
from controllers.runtime.api import ClientBuilder
from tests.lab.envtest.build import assets
from tests.lab.envtest.server import RealAPIServer
from tests.support.api import API
from tests.support.process import Start
from tests.support.proxy import ChaosProxy
from tests.support.rights import Restricted, apply_rbac, await_namespaces, restricted
from tests.support.tiers import need

Share = Callable[[Mapping[str, Any] | str], FakeCloud]
REAL = pytest.param("real", marks=pytest.mark.real)
EMBEDDED = pytest.mark.parametrize("api", ["embedded"], indirect=True)
"""For tests in which the cloud's and our own behaviour decides, and nothing of the server's."""
_SERVERS = 2


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """Deal the tests of the real API server to two workers; those with a group of their own have a
    server of their own."""
    dealt = [one for one in items if one.get_closest_marker("real") and not one.get_closest_marker("xdist_group")]
    for number, item in enumerate(dealt):
        item.add_marker(pytest.mark.xdist_group(f"real-{number % _SERVERS}"))
    yield
    # xdist puts the group behind the name of the test. With a pytest that it does not know it fails
    # to, silently, and every worker starts a server.
    if getattr(config.option, "loadgroup", False) and not all("@" in one.nodeid for one in dealt):
        raise pytest.UsageError("this pytest-xdist does not group tests with this pytest: see pyproject.toml")


class Cluster(API):
    """An API server under test, with a kubeconfig whose identity is the manager's (bound by our
    RBAC manifest)."""

    def __init__(self, server: EmbeddedAPIServer | RealAPIServer, kubeconfig: Path, ca_file: Path | None) -> None:
        super().__init__(server.url, server.token, ca_file)
        self.server = server
        self.kubeconfig = kubeconfig
        self._builders: list[ClientBuilder] = []

    @property
    def is_real(self) -> bool:
        return isinstance(self.server, RealAPIServer)

    def clients(self, *, as_admin: bool = False) -> ClientBuilder:
        """A new client builder with the manager's rights, or with all rights; closed at the end of
        the test."""
        kubeconfig = self.kubeconfig
        if as_admin:
            kubeconfig = Path(self.server.write_kubeconfig(kubeconfig.with_name("admin.kubeconfig")))
        builder = ClientBuilder.from_options(kubeconfig=str(kubeconfig))
        self._builders.append(builder)
        return builder

    def kubelet(self, name: str) -> API:
        """The API as the kubelet of a node sees it: user system:node:NAME in the group
        system:nodes.

        On the real server the Node authorizer and the NodeRestriction admission decide what it may
        do; it has a token for the nodes in KUBELET_NODES. The embedded server imitates neither:
        there it may do everything, so tests of refusals look at `is_real`.
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

    @contextmanager
    def proxied(self) -> Iterator[tuple[ChaosProxy, Path]]:
        """A proxy before the server, and the manager's kubeconfig that leads through it."""
        token = self.server.manager_token if isinstance(self.server, RealAPIServer) else self.token
        with ChaosProxy(self.url, self.ca_file) as proxy:
            yield proxy, proxy.write_kubeconfig(self.kubeconfig.with_name("through-proxy"), token)

    def close(self) -> None:
        for builder in self._builders:
            builder.close()


@contextmanager
def still(server: EmbeddedAPIServer | RealAPIServer) -> Iterator[None]:
    """The server takes connections and answers nothing."""
    assert isinstance(server, RealAPIServer)
    with server.paused():
        yield


@pytest.fixture(scope="session")
def real_api_server() -> Iterator[RealAPIServer]:
    """The real kube-apiserver of this worker process, with our RBAC manifest applied."""
    need("the real API server", assets)
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
def embedded(tmp_path: Path) -> Iterator[EmbeddedAPIServer]:
    """Only the embedded API server, and its kubeconfig in the test's folder."""
    with EmbeddedAPIServer() as server:
        server.write_kubeconfig(tmp_path / "kubeconfig")
        yield server


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the manager as processes in the test's own directory."""
    made = Start(tmp_path)
    yield made
    made.close()


@pytest.fixture
def share(tmp_path: Path) -> Iterator[Share]:
    """Makes a fake cloud of these settings, on which processes work by the cloud.json in the test's
    folder."""
    with ExitStack() as ends:

        def made(settings: Mapping[str, Any] | str) -> FakeCloud:
            read = yaml.safe_load(settings) if isinstance(settings, str) else settings
            cloud = ends.enter_context(FakeCloud(FakeConfig.model_validate(read)))
            cloud.share(tmp_path / "cloud.json")
            return cloud

        yield made
