"""The manager as a library: start, health, failures, and a stop that nothing holds up."""

from __future__ import annotations

import itertools
import re
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_node_address import V1NodeAddress

from cloudprovider import InstanceMetadata, InstancesV2, Interface, LoadBalancer
from cloudprovider.host import ClientBuilder as HostClientBuilder
from cloudprovider.host import Listers, StopSignal
from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.testing.fake import FakeCloud
from cloudprovider.testing.waiting import eventually
from controllers.app import (
    CATALOG,
    Context,
    ControllerEntry,
    Manager,
    ManagerError,
    ManagerOptions,
    Options,
    ServingOptions,
)
from controllers.cloudcalls import CloudCallOptions
from controllers.registration.options import LeaderElectionOptions
from controllers.runtime.api import ClientBuilder
from controllers.runtime.base import ControllerBase
from controllers.runtime.queue import FailureHandling
from tests.integration.conftest import Cluster
from tests.support.api import NODES
from tests.support.nodes import small_node

Start = Callable[..., "Run"]


class Tiny(Interface, InstancesV2):
    """One address for every node; records how it is started and stopped."""

    def __init__(self) -> None:
        self.clients: HostClientBuilder | None = None
        self.stop: StopSignal | None = None
        self.listers: Listers | None = None
        self.hang: threading.Event | None = None

    def provider_name(self) -> str:
        return "tiny"

    def initialize(self, client_builder: HostClientBuilder, stop: StopSignal) -> None:
        self.clients, self.stop = client_builder, stop
        if self.hang is not None:
            self.hang.wait(60)

    def set_informers(self, informers: Listers) -> None:
        self.listers = informers

    def has_cluster_id(self) -> bool:
        return True

    def instances_v2(self) -> InstancesV2:
        return self

    def instance_exists(self, node: V1Node) -> bool:
        return True

    def instance_shutdown(self, node: V1Node) -> bool:
        return False

    def instance_metadata(self, node: V1Node) -> InstanceMetadata:
        assert node.metadata is not None
        return InstanceMetadata(
            provider_id=f"tiny://{node.metadata.name}",
            node_addresses=[V1NodeAddress(type="InternalIP", address="10.0.0.1")],
        )


class Idle:
    """A controller that does what its test says."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.returns = False
        self.hang: threading.Event | None = None
        self.ill = False
        self.started = threading.Event()

    def run(self, stop: StopSignal) -> None:
        self.started.set()
        if self.error is not None:
            raise self.error
        if self.returns:
            return
        stop.wait()
        if self.hang is not None:
            self.hang.wait(60)

    def health(self) -> list[tuple[str, bool, str]]:
        return [("queue", not self.ill, "wedged" if self.ill else "fine")]


class Run:
    """A manager in a thread."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self.stop = threading.Event()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.manager.run(self.stop)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    def end(self, timeout: float = 20.0) -> BaseException | None:
        """Stop it and return what it raised."""
        self.stop.set()
        return self.ended(timeout)

    def ended(self, timeout: float = 20.0) -> BaseException | None:
        self._thread.join(timeout)
        assert not self._thread.is_alive(), "the manager did not end"
        return self.error

    def ask(self, path: str) -> tuple[int, str]:
        eventually(lambda: self.manager.address)
        assert self.manager.address is not None
        host, port = self.manager.address
        try:
            with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


@pytest.fixture
def away(tmp_path: Path) -> Iterator[EmbeddedAPIServer]:
    """A server that does not answer yet."""
    server = EmbeddedAPIServer()
    server.start()
    server.write_kubeconfig(tmp_path / "kubeconfig")
    server.stop()
    yield server
    server.stop()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a manager against the server whose kubeconfig is in the test's folder, and ends it
    after the test."""
    made: list[Run] = []

    def start(
        provider: Interface | None = None,
        *controllers: Idle,
        given: Options | None = None,
        kubeconfig: Path | None = None,
        **more: Any,
    ) -> Run:
        entries = [
            ControllerEntry(name=f"idle-{number}", construct=lambda _context, one=one: one)  # type: ignore[misc]  # bound now
            for number, one in enumerate(controllers)
        ]
        clients = ClientBuilder.from_options(kubeconfig=str(kubeconfig or tmp_path / "kubeconfig"))
        more.setdefault("catalog", entries or CATALOG)
        made.append(Run(Manager(given or options(), provider or Tiny(), clients, **more)))
        return made[-1]

    yield start
    for run in made:
        run.end()


def options(**changes: Any) -> Options:
    settings: dict[str, Any] = {
        "cloud_provider": "tiny",
        "leader_election": LeaderElectionOptions(leader_elect=False),
        "health_bind_address": "127.0.0.1:0",
    }
    return Options(ManagerOptions(**(settings | changes)), {ServingOptions: ServingOptions(secure_port=0)})


def test_nodes_are_initialised_health_tells_and_a_stop_leaves_nothing(api: Cluster, start: Start) -> None:
    for number in range(3):
        api.create(NODES, small_node(f"n{number}"))
    provider = Tiny()
    run = start(provider, kubeconfig=api.kubeconfig)
    eventually(lambda: all(node["spec"].get("providerID") for node in api.items(NODES)))
    eventually(lambda: run.ask("/readyz")[0] == 200)
    eventually(lambda: run.ask("/healthz")[0] == 200)
    text = run.ask("/healthz?verbose")[1]
    assert "[+]informer-nodes ok" in text
    assert "[+]cloud-node-controller-Nodes ok" in text
    assert "[+]cloud-calls ok" in text
    assert run.ask("/livez") == (200, "ok")
    metrics = run.ask("/metrics")[1]
    assert 'running_managed_controllers{manager="cloud-controller-manager",name="cloud-node-controller"} 1.0' in metrics
    assert 'cloudprovider_api_requests_total{method="instance_metadata"' in metrics
    assert provider.clients is not None
    assert provider.clients.cluster_identity()
    assert provider.listers is not None
    eventually(lambda: provider.listers is not None and provider.listers.nodes.get("n1") is not None)
    eventually(lambda: all(api.events_of(f"n{number}") for number in range(3)))
    assert run.end() is None
    assert provider.stop is not None
    assert provider.stop.is_set()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(run.manager.address or ("", 0), timeout=2)


@pytest.mark.row("N5")
def test_a_provider_that_hangs_while_starting_does_not_hold_up_a_stop(
    embedded: EmbeddedAPIServer, start: Start
) -> None:
    hung = Tiny()
    hung.hang = threading.Event()
    run = start(hung)
    eventually(lambda: hung.clients is not None)
    assert run.ask("/readyz")[0] == 500
    assert run.ask("/livez")[0] == 200
    assert "did not end in time" in str(run.end())  # the provider hangs until the next line
    hung.hang.set()


def test_a_stop_while_waiting_for_the_api_server_ends_at_once(away: EmbeddedAPIServer, start: Start) -> None:
    run = start()
    eventually(lambda: "nodes" in run.manager.health.unsynced())
    assert run.end() is None


@pytest.mark.parametrize("error", [KeyError("oops"), None])
def test_a_controller_that_ends_by_itself_ends_the_manager(
    error: Exception | None, embedded: EmbeddedAPIServer, start: Start
) -> None:
    well, ill = Idle(), Idle()
    ill.error, ill.returns = error, error is None
    ended = start(None, well, ill).ended()
    assert isinstance(ended, ManagerError)
    assert "idle-1" in str(ended)
    assert ("KeyError" in str(ended)) == (error is not None)
    assert ended.__cause__ is error


def test_controllers_start_one_after_the_other_when_asked_to(
    embedded: EmbeddedAPIServer, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    many = [Idle(), Idle(), Idle()]
    run = start(None, *many, given=options(controller_start_interval=0.3))

    def started() -> list[float]:
        return [record.created for record in caplog.records if record.message.startswith("started idle-")]

    eventually(lambda: len(started()) == 3)  # a controller may run before its line is in the log
    assert all(later - earlier >= 0.3 for earlier, later in itertools.pairwise(started()))
    assert all(one.started.is_set() for one in many)
    assert run.end() is None


@pytest.mark.parametrize("dies", [True, False])
def test_nothing_waits_for_the_next_controller_to_start(dies: bool, embedded: EmbeddedAPIServer, start: Start) -> None:
    first, never = Idle(), Idle()
    first.error = KeyError("oops") if dies else None
    run = start(None, first, never, given=options(controller_start_interval=60))
    assert first.started.wait(10)
    assert isinstance(run.ended() if dies else run.end(), ManagerError if dies else type(None))
    assert not never.started.is_set()


@pytest.mark.row("O1")
def test_a_death_is_told_at_once_and_not_after_the_drain(
    embedded: EmbeddedAPIServer, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    ill, slow = Idle(), Idle()
    ill.error, slow.hang = KeyError("oops"), threading.Event()
    run = start(None, slow, ill)
    eventually(lambda: "idle-1 died: KeyError: 'oops'; stopping everything else" in caplog.text)
    told = re.compile(r"\[-\]idle-1 failed: died: KeyError: 'oops'; since ")
    try:  # soon, and not after the drain, which ends with `hang`
        assert all(eventually(lambda path=path: told.search(run.ask(path)[1])) for path in ("/healthz", "/livez"))  # type: ignore[misc]  # bound now
    finally:
        slow.hang.set()
    assert isinstance(run.ended(), ManagerError)


def test_threads_lost_beyond_the_bound_end_the_manager(
    embedded: EmbeddedAPIServer, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start(None, idle := Idle())
    idle.started.wait(10)
    monkeypatch.setattr(run.manager.health, "fatal", lambda: "129 provider calls never came back")
    ended = run.ended()
    assert isinstance(ended, ManagerError)
    assert "129 provider calls never came back" in str(ended)


@pytest.mark.row("M1")
def test_a_controller_that_does_not_drain_is_left_behind_in_time(
    embedded: EmbeddedAPIServer, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    slow, quick = Idle(), Idle()
    slow.hang = threading.Event()
    run = start(None, slow, quick, given=options(shutdown_drain_timeout=0.5))
    eventually(lambda: run.ask("/readyz")[0] == 200)
    assert str(run.end()) == "work is left behind that did not end in time: idle-0"
    assert "work that has not ended: idle-0" in caplog.text
    slow.hang.set()


class Stuck(ControllerBase):
    """A controller with one key, whose work does not end: a write that the API server holds."""

    NAME = CLIENT = "stuck"

    def __init__(self, context: Context) -> None:
        @attrs.frozen
        class Given:
            drain_timeout: float = context.drain

        super().__init__(context.clients, Given(), context.metrics, context.clock)
        self.entered, self.hang = threading.Event(), threading.Event()
        self._keys = self._queue("Stuck")
        self._add_worker(self._keys, self._work, threads=1, failures=FailureHandling(noun="node"))

    def _begin(self) -> None:
        self._keys.add("n1")

    def _work(self, _key: str) -> None:
        self.entered.set()
        self.hang.wait(60)


@pytest.mark.row("O8")
def test_a_key_whose_work_does_not_end_is_work_left_behind(
    embedded: EmbeddedAPIServer, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[Stuck] = []

    def construct(context: Context) -> Stuck:
        made.append(Stuck(context))
        return made[0]

    entries = [ControllerEntry(name="stuck", construct=construct)]
    run = start(None, given=options(shutdown_drain_timeout=3.5), catalog=entries)
    eventually(lambda: made and made[0].entered.is_set())
    try:
        assert str(run.end()) == "work is left behind that did not end in time: node n1 (Stuck)"
    finally:
        made[0].hang.set()
    assert "nothing left behind" not in caplog.text


@pytest.mark.parametrize(("given", "left"), [(30.0, 27.0), (2.0, 1.0), (0.0, 0.0)])
def test_controllers_drain_for_at_least_half_of_the_time(
    embedded: EmbeddedAPIServer, start: Start, given: float, left: float
) -> None:
    seen: list[float] = []

    def construct(context: Context) -> Idle:
        seen.append(context.drain)
        return Idle()

    entries = [ControllerEntry(name="idle", construct=construct)]
    run = start(None, given=options(shutdown_drain_timeout=given), catalog=entries)
    eventually(lambda: seen)
    run.end()
    assert seen == [left]


class _Bare(Interface):
    def provider_name(self) -> str:
        return "bare"


class _Balancers(_Bare):
    """A provider that offers load balancers and nothing else."""

    def __init__(self) -> None:
        self._cloud = FakeCloud()

    def load_balancer(self) -> LoadBalancer | None:
        return self._cloud.load_balancer()


def test_a_provider_of_load_balancers_alone_needs_no_flags(
    embedded: EmbeddedAPIServer, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    service = {"type": "LoadBalancer", "ports": [{"port": 80, "protocol": "TCP"}]}
    embedded.create(
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "default"}, "spec": service}
    )
    run = start(_Balancers())
    eventually(lambda: embedded.get("services", "web", "default")["status"]["loadBalancer"].get("ingress"))
    assert run.end() is None
    assert "cloud-node-controller is off: provider bare offers no instances" in caplog.text


def test_controllers_get_what_they_are_built_from(embedded: EmbeddedAPIServer, start: Start) -> None:
    seen: list[Context] = []

    def construct(context: Context) -> Idle:
        seen.append(context)
        return Idle()

    limits = CloudCallOptions(timeout=7.0, concurrency=3, qps=2.0, burst=5)
    given = attrs.evolve(options(), own={**options().own, CloudCallOptions: limits})
    run = start(given=given, catalog=[ControllerEntry(name="own", construct=construct)])
    [context] = eventually(lambda: seen)
    assert context.metrics is run.manager.metrics
    assert context.cloud.provider_name == "tiny"
    assert context.cloud.options == limits
    assert 0 < context.drain < 30
