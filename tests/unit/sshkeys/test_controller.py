"""Triggers, queue and reconciler over a file, on a moved clock: what costs a call, what is told,
what is shown."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, cast

import pytest
from kubernetes.client.models.v1_node import V1Node

from cloudprovider import CloudProviderError, Interface, NotImplementedByProvider, SSHKeys
from controllers.cloudcalls import CloudCalls
from controllers.runtime.metrics import Metrics
from controllers.sshkeys.controller import SSHKeyController, has_joined
from controllers.sshkeys.registration import SSHKeyOptions
from tests.support.clock import FakeClock
from tests.support.controllers import Recorder
from tests.support.sshkeys import OTHER, PRIVATE, PUBLIC, SHOWN, fingerprint, leaks

PREFIXES = ("acme://",)


def node(name: str, uid: str = "1", provider_id: str = "") -> V1Node:
    made = V1Node.from_dict({"metadata": {"name": name, "uid": uid}, "spec": {"providerID": provider_id}})
    assert made is not None
    return made


class Cloud(Interface, SSHKeys):
    """Notes what is installed; fails as it is told."""

    def __init__(self) -> None:
        self.installed: list[tuple[str, str]] = []
        self.error: Exception | None = None

    def provider_name(self) -> str:
        return "acme"

    def instances_v2(self) -> Any:
        return self

    def add_ssh_key_to_all_instances(self, user: str, key_data: bytes) -> None:
        if self.error is not None:
            raise self.error
        self.installed.append((user, key_data.decode()))


class World:
    """The controller without its threads: `work` works its queue off, `pass_` moves the clock."""

    def __init__(self, path: Path, cloud: Interface | None = None, **options: Any) -> None:
        self.path, self.clock, self.metrics = path, FakeClock(), Metrics()
        self.cloud = Cloud()
        self.recorder = Recorder()
        self.events = self.recorder.events
        self.calls = CloudCalls(cloud or self.cloud)
        given = SSHKeyOptions(**{"ssh_user": "ada", "ssh_keyfile": str(path), **options})
        me = cast(Any, self)
        self.controller = SSHKeyController(me, me, self.calls, options=given, metrics=self.metrics, clock=self.clock)
        self.triggers = self.controller._triggers
        self.queue = self.triggers._queue
        self.controller._recorder.event = self.recorder.event  # type: ignore[method-assign]  # the one seam to the API server

    @property
    def installed(self) -> list[tuple[str, str]]:
        found, self.cloud.installed = self.cloud.installed, []
        return found

    def rest(self, name: str) -> Any:
        return None

    def informer(self, resource: Any) -> Any:
        return None

    def work(self) -> None:
        reconciler, worker = self.controller._reconciler, cast(Any, self.controller._workers[0])
        while (key := self.queue.get(timeout=0)) is not None:
            worker._requeuer.run(key, reconciler.reconcile, key)

    def pass_(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.work()

    def gauge(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"ssh_key_controller_{name}", labels)

    def states(self) -> dict[str, float | None]:
        return {state: self.gauge("keys", state=state) for state in ("waiting", "installed", "failing")}


@pytest.fixture
def world(tmp_path: Path) -> World:
    (tmp_path / "keys.pub").write_text(f"{PUBLIC} ada@desk\n{OTHER}\n")
    return World(tmp_path / "keys.pub")


def test_every_key_is_installed_at_the_start_without_its_comment(world: World) -> None:
    assert world.states() == {"waiting": 2, "installed": 0, "failing": 0}
    world.triggers.install_all()
    world.work()
    assert sorted(world.installed) == [("ada", PUBLIC), ("ada", OTHER)]
    assert world.states() == {"waiting": 0, "installed": 2, "failing": 0}
    assert world.gauge("last_success_timestamp_seconds") == world.clock.time()


def test_a_hundred_nodes_that_join_cost_one_call_for_each_key(world: World) -> None:
    for number in range(100):
        world.triggers.on_add(node(f"n{number}", f"u{number}"), False)
        world.pass_(0.09)
    assert world.installed == []
    world.pass_(1.1)
    assert len(world.installed) == 2
    for number in range(100):  # the cloud-node controller gives them their IDs; then their kubelets report
        before, after = node(f"n{number}", f"u{number}"), node(f"n{number}", f"u{number}", f"acme://{number}")
        world.triggers.on_update(before, after)
        world.triggers.on_update(after, node(f"n{number}", f"u{number}", f"acme://{number}"))
    world.pass_(10)
    assert len(world.installed) == 2
    world.pass_(100)
    assert world.installed == [], "the reports of the kubelets cost nothing"


@pytest.mark.parametrize(
    ("old", "new", "joined"),
    [
        (None, node("a"), True),
        (None, node("a", provider_id="acme://1"), True),
        (None, node("a", provider_id="other://1"), False),
        (node("a"), node("a"), False),
        (node("a"), node("a", provider_id="acme://1"), True),
        (node("a"), node("a", provider_id="other://1"), False),
        (node("a", provider_id="acme://1"), node("a", provider_id="acme://1"), False),
        (node("a", provider_id="acme://1"), node("a", "2", "acme://1"), True),
    ],
)
def test_which_nodes_have_joined(old: V1Node | None, new: V1Node, joined: bool) -> None:
    assert has_joined(old, new, PREFIXES) is joined


def test_the_nodes_of_the_first_listing_cost_nothing_besides_the_start(world: World) -> None:
    world.triggers.on_add(node("a"), True)
    world.pass_(60)
    assert world.installed == []


def test_nodes_do_not_hasten_a_key_that_fails(world: World) -> None:
    while world.queue.add_rate_limited(SHOWN) < 30:
        world.clock.advance(30)
        assert world.queue.get(timeout=0) == SHOWN
        world.queue.done(SHOWN)
    world.triggers.on_add(node("new"), False)
    world.pass_(15)
    assert world.installed == [("ada", OTHER)]
    world.pass_(300)
    assert world.installed == [("ada", PUBLIC)]


def test_a_node_that_joins_while_a_failed_key_is_tried_again_gets_it_too(world: World) -> None:
    """The call under way may have listed the machines before the new one was there."""
    world.path.write_text(PUBLIC)
    for _ in range(2):
        world.controller.look()
    world.work()
    assert world.installed == [("ada", PUBLIC)]
    world.queue.add_rate_limited(SHOWN)
    world.clock.advance(2)
    assert world.queue.get(timeout=0) == SHOWN
    world.triggers.on_add(node("new"), False)
    world.queue.forget(SHOWN)  # the call succeeded, without the new machine
    world.queue.done(SHOWN)
    world.pass_(10)
    assert world.installed == [("ada", PUBLIC)]


def test_a_failure_is_told_and_tried_again(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.cloud.error = CloudProviderError(f"bad request: {PUBLIC} and {OTHER}")
    world.triggers.install_all()
    with caplog.at_level(logging.DEBUG):
        world.work()
        assert world.states() == {"waiting": 0, "installed": 0, "failing": 2}
        assert {(one.name, one.reason) for one in world.events} == {("kube-system", "FailedToInstallSSHKey")}
        assert (
            f"ssh-ed25519 {SHOWN} of user ada may be missing on some instances: bad request" in world.events[0].message
        )
        world.cloud.error = None
        world.pass_(300)
    assert sorted(world.installed) == [("ada", PUBLIC), ("ada", OTHER)]
    assert world.states() == {"waiting": 0, "installed": 2, "failing": 0}
    assert f"installed the SSH key ssh-ed25519 {SHOWN} of user ada" in caplog.text


def test_a_changed_file_is_installed_and_what_left_it_is_told(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.path.write_text(OTHER)
    world.controller.look()
    world.work()
    assert world.installed == []
    with caplog.at_level(logging.INFO):
        world.controller.look()
    world.work()
    assert world.installed == [("ada", OTHER)]
    assert f"no longer in {world.path}, and not removed from any machine: {SHOWN}" in caplog.text
    assert world.states() == {"waiting": 0, "installed": 1, "failing": 0}


def test_a_file_that_becomes_useless_is_an_event_and_a_gauge(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.path.write_text(PRIVATE)
    with caplog.at_level(logging.DEBUG):
        for _ in range(4):
            world.controller.look()
    [(name, _, reason, message)] = world.events
    assert (name, reason) == ("kube-system", "InvalidSSHKeyFile")
    assert "it is a private key" in message
    assert leaks(message, caplog.text) == []
    assert world.gauge("keyfile_usable") == 0
    world.triggers.install_all()
    world.work()
    assert len(world.installed) == 2, "the keys stay as they were"
    world.path.write_text(PUBLIC)
    for _ in range(2):
        world.controller.look()
    assert world.gauge("keyfile_usable") == 1


def test_a_key_that_left_the_file_while_it_failed_is_forgotten(world: World) -> None:
    world.cloud.error = CloudProviderError("no")
    world.triggers.install_all()
    world.work()
    world.path.write_text(OTHER)
    for _ in range(2):
        world.controller.look()
    world.cloud.error = None
    world.pass_(600)
    assert {line for _, line in world.installed} == {OTHER}
    assert world.queue.num_requeues(fingerprint(PUBLIC)) == 0


def test_a_provider_that_cannot_is_told_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.cloud.error = NotImplementedByProvider("keys come with the image")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            world.triggers.install_all()
            world.work()
    assert caplog.text.count("the provider installs no SSH keys: keys come with the image") == 1
    assert world.events == []


def test_what_it_cannot_be_built_with(tmp_path: Path) -> None:
    path = tmp_path / "keys.pub"
    path.write_text(PUBLIC)

    class Bare(Interface):
        def provider_name(self) -> str:
            return "bare"

    with pytest.raises(ValueError, match="cloud provider 'bare' installs no SSH keys"):
        World(path, Bare())
    for missing in ("ssh_user", "ssh_keyfile"):
        with pytest.raises(ValueError, match="Fix: give --ssh-user and --ssh-keyfile"):
            World(path, **cast(Any, {missing: ""}))
    path.write_text(PRIVATE)
    with pytest.raises(ValueError, match="it is a private key") as caught:
        World(path)
    assert leaks(str(caught.value)) == []


@pytest.mark.parametrize("user", ["-ada", "a b", "ada:x", "../ada", "0", "ä", "a" * 33, "ada\n"])
def test_what_is_no_user(user: str) -> None:
    with pytest.raises(ValueError, match=r"--ssh-user\): must be a user's name"):
        SSHKeyOptions(ssh_user=user)
