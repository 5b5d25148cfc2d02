"""What goes on failing for one Service, call by call, and what is done meanwhile. At random:
test_sequences.py; over the decision alone: test_starving.py.
"""

from __future__ import annotations

import gc
import logging
import weakref
from contextlib import suppress

import pytest

from cloudprovider import CloudProviderError, ImplementedElsewhere, InvalidService, RetryError, Throttled
from controllers.cloudcalls import CallsClosed
from controllers.runtime.cache import SERVICES, uid_of
from controllers.service.changes import note_of
from controllers.service.records import State
from tests.support.there import there
from tests.unit.service.bench import Bench
from tests.unit.service.objects import FINALIZER, raw_node, raw_service

pytestmark = pytest.mark.usefixtures("served")
KEY = "default/web"


def _join(bench: Bench, number: int = 2) -> None:
    bench.server.put(raw_node(f"n{number}", f"10.0.0.{number}"))


def _address(bench: Bench) -> str:
    [point] = bench.server.services[KEY]["status"]["loadBalancer"]["ingress"]
    return str(point["ip"])


def _move(bench: Bench, ip: str) -> None:
    bench.server.edit(KEY, lambda raw: raw["spec"].update(loadBalancerIP=ip))


@pytest.mark.row("S23")
def test_an_address_that_could_not_be_written_is_not_forgotten_over_the_next_change(bench: Bench) -> None:
    bench.server.refuses_status = True
    _move(bench, "192.0.2.77")
    bench.settle(rounds=3)
    bench.server.edit(KEY, lambda raw: raw["spec"].update(ports=[{"port": 81}]))
    bench.settle(rounds=10)
    assert _address(bench) != "192.0.2.77"
    bench.server.refuses_status = False
    bench.settle(rounds=70)
    assert _address(bench) == "192.0.2.77"


@pytest.mark.row("S23")
@pytest.mark.parametrize("error", [RetryError("busy", 5.0), CloudProviderError("bang"), CallsClosed("stopping")])
def test_an_address_is_written_while_neither_update_nor_ensure_succeeds(bench: Bench, error: Exception) -> None:
    bench.server.refuses_status = True
    _move(bench, "192.0.2.77")
    bench.settle(rounds=3)
    bench.cloud.fail |= {"update": error, "ensure": error}
    _join(bench)
    bench.settle(rounds=20)
    bench.server.refuses_status = False
    bench.settle(rounds=70)
    assert _address(bench) == "192.0.2.77"
    service = SERVICES.parse(bench.server.services[KEY])
    note = there(note_of(service))
    assert (note.uid, note.spec) == (uid_of(service), "none"), "what is unsure is not in the note"


@pytest.mark.row("S23")
def test_an_update_that_is_anothers_leaves_the_load_balancer_ours(bench: Bench) -> None:
    bench.cloud.fail["update"] = ImplementedElsewhere("its targets are another's")
    _join(bench)
    bench.settle()
    record = there(bench.records.get(KEY))
    assert record.state is State.WRITTEN
    bench.cloud.balancers.clear()
    bench.settle(rounds=4, step=900.0)
    assert bench.cloud.balancers, "it is looked at as before"
    assert bench.cloud.count("update") == 1
    assert "UpdatedLoadBalancer" not in bench.recorder.reasons()


@pytest.mark.row("S23")
def test_one_that_was_anothers_for_a_while_is_not_missing_and_gets_its_address_back(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    ours = _address(bench)
    bench.cloud.elsewhere.add(KEY)
    bench.server.edit(KEY, lambda raw: raw["spec"].update(ports=[{"port": 81}]))
    bench.settle()
    bench.server.edit(KEY, lambda raw: raw["status"]["loadBalancer"].update(ingress=[{"ip": "192.0.2.250"}]))
    for _ in range(3):
        bench.settle(rounds=50, step=900.0)
    assert bench.cloud.count("ensure") > 1
    assert _address(bench) == "192.0.2.250"
    bench.cloud.elsewhere.clear()
    bench.settle(rounds=50, step=900.0)
    assert _address(bench) == ours
    assert "is missing in the cloud" not in caplog.text


@pytest.mark.row("S22")
def test_nodes_reach_the_load_balancer_while_a_change_waits_an_hour_for_its_owner(bench: Bench) -> None:
    bench.cloud.fail["ensure"] = InvalidService("no such size")
    bench.server.edit(KEY, lambda raw: raw["metadata"].update(annotations={"example.com/size": "xxl"}))
    bench.settle(rounds=3)
    asked = bench.cloud.count("ensure")
    for number in range(2, 5):
        _join(bench, number)
        bench.settle()
        [balancer] = bench.cloud.balancers.values()
        assert balancer.nodes == bench.wanted_nodes()
    assert bench.cloud.count("ensure") == asked, "no update hastens what is to wait"
    assert bench.cloud.count("update") == 3
    built = [
        given for (method, _), given in zip(bench.cloud.calls, bench.cloud.given, strict=True) if method == "update"
    ]
    assert all("example.com/size" not in (given.metadata.annotations or {}) for given in built if given.metadata)
    bench.settle(rounds=5, step=10.0)
    assert bench.cloud.count("update") == 3, "the targets are as they should be"


@pytest.mark.row("S22")
def test_a_load_balancer_that_was_never_built_gets_no_update() -> None:
    bench = Bench("n1")
    bench.cloud.fail["ensure"] = CloudProviderError("quota")
    bench.server.put(raw_service())
    bench.settle()
    _join(bench)
    bench.settle(rounds=10)
    assert set(bench.cloud.methods()) == {"ensure"}


@pytest.mark.parametrize("method", ["ensure", "get"])
def test_nodes_that_join_do_not_hasten_one_that_is_not_built(bench: Bench, method: str) -> None:
    bench.start()  # what a former process built is not looked at yet
    bench.forget()
    bench.cloud.fail[method] = CloudProviderError("quota")
    if method == "ensure":
        bench.server.put(raw_service("late"))
    for number in range(10, 30):
        _join(bench, number)
        bench.settle(rounds=6)
    assert bench.cloud.count(method) <= 9, "after 1, 2, 4, 8, 16, 32 and then 60 s, in two minutes"
    bench.cloud.fail.clear()
    bench.settle(rounds=70)
    assert all(balancer.nodes == bench.wanted_nodes() for balancer in bench.cloud.balancers.values())


def test_nodes_that_join_reach_a_load_balancer_without_hastening_its_change_that_fails(bench: Bench) -> None:
    bench.cloud.fail["ensure"] = CloudProviderError("quota")
    _move(bench, "192.0.2.77")
    for number in range(10, 30):
        _join(bench, number)
        bench.settle(rounds=6)
    assert bench.cloud.count("update") == 20
    assert bench.cloud.count("ensure") <= 9, "after 1, 2, 4, 8, 16, 32 and then 60 s, in two minutes"
    assert bench.cloud.balancers["uid-web"].nodes == bench.wanted_nodes()
    before = bench.cloud.count("ensure")
    _move(bench, "192.0.2.78")
    bench.settle(rounds=1)
    assert bench.cloud.count("ensure") == before + 1, "another change does not wait"
    bench.cloud.fail.clear()
    bench.settle(rounds=70)
    assert _address(bench) == "192.0.2.78"


@pytest.mark.parametrize("error", [CloudProviderError("down"), RetryError("busy", 30.0), Throttled("slow", 30.0)])
@pytest.mark.parametrize("restarts", [False, True])
def test_nor_do_they_hasten_a_look_that_fails(bench: Bench, error: Exception, restarts: bool) -> None:
    if restarts:
        bench.start()
        bench.forget()
    bench.clock.advance(1800.0)
    bench.cloud.fail["get"] = error
    for number in range(10, 30):
        _join(bench, number)
        bench.settle(rounds=6)
    assert bench.cloud.count("update") == (0 if restarts else 20)
    assert bench.cloud.count("get") <= 9, "after 1, 2, 4, 8, 16, 32 and then 60 s, in two minutes"
    bench.cloud.fail.clear()
    bench.forget()
    bench.settle(rounds=70)
    assert bench.cloud.methods() == (["get", "update"] if restarts else ["get"])


@pytest.mark.row("S22")
def test_nor_does_one_that_is_missing(bench: Bench) -> None:
    bench.cloud.balancers.clear()
    bench.cloud.fail["ensure"] = CloudProviderError("quota")
    _join(bench)
    bench.settle(rounds=20)
    assert bench.cloud.count("update") == 1
    assert bench.cloud.count("ensure") > 2


@pytest.mark.row("S9", "S22")
@pytest.mark.parametrize("error", [InvalidService("no"), CloudProviderError("quota")])
def test_what_the_cloud_did_not_build_gets_its_finalizer_back(bench: Bench, error: Exception) -> None:
    bench.cloud.fail["ensure"] = error
    key = bench.serve("new")
    bench.server.edit(key, lambda raw: raw["metadata"].update(finalizers=[]))
    bench.settle()
    assert bench.server.services[key]["metadata"]["finalizers"] == [FINALIZER]


@pytest.mark.row("S22")
@pytest.mark.parametrize("error", [RetryError("busy", 5.0), Throttled("slow down", 5.0)])
def test_a_cloud_that_says_later_is_asked_the_same_again_then_and_ensured_in_its_time(
    bench: Bench, error: Exception
) -> None:
    bench.cloud.fail["update"] = error
    _join(bench)
    bench.settle(rounds=20)
    assert bench.cloud.count("update") > 1
    assert bench.cloud.count("ensure") == 0
    bench.settle(rounds=50, step=900.0)
    [balancer] = bench.cloud.balancers.values()
    assert balancer.nodes == bench.wanted_nodes(), "the ensure period is over"


def test_what_was_not_asked_again_yet_is_not_called_over(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bench.cloud.fail["ensure"] = RetryError("still building", 30.0)
    _move(bench, "192.0.2.77")
    bench.settle(rounds=75)
    _join(bench)
    bench.settle()
    assert "was done after" not in caplog.text
    bench.cloud.fail.clear()
    bench.settle(rounds=40)
    assert "RetryError, 3 answers for key default/web" in caplog.text


@pytest.mark.row("S22")
def test_a_look_that_fails_for_ever_keeps_neither_nodes_nor_finalizer_nor_repair_away(bench: Bench) -> None:
    bench.cloud.fail["get"] = CloudProviderError("bang")
    bench.settle(rounds=3, step=900.0)
    _join(bench)
    bench.server.edit(KEY, lambda raw: raw["metadata"].update(finalizers=[]))
    bench.settle(rounds=70)
    [balancer] = bench.cloud.balancers.values()
    assert balancer.nodes == bench.wanted_nodes()
    assert bench.server.services[KEY]["metadata"]["finalizers"] == [FINALIZER]
    assert bench.cloud.count("ensure") == 0
    bench.settle(rounds=50, step=900.0)
    assert bench.cloud.count("ensure") == 1


@pytest.mark.row("S22")
def test_after_a_restart_a_look_that_fails_is_given_up_after_five_minutes(bench: Bench) -> None:
    bench.cloud.fail["get"] = CloudProviderError("bang")
    bench.start()
    bench.settle(rounds=29, step=10.0)
    assert bench.cloud.writes() == 0
    assert bench.server.patches == []
    bench.settle(rounds=12, step=10.0)
    assert bench.cloud.count("ensure") == 1
    bench.start()
    bench.cloud.fail.clear()
    bench.forget()
    bench.settle(rounds=3)
    assert bench.cloud.methods() == ["get"]


def test_an_update_and_a_finalizer_that_somebody_removed_are_one_run(bench: Bench) -> None:
    _join(bench)
    bench.see()
    bench.clock.advance(1.0)
    bench.server.edit(KEY, lambda raw: raw["metadata"].update(finalizers=[]))
    bench.see()
    bench.work()
    assert bench.cloud.methods() == ["update"]
    assert bench.server.services[KEY]["metadata"]["finalizers"] == [FINALIZER]


def test_what_failed_is_free_at_once(bench: Bench) -> None:
    """Else all that its stack holds would stay until the garbage collector comes."""
    raised: list[weakref.ref[Exception]] = []

    def failure() -> Exception:
        made = CloudProviderError("bang")
        raised.append(weakref.ref(made))
        return made

    def fail(*_: object) -> None:
        raise failure()

    _move(bench, "192.0.2.77")
    bench.see()
    bench.cloud.during = fail
    gc.disable()
    try:
        with suppress(CloudProviderError):
            bench.reconciler.reconcile(KEY)
        assert raised
        assert not any(one() for one in raised)
    finally:
        gc.enable()
