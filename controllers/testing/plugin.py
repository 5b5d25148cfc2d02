"""The pytest plugin: fixtures for end-to-end tests of a provider. pytest loads it in every run
where we are installed.

So this module imports pytest and nothing else; what a fixture needs is imported when the fixture is
used, and `-p no:cloudprovider` leaves it out. The fixtures hand out `Cluster` and `ManagerRun` of
this package:

    def test_joins(cluster, manager):
        node = cluster.join("node-1")
        cluster.wait_until(lambda: node.is_initialized)
        assert node.provider_id == "acme://i-1"

The vendor's own fixture `provider` says with which provider; a folder, a module or a class may
define it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cloudprovider import CloudConfig, Interface
    from cloudprovider.testing.apiserver import EmbeddedAPIServer
    from controllers.testing.cluster import Cluster
    from controllers.testing.managerrun import ManagerRun

EMBEDDED = "embedded"
VARIABLE = "CLOUDPROVIDER_TEST_APISERVER"
_RUN = pytest.StashKey["ManagerRun"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option that says on which API server `cluster` is."""
    parser.getgroup("cloudprovider", "Kubernetes cloud providers").addoption(
        "--apiserver",
        default=os.environ.get(VARIABLE) or EMBEDDED,
        metavar="embedded|KUBECONFIG",
        help="API server for the fixture `cluster`: the embedded one, a new one for each test, or the path of the "
        f"kubeconfig of a cluster that is there for tests only (default: ${VARIABLE} or {EMBEDDED})",
    )


@pytest.fixture
def provider() -> Interface:
    """The provider under test: to be overridden by a fixture of this name."""
    raise pytest.UsageError(
        "the fixture `manager` runs the provider that the fixture `provider` returns, and there is none. "
        "Define it in conftest.py, a function with @pytest.fixture: def provider(): return AcmeCloud(...)"
    )


@pytest.fixture
def cloud_config() -> CloudConfig | None:
    """What the provider was made from, whose secrets are kept out of logs and Events; to be
    overridden if needed."""
    return None


@pytest.fixture
def manager_flags() -> Sequence[str]:
    """More flags for the manager, as they would be typed; the last one of a name counts. To be
    overridden if needed."""
    return ()


@pytest.fixture
def embedded_apiserver() -> Iterator[EmbeddedAPIServer]:
    """An embedded API server that is started, empty but for what a new cluster has; a new one for
    each test."""
    from cloudprovider.testing.apiserver import EmbeddedAPIServer

    with EmbeddedAPIServer() as server:
        yield server


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """The cluster under test, on the API server that --apiserver names."""
    from controllers.testing.cluster import Cluster

    where = request.config.getoption("--apiserver")
    # Asked for only here: with a real cluster no embedded server is started.
    if where == EMBEDDED:
        server: EmbeddedAPIServer = request.getfixturevalue("embedded_apiserver")
        where = server.write_kubeconfig(tmp_path / "kubeconfig")
    with Cluster(where) as made:
        yield made


@pytest.fixture
def manager(
    request: pytest.FixtureRequest,
    cluster: Cluster,
    provider: Interface,
    cloud_config: CloudConfig | None,
    manager_flags: Sequence[str],
) -> Iterator[ManagerRun]:
    """The manager with `provider`, ready when the test begins; stopped and drained after it,
    failing if it had died."""
    from controllers.testing.managerrun import ManagerRun

    run = ManagerRun(cluster.kubeconfig, provider, manager_flags, config=cloud_config)
    request.node.stash[_RUN] = run
    capture = getattr(request.config.pluginmanager.get_plugin("logging-plugin"), "report_handler", None)
    if capture is not None:
        capture.addFilter(_not_in_managers_log)
    # Before the start, so that a wait in the test's own fixtures shows the log as well.
    cluster.watch_over(run)
    try:
        run.start()
        yield run
    finally:
        cluster.watch_over(None)
        run.close()


def _not_in_managers_log(record: logging.LogRecord) -> bool:
    """A manager's line is in the report's section of its own, so it is left out of pytest's
    "Captured log"."""
    return not hasattr(record, "in_manager_log")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put the manager's log into the report of a test that fails."""
    report = yield
    run = item.stash.get(_RUN, None)
    # Of a test that passes nobody reads it, and it is long.
    if run is not None and report.failed and run.log:
        report.sections.append(("manager's log", run.log))
    return report
