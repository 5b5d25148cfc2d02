"""A lease that is lost while there is work: nothing more is written, nothing is waited for. In this
process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import CoreV1Api

from cloudprovider import current_call
from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.testing.waiting import eventually
from controllers.app import Context, ControllerEntry, Manager, ManagerError, NeverLed, hosting
from controllers.registration.options import LeaderElectionOptions
from controllers.runtime.api import MERGE_PATCH, ClientBuilder
from controllers.runtime.cache import NODES
from controllers.runtime.election import LeaseLost, LeaseSettings
from tests.integration.test_manager import Idle, Tiny, options
from tests.support.nodes import small_node
from tests.support.there import there

LEASE = "cloud-controller-manager"
QUICK = LeaderElectionOptions(lease_duration=3.0, renew_deadline=2.0, retry_period=0.2)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedAPIServer]:
    with EmbeddedAPIServer() as embedded:
        embedded.write_kubeconfig(tmp_path / "kubeconfig")
        embedded.create(small_node("n0"))
        yield embedded


def take(server: EmbeddedAPIServer) -> None:
    """As another manager does that has waited for the lease."""
    server.patch("leases", LEASE, {"spec": {"holderIdentity": "other"}}, namespace="kube-system")


def holder(server: EmbeddedAPIServer) -> str:
    return str(server.get("leases", LEASE, "kube-system")["spec"]["holderIdentity"])


def renewed(server: EmbeddedAPIServer) -> str:
    return str(server.get("leases", LEASE, "kube-system")["spec"]["renewTime"])


def undrained() -> Idle:
    """A controller that does not drain, until its `hang` is set."""
    made = Idle()
    made.hang = threading.Event()
    return made


class Managed:
    """A manager of this provider with this one controller, and the context that it got."""

    def __init__(self, folder: Path, controller: Idle, provider: Tiny | None = None, **changes: Any) -> None:
        self.contexts: list[Context] = []
        self.clients = ClientBuilder.from_options(kubeconfig=str(folder / "kubeconfig"))

        def construct(context: Context) -> Idle:
            self.contexts.append(context)
            return controller

        entry = ControllerEntry(name="busy", construct=construct)
        given = options(leader_election=QUICK, **changes)
        self.manager = Manager(given, provider or Tiny(), self.clients, catalog=[entry])


@pytest.mark.row("M2")
def test_everything_is_refused_and_nothing_waited_for(server: EmbeddedAPIServer, tmp_path: Path) -> None:
    provider, busy = Tiny(), undrained()
    managed = Managed(tmp_path, busy, provider, shutdown_drain_timeout=600.0)
    told: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        run = pool.submit(managed.manager.run, threading.Event(), on_lost=lambda failure: told.append(str(failure)))
        assert busy.started.wait(20)
        [context] = managed.contexts
        assert provider.clients is not None
        vendor = CoreV1Api(provider.clients.client("tiny"))
        label = {"metadata": {"labels": {"by": "tiny"}}}
        vendor.patch_node("n0", label)
        assert context.cloud.call("create_route", lambda: 7, key="x", mutating=True) == 7

        cancelled = threading.Event()

        def hang() -> None:
            if current_call().cancelled.wait(300):
                cancelled.set()

        under_way = pool.submit(context.cloud.call, "create_route", hang, key="y", mutating=True)
        take(server)
        error = run.exception(60)  # and not 600: nothing drains
        assert isinstance(error, ManagerError)
        assert str(error) == (
            f"leaderelection lost: other has taken the lease kube-system/{LEASE}; ended without draining"
        )
        assert set(told) == {str(error)}, "a program ends right there"
        assert cancelled.wait(5)
        under_way.exception(5)
        with pytest.raises(LeaseLost, match="other has taken the lease"):
            managed.clients.guard("PATCH", "/api/v1/nodes/n0")  # type: ignore[misc]  # the manager has set it
        with pytest.raises(Exception, match=r"closed|not sent"):
            vendor.patch_node("n0", {"metadata": {"labels": {"by": "nobody"}}})
        assert server.get("nodes", "n0")["metadata"]["labels"]["by"] == "tiny"
        assert holder(server) == "other"
        there(busy.hang).set()


PROGRAM = """
import sys
from pathlib import Path
from cloudprovider import InstancesV2, Interface, current_call, register_cloud_provider
from controllers.app import main

class Slow(Interface, InstancesV2):
    def provider_name(self): return "slow"
    def instances_v2(self): return self
    def instance_exists(self, node): return True
    def instance_shutdown(self, node): return False
    def instance_metadata(self, node):
        Path("called").touch()
        current_call().cancelled.wait(300)
        Path("went-on").touch()

register_cloud_provider("slow", lambda config: Slow())
sys.exit(main(sys.argv[1:]))
"""

HOSTED = (
    PROGRAM.partition("register_cloud_provider(")[0]
    + f"""
from controllers.app import hosting, run_until_signal
from controllers.node.controller import CloudNodeController
from controllers.runtime.election import LeaseSettings

def run(stop):
    settings = LeaseSettings(name="{LEASE}", lease_duration=3, renew_deadline=2, retry_period=0.2)
    with hosting(Slow(), sys.argv[1], election=settings, stop=stop) as host:
        host.run(CloudNodeController(host.clients, host.informers, host.cloud), stop)

sys.exit(run_until_signal(run, drain=30))
"""
)


FLAGS = (
    "--cloud-provider=slow",
    "--secure-port=0",
    "--leader-elect-lease-duration=3s",
    "--leader-elect-renew-deadline=2s",
    "--leader-elect-retry-period=200ms",
)


def started(program: str, arguments: Sequence[str], folder: Path) -> subprocess.Popen[str]:
    """The program, with the pipe of its standard error, which nobody reads yet."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments], cwd=folder, env=environment, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.row("M2", "K20")
@pytest.mark.parametrize("hosted", [False, True])
def test_a_program_ends_before_a_call_that_is_under_way_can_go_on(
    server: EmbeddedAPIServer, tmp_path: Path, hosted: bool
) -> None:
    kubeconfig = str(tmp_path / "kubeconfig")
    arguments = [kubeconfig] if hosted else [*FLAGS, f"--kubeconfig={kubeconfig}"]
    with started(HOSTED if hosted else PROGRAM, arguments, tmp_path) as process:
        try:
            eventually((tmp_path / "called").exists, 60)
            take(server)
            _, log = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 1
    if not hosted:  # which configures no log
        assert "ended without draining" in log
    assert not (tmp_path / "went-on").exists()


@pytest.mark.row("M2", "K20")
@pytest.mark.parametrize("hosted", [False, True])
def test_no_call_goes_on_while_the_process_ends(server: EmbeddedAPIServer, tmp_path: Path, hosted: bool) -> None:
    """The end takes a moment: last words, a credential plugin. Nothing else acts on the loss
    meanwhile: a call that is cancelled may go on, and still change the cloud."""
    ends, let_go, calls, cancelled = (threading.Event() for _ in range(4))
    provider, busy = Tiny(), undrained()

    def on_lost(failure: ManagerError) -> None:
        ends.set()
        assert let_go.wait(30)

    def under_way() -> None:
        calls.set()
        if current_call().cancelled.wait(60):
            cancelled.set()

    def run() -> None:
        if not hosted:
            managed = Managed(tmp_path, busy, provider)
            made = pool.submit(lambda: managed.manager.run(threading.Event(), on_lost=on_lost))
            assert busy.started.wait(20)
            pool.submit(managed.contexts[0].cloud.call, "instance_exists", under_way, key="x")
            made.result()
        settings = LeaseSettings(name=LEASE, lease_duration=3.0, renew_deadline=2.0, retry_period=0.2)
        with hosting(provider, str(tmp_path / "kubeconfig"), election=settings, on_lost=on_lost) as host:
            pool.submit(host.cloud.call, "instance_exists", under_way, key="x")
            host.run(busy, threading.Event())

    with ThreadPoolExecutor(4) as pool:
        error = pool.submit(run)
        assert calls.wait(20)
        take(server)
        assert ends.wait(10)
        assert not cancelled.wait(1.2), "the call went on before the process had ended"
        let_go.set()
        assert "leaderelection lost: other has taken" in str(error.exception(20))
        there(busy.hang).set()


CHATTY = """
import logging, threading
def chatter():
    while True:
        logging.getLogger("acme").info("retrying a request %s", "x" * 100)
threading.Thread(target=chatter, daemon=True).start()
"""
HANGS = """
import logging, time
class Hangs(logging.Handler):
    def emit(self, record): time.sleep(0 if record.levelno < logging.ERROR and "signal" not in record.msg else 1000)
    def flush(self): time.sleep(1000)
    def close(self): time.sleep(1000)
logging.getLogger().addHandler(Hangs())
"""


@pytest.mark.row("K19")
@pytest.mark.parametrize("log", [CHATTY, HANGS])
@pytest.mark.parametrize("how", ["lease", "signals"])
def test_a_log_that_hangs_holds_up_no_end(server: EmbeddedAPIServer, tmp_path: Path, log: str, how: str) -> None:
    """Nobody reads standard error, and the pipe is full; or a provider's own handler never
    returns."""
    first = '        Path("called").touch()\n'
    more = "".join(f"        {line}\n" for line in log.strip().splitlines())
    kubeconfig = str(tmp_path / "kubeconfig")
    with started(PROGRAM.replace(first, more + first), [*FLAGS, f"--kubeconfig={kubeconfig}"], tmp_path) as process:
        try:
            eventually((tmp_path / "called").exists, 60)
            time.sleep(1.0)  # real time, in which the pipe fills
            before = renewed(server)
            eventually(lambda: renewed(server) > before)
            if how == "lease":
                take(server)
            else:
                process.send_signal(signal.SIGTERM)
                time.sleep(0.2)
                process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 1  # the log hangs for 1000 s, or for ever
        finally:
            process.kill()
    assert not (tmp_path / "went-on").exists()


@pytest.mark.row("M2")
def test_a_loss_while_draining_ends_the_drain(server: EmbeddedAPIServer, tmp_path: Path) -> None:
    busy, stop = undrained(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(Managed(tmp_path, busy).manager.run, stop)
        assert busy.started.wait(20)
        stop.set()
        before = renewed(server)
        eventually(lambda: renewed(server) > before)  # it is renewed while it drains
        take(server)
        error = run.exception(10)
        assert isinstance(error, ManagerError)
        assert "leaderelection lost" in str(error)
        there(busy.hang).set()


@pytest.mark.row("M2", "O8")
@pytest.mark.parametrize("mutating", [True, False])
def test_a_drain_that_leaves_a_change_of_the_cloud_behind_does_not_release_the_lease(
    server: EmbeddedAPIServer, tmp_path: Path, mutating: bool
) -> None:
    idle, stop, hangs, let_go = Idle(), threading.Event(), threading.Event(), threading.Event()

    def hang() -> None:
        hangs.set()
        let_go.wait(60)

    managed = Managed(tmp_path, idle, shutdown_drain_timeout=1.0)
    with ThreadPoolExecutor(2) as pool:
        run = pool.submit(managed.manager.run, stop)
        assert idle.started.wait(20)
        [context] = managed.contexts
        call = pool.submit(context.cloud.call, "create_route", hang, key="x", mutating=mutating)
        assert hangs.wait(10)
        stop.set()
        with pytest.raises(ManagerError, match=r"work is left behind .*(cloud calls|a call for x)"):
            run.result(20)  # exit code 1, whatever the call does
        assert bool(holder(server)) is mutating
        let_go.set()
        call.exception(10)


@pytest.mark.row("M1")
def test_a_program_of_one_controller_takes_part_too(server: EmbeddedAPIServer, tmp_path: Path) -> None:
    def settings() -> LeaseSettings:
        return LeaseSettings(name=LEASE, lease_duration=3.0, renew_deadline=2.0, retry_period=0.2)

    kubeconfig, never = str(tmp_path / "kubeconfig"), threading.Event()
    with hosting(Tiny(), kubeconfig, election=settings(), warm=[NODES]) as host:
        assert host.informers.wait_for_sync(never, 10)
        host.clients.rest("own").request("PATCH", "/api/v1/nodes/n0", body={}, content_type=MERGE_PATCH)
        leader = holder(server)
        stop = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            standby = pool.submit(lambda: hosting(Tiny(), kubeconfig, election=settings(), stop=stop).__enter__())
            time.sleep(0.5)  # real time, in which it must not lead
            assert not standby.done()
            stop.set()
            assert isinstance(standby.exception(10), NeverLed)
        assert holder(server) == leader
    assert holder(server) == ""

    busy, told = undrained(), list[ManagerError]()
    with hosting(Tiny(), kubeconfig, election=settings(), on_lost=told.append) as host:
        take(server)
        with pytest.raises(ManagerError, match="leaderelection lost: other has taken"):
            host.run(busy, never)
    there(busy.hang).set()
    assert [str(failure) for failure in told] == [
        f"leaderelection lost: other has taken the lease kube-system/{LEASE}; ended without draining"
    ]
