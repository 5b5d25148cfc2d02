"""Which machine a node is, and what is never called gone: listings that are partial, refused or
misunderstood."""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from doubles import SECRET, Double, Server, served
from kubernetes.client.models import V1Node, V1NodeAddress, V1NodeStatus
from libcloud.common.exceptions import BaseHTTPError
from libcloud.common.types import InvalidCredsError
from libcloud.compute.types import NodeState
from libcloud_provider import profiles
from libcloud_provider.config import Config
from libcloud_provider.connections import Drivers
from libcloud_provider.errors import answered
from libcloud_provider.provider import RETRY_VARIABLE, Libcloud
from libcloudlab import config_of, redirected

from cloudprovider import (
    Call,
    CallDeadlineExceeded,
    CloudConfig,
    CloudProviderError,
    InstanceNotFound,
    InstanceState,
    Throttled,
    call_scope,
)
from cloudprovider.errors import InvalidConfig
from cloudprovider.testing.conformance import new_node


@pytest.fixture(scope="module")
def shared() -> Iterator[Double]:
    with served(Double()) as double, redirected(double):
        yield double


@pytest.fixture
def double(shared: Double) -> Double:
    """An empty cloud."""
    for part in (shared.servers, shared.answers, shared.hidden, shared.requests):
        part.clear()
    return shared


@pytest.fixture
def droplets(double: Double, tmp_path: Path) -> Libcloud:
    return Libcloud(Config.load(config_of("digitalocean", double, tmp_path), environ={}))


def state(provider: Libcloud, *nodes: V1Node) -> list[InstanceState | CloudProviderError]:
    return list(provider.instances_batch().instances_state(nodes).values())


def with_address(name: str, address: str) -> V1Node:
    node = new_node(name)
    node.status = V1NodeStatus(addresses=[V1NodeAddress(type="InternalIP", address=address)])
    return node


def dummy(tmp_path: Path, **changes: Any) -> Libcloud:
    """libcloud's own dummy: machines dummy-0 to dummy-6; the ID of dummy-1 is 1. `changes` are
    of its entry in the table."""
    config = tmp_path / "dummy.yaml"
    config.write_text("driver: dummy\narguments: {creds: 7}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(profiles.PROFILES, "dummy", evolve(profiles.PROFILES["dummy"], **changes))
        return Libcloud(Config.load(CloudConfig.read(config), environ={}))


def test_one_listing_answers_for_all_nodes_page_by_page(double: Double, droplets: Libcloud) -> None:
    nodes = [new_node(double.create(f"n-{number}").name) for number in range(5)]
    assert state(droplets, *nodes) == [InstanceState.RUNNING] * 5
    assert [one.split("?")[0] for one in double.requests] == ["GET /v2/droplets"] * 3


def test_a_machine_that_a_listing_lacks_is_asked_for_by_its_id(double: Double, droplets: Libcloud) -> None:
    lacking, gone = double.create("lacking"), double.create("gone")
    double.hidden.add(lacking.id)
    del double.servers[gone.id]
    nodes = [new_node("a", f"digitalocean://{lacking.id}"), new_node("b", f"digitalocean://{gone.id}")]
    here, missing = state(droplets, *nodes)
    assert here is InstanceState.RUNNING
    assert isinstance(missing, InstanceNotFound)
    assert [one.split("?")[0] for one in double.requests[1:]] == [
        f"GET /v2/droplets/{one.id}" for one in (lacking, gone)
    ]


@pytest.mark.parametrize(("driver", "prefix"), [("linode", "linode://"), ("openstack", "openstack:///")])
def test_other_drivers_ask_for_single_machines_too(double: Double, tmp_path: Path, driver: str, prefix: str) -> None:
    provider = Libcloud(Config.load(config_of(driver, double, tmp_path), environ={}))
    servers = [double.create(f"n-{number}") for number in range(4)]
    double.hidden.add(servers[3].id)
    double.stop(servers[2].id)
    nodes = [new_node(f"node-{one.id}", f"{prefix}{one.id}") for one in servers]
    *found, gone = state(provider, *nodes, new_node("gone", f"{prefix}77"))
    runs, off = InstanceState.RUNNING, InstanceState.SHUTDOWN
    assert found == [runs, runs, off, runs]
    assert isinstance(gone, InstanceNotFound)


@pytest.mark.parametrize("broken", [(500, "{}"), (502, "<html>"), (200, "<html>"), (200, "[]"), (403, "{}")])
def test_a_broken_question_about_one_machine_is_unknown_for_it_alone(
    double: Double, droplets: Libcloud, broken: tuple[int, str]
) -> None:
    there, lacking = double.create("there"), double.create("lacking")
    double.hidden.add(lacking.id)
    double.answers[f"/v2/droplets/{lacking.id}"] = broken
    nodes = [new_node("a", f"digitalocean://{there.id}"), new_node("b", f"digitalocean://{lacking.id}")]
    here, unknown = state(droplets, *nodes)
    assert here is InstanceState.RUNNING
    assert isinstance(unknown, CloudProviderError)
    assert not isinstance(unknown, InstanceNotFound)


@pytest.mark.parametrize("broken", [(500, "{}"), (200, "<html>"), (200, "null"), (404, "{}"), (401, "{}")])
def test_a_broken_page_fails_the_whole_listing(double: Double, droplets: Libcloud, broken: tuple[int, str]) -> None:
    for number in range(5):
        double.create(f"n-{number}")
    double.answers["page=2"] = broken
    with pytest.raises(CloudProviderError) as raised:
        state(droplets, new_node("n-4"))
    assert not isinstance(raised.value, InstanceNotFound)


def test_a_404_that_is_not_about_the_machine_is_unknown(double: Double, tmp_path: Path) -> None:
    double.answers["/v2/account"] = (404, "{}")
    entry = evolve(profiles.PROFILES["digitalocean"], question=profiles.by_path("/v2/account"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(profiles.PROFILES, "digitalocean", entry)
        provider = Libcloud(Config.load(config_of("digitalocean", double, tmp_path), environ={}))
    [found] = state(provider, new_node("a", "digitalocean://77"))
    assert isinstance(found, CloudProviderError)
    assert not isinstance(found, InstanceNotFound)


def test_throttling_is_told_with_the_clouds_own_time(double: Double, droplets: Libcloud) -> None:
    double.answers["/v2/droplets"] = (429, '{"id": "too_many_requests", "message": "API Rate limit exceeded."}')
    with pytest.raises(Throttled) as raised:
        state(droplets, new_node("a"))
    assert (raised.value.retry_after, raised.value.whole_account) == (7.0, True)


def test_refused_credentials_name_the_fix_and_are_read_again(double: Double, tmp_path: Path) -> None:
    provider = Libcloud(Config.load(config_of("openstack", double, tmp_path), environ={}))
    (tmp_path / "secret").write_text("wrong-s3cret")
    with pytest.raises(CloudProviderError, match="did not accept the credentials of driver openstack") as raised:
        state(provider, new_node("a"))
    assert "s3cret" not in str(raised.value)
    (tmp_path / "secret").write_text(SECRET)
    assert isinstance(state(provider, new_node("a"))[0], InstanceNotFound)


class Slow(str):
    """A secret beside which another thread adds one while it is looked at."""

    def __len__(self) -> int:
        SECRETS.add(f"another-{str.__len__(self)}")
        return str.__len__(self)


SECRETS: set[str] = set()


def test_a_secret_that_rotates_meanwhile_spoils_no_error() -> None:
    SECRETS.clear()
    SECRETS.add(Slow(SECRET))
    with pytest.raises(CloudProviderError, match=r"^asked: the cloud refused"), answered("d", "asked", SECRETS):
        raise BaseHTTPError(500, f"no {SECRET}")  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(("text", "chained"), [(f"no {SECRET}", False), ("no such key", True)])
def test_a_drivers_own_failure_is_chained_unless_it_shows_a_secret(text: str, chained: bool) -> None:
    def fail() -> None:
        try:
            raise KeyError(text)
        except KeyError:
            raise ValueError("the driver's own") from None if chained else ValueError(text)

    with pytest.raises(CloudProviderError) as caught, answered("d", "asked", {SECRET}):
        fail()
    assert (caught.value.__cause__ is not None) is chained
    assert SECRET not in "".join(traceback.format_exception(caught.value, chain=True))


def test_a_secret_that_the_cloud_repeats_is_masked(double: Double, droplets: Libcloud) -> None:
    double.answers["/v2/droplets"] = (422, f'{{"id": "x", "message": "token {SECRET} is odd"}}')
    with pytest.raises(CloudProviderError, match="is odd") as raised:
        state(droplets, new_node("a"))
    assert SECRET not in str(raised.value)


def test_a_driver_that_swallows_a_failure_is_not_believed(double: Double, tmp_path: Path) -> None:
    def swallowing(driver: Any) -> Any:
        found = driver.list_nodes()
        with contextlib.suppress(BaseHTTPError):  # as libcloud's driver for Azure does with a machine's NICs
            driver.connection.request("/v2/account")
        return found

    double.answers["/v2/account"] = (403, "{}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(
            profiles.PROFILES,
            "digitalocean",
            evolve(profiles.PROFILES["digitalocean"], nodes=swallowing),
        )
        provider = Libcloud(Config.load(config_of("digitalocean", double, tmp_path), environ={}))
    with pytest.raises(CloudProviderError, match=r"went on after 1 failed requests.*403 for GET /v2/account"):
        state(provider, new_node("a"))


def test_without_a_question_about_one_machine_absence_is_unknown_until_the_operator_says_more(tmp_path: Path) -> None:
    provider = dummy(tmp_path, question=None)
    there, lacking = state(provider, new_node("a", "libcloud://dummy/1"), new_node("b", "libcloud://dummy/9"))
    assert there is InstanceState.RUNNING
    assert not isinstance(lacking, InstanceNotFound)
    assert "absent: gone" in str(lacking)
    config = Config.load(CloudConfig(path="", data=b"driver: dummy\narguments: {creds: 7}\nabsent: gone"), environ={})
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(profiles.PROFILES, "dummy", evolve(profiles.PROFILES["dummy"], question=None))
        sure = Libcloud(config)
    assert isinstance(state(sure, new_node("b", "libcloud://dummy/9"))[0], InstanceNotFound)


@pytest.mark.parametrize("meaning", [InstanceState.GONE, InstanceState.SHUTDOWN, InstanceState.RUNNING, None])
def test_terminated_means_what_the_table_says(tmp_path: Path, meaning: InstanceState | None) -> None:
    def terminated(driver: Any) -> Any:
        found = driver.list_nodes()
        found[1].state = NodeState.TERMINATED
        return found

    provider = dummy(tmp_path, terminated=meaning, nodes=terminated)
    node = new_node("a", "libcloud://dummy/1")
    [found] = state(provider, node)
    if meaning is None:
        assert isinstance(found, CloudProviderError)
        assert not isinstance(found, InstanceNotFound)
    else:
        assert found is meaning
    if meaning is InstanceState.GONE:
        assert not provider.instances_v2().instance_exists(node)
        with pytest.raises(InstanceNotFound):
            provider.instances_v2().instance_shutdown(node)
        with pytest.raises(InstanceNotFound):
            provider.instances_v2().instance_metadata(node)


@pytest.mark.parametrize(
    ("word", "expected"),
    [(NodeState.STOPPED, True), (NodeState.SUSPENDED, True), (NodeState.PAUSED, True), (NodeState.PENDING, False),
     (NodeState.REBOOTING, False), (NodeState.UNKNOWN, False), (NodeState.ERROR, False), (None, False)],
)  # fmt: skip
def test_which_states_are_switched_off(tmp_path: Path, word: Any, expected: bool) -> None:
    def said(driver: Any) -> Any:
        found = driver.list_nodes()
        found[1].state = word
        return found

    assert dummy(tmp_path, nodes=said).instances_v2().instance_shutdown(new_node("dummy-1")) is expected


@pytest.mark.parametrize("answer", [{"Errors": []}, ["x"], None])
def test_a_listing_that_is_none_is_an_error(tmp_path: Path, answer: Any) -> None:
    provider = dummy(tmp_path, nodes=lambda driver: answer)
    with pytest.raises(CloudProviderError, match="the listing is no list of machines"):
        state(provider, new_node("dummy-1"))


def test_a_node_is_found_by_name_then_by_address_and_never_guessed(double: Double, droplets: Libcloud) -> None:
    web, twin, other = double.create("web"), double.create("twin"), double.create("twin")
    nodes = [new_node("WEB.example.org"), with_address("kube-7", other.private), new_node("twin"), new_node("none")]
    found = list(droplets.instances_batch().instances_metadata(nodes).values())
    assert [getattr(one, "provider_id", "") for one in found[:2]] == [
        f"digitalocean://{one.id}" for one in (web, other)
    ]
    assert f"2 machines have the name of node twin: {twin.id}, {other.id}" in str(found[2])
    assert not isinstance(found[2], InstanceNotFound)
    assert isinstance(found[3], InstanceNotFound)


def test_foreign_and_broken_ids_are_unknown_and_cost_no_request(double: Double, droplets: Libcloud) -> None:
    found = state(droplets, new_node("a", "aws:///eu-west-1a/i-1"), new_node("b", "digitalocean://"))
    assert not any(isinstance(one, InstanceNotFound | InstanceState) for one in found)
    assert double.requests == []


def test_no_request_begins_that_the_host_would_cut_off(double: Double, droplets: Libcloud) -> None:
    with call_scope(Call(deadline=time.monotonic() + 0.2)), pytest.raises(CallDeadlineExceeded):
        state(droplets, new_node("a"))
    assert double.requests == []


def test_a_driver_is_used_by_one_at_a_time_and_again_unless_it_failed() -> None:
    made: list[object] = []

    def make() -> object:
        made.append(object())
        return made[-1]

    drivers = Drivers(make)
    with drivers.borrow() as one, drivers.borrow() as other:
        assert one is not other
    with pytest.raises(ValueError, match="x"), drivers.borrow() as failed:
        raise ValueError("x")
    with drivers.borrow() as one, drivers.borrow() as other:
        assert failed not in (one, other)
    assert len(made) == 3
    with pytest.raises(InvalidCredsError), drivers.borrow():
        raise InvalidCredsError
    with drivers.borrow() as fresh:
        assert fresh is made[3]


def test_many_threads_get_the_answers_to_their_own_questions(double: Double, droplets: Libcloud) -> None:
    servers = [double.create(f"n-{number}") for number in range(4)]
    double.hidden.update(one.id for one in servers)  # so that each is asked for by itself
    wrong: list[object] = []

    def ask(server: Server) -> None:
        for _ in range(5):
            found = droplets.instances_v2().instance_metadata(new_node("n", f"digitalocean://{server.id}"))
            if found.node_addresses[0].address != server.private:
                wrong.append(found)

    threads = [threading.Thread(target=ask, args=(server,)) for server in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_start_lists_the_machines_and_refuses_libclouds_own_retries(
    double: Double, droplets: Libcloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    client: Any = None
    droplets.initialize(client, threading.Event())
    assert len(double.requests) == 1
    double.answers["/v2/droplets"] = (401, "{}")
    with pytest.raises(CloudProviderError):
        droplets.initialize(client, threading.Event())
    monkeypatch.setenv(RETRY_VARIABLE, "1")
    with pytest.raises(InvalidConfig, match=RETRY_VARIABLE):
        droplets.initialize(client, threading.Event())


def test_no_machines_are_a_warning_that_says_where_to_look(
    double: Double, droplets: Libcloud, caplog: pytest.LogCaptureFixture
) -> None:
    client: Any = None
    droplets.initialize(client, threading.Event())
    assert "lists no machines: if there are some, check region, project and rights" in caplog.text
    [error] = droplets.instances_batch().instances_metadata([new_node("web-1")]).values()
    assert str(error) == "no machine has the name or address of node web-1 (machines that the cloud lists: 0)"
    double.create("web-2")
    [error] = droplets.instances_batch().instances_metadata([new_node("web-1")]).values()
    assert str(error) == "no machine has the name or address of node web-1 (machines that the cloud lists: 1)"
