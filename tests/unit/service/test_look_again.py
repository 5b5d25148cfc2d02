"""The provider asks for another look at a load balancer, or its `depends_on` tells of a change:
ensured once for many words, ever more seldom, never lost; and users come first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kubernetes.client.models.v1_endpoint_slice import V1EndpointSlice

from cloudprovider import CloudProviderError, InvalidService, Pending
from controllers.cloudcalls import PRIORITY_SWEEP
from controllers.runtime.api import ServerError
from controllers.runtime.cache import ENDPOINT_SLICES
from controllers.service.changes import APPLIED, Classes, Note
from controllers.service.controller import SliceTriggers
from controllers.service.reconcile import DRIFT
from controllers.service.records import LOOKING
from tests.support.controllers import DELETED_AT, Crash, Fault
from tests.unit.service.bench import Bench
from tests.unit.service.objects import FINALIZER, raw_node, raw_service, service

KEY = "default/web"


def _ask(bench: Bench, key: str = KEY) -> bool:
    return bench.triggers.look_again(key, bench.services.get(key))


def _port(bench: Bench, port: int) -> None:
    bench.server.edit(KEY, lambda raw: raw["spec"]["ports"][0].update(port=port))


def test_it_is_ensured_although_it_is_the_same_silently_and_at_the_lowest_priority(served: Bench) -> None:
    assert _ask(served)
    served.settle()
    assert served.cloud.methods() == ["ensure"]
    assert served.cloud.priorities == [PRIORITY_SWEEP]
    assert served.recorder.messages() == []
    assert served.server.patches == []  # the note stays true


def test_many_words_are_one_look(served: Bench) -> None:
    for _ in range(1000):
        _ask(served)
    served.settle(rounds=60)
    assert served.cloud.methods() == ["ensure"]


def test_a_provider_that_never_ends_is_looked_at_ever_more_seldom_and_the_last_word_counts(served: Bench) -> None:
    for _ in range(600):
        _ask(served)
        served.settle(rounds=1)
    assert 18 <= served.cloud.count("ensure") <= 26
    before = served.cloud.count("ensure")
    _ask(served)
    served.settle(rounds=40)
    assert served.cloud.count("ensure") == before + 1
    served.clock.advance(200.0)  # it was quiet: the next word counts immediately
    _ask(served)
    served.settle(rounds=2)
    assert served.cloud.count("ensure") == before + 2


def test_a_word_during_the_call_is_another_look(served: Bench) -> None:
    words = [True]
    served.cloud.during = lambda method, _: _ask(served) if method == "ensure" and words and words.pop() else None
    _ask(served)
    served.settle(rounds=10)
    assert served.cloud.methods() == ["ensure", "ensure"]


@pytest.mark.parametrize("error", [InvalidService("quota"), CloudProviderError("quota"), Pending("busy", 300.0)])
def test_what_failed_is_tried_before_its_turn(served: Bench, error: Exception) -> None:
    served.cloud.fail["ensure"] = error
    _port(served, 81)
    served.settle(rounds=20)
    served.cloud.fail.clear()
    tried = served.cloud.count("ensure")
    _ask(served)
    served.settle(rounds=2)
    assert served.cloud.count("ensure") == tried + 1
    assert served.cloud.balancers["uid-web"].content["ports"][0]["port"] == 81


def test_a_look_that_could_not_begin_is_not_lost(served: Bench) -> None:
    served.start()
    served.identity.append(ServerError("down", status=500))
    _ask(served)
    served.settle()
    assert served.cloud.methods() == []
    served.identity.append("cluster-1")
    served.settle(rounds=60)
    assert served.cloud.methods() == ["get", "ensure"]


def test_a_new_process_looks_and_ensures(served: Bench) -> None:
    served.start()
    _ask(served)
    served.settle()
    assert served.cloud.methods() == ["get", "ensure"]


def test_what_has_no_load_balancer_of_ours_is_ignored(bench: Bench) -> None:
    bench.server.put(raw_service(type="ClusterIP"))
    bench.settle()
    assert not _ask(bench)
    assert bench.waiting() == []


def test_a_deletion_that_failed_is_tried_again(served: Bench) -> None:
    served.cloud.fail["delete"] = CloudProviderError("in use")
    served.server.edit(KEY, lambda raw: raw["metadata"].update(deletionTimestamp=DELETED_AT))
    served.settle(rounds=40)
    served.cloud.fail.clear()
    _ask(served)
    served.settle(rounds=2)
    assert served.cloud.balancers == {}


def test_users_come_first(served: Bench) -> None:
    for number in range(5):
        served.serve(f"s{number}")
    for number in range(5):
        _ask(served, f"default/s{number}")
    served.clock.advance(1.5)
    _port(served, 81)
    served.see()
    assert served.waiting()[0] == KEY
    assert DRIFT < 0


# ---- what depends_on says


@pytest.fixture
def said(bench: Bench) -> dict[str, str]:
    """What the provider says of each Service."""
    words: dict[str, str] = {}
    bench.cloud.hooks = {"depends_on": lambda one: words.get(one.metadata.name, "")}
    bench.start()
    bench.serve()
    return words


def test_a_word_of_depends_on_that_flaps_costs_few_calls_and_no_warning(bench: Bench, said: dict[str, str]) -> None:
    for number in range(600):
        said["web"] = str(number)
        bench.queue.add(KEY)
        bench.settle(rounds=1)
    assert 18 <= bench.cloud.count("ensure") <= 26
    assert bench.recorder.messages("Warning") == []
    said["web"] = "last"
    bench.queue.add(KEY)
    bench.settle(rounds=40)
    record = bench.records.get(KEY)
    assert record is not None
    assert record.pause(service(), None, record.tried).count == 0  # nothing is left to do
    ensured = bench.cloud.count("ensure")
    bench.settle(rounds=40)
    assert bench.cloud.count("ensure") == ensured


def test_two_owners_that_disagree_are_still_warned(bench: Bench, said: dict[str, str]) -> None:
    for number in range(8):
        _port(bench, 81 + number)
        bench.settle(rounds=1)
    assert "LoadBalancerChangesDelayed" in bench.recorder.reasons(type="Warning")


def test_targets_follow_the_word_while_the_owners_change_is_refused(bench: Bench, said: dict[str, str]) -> None:
    bench.cloud.fail["ensure"] = InvalidService("no such size")
    _port(bench, 81)
    bench.settle(rounds=40)
    bench.forget()
    said["web"] = "n1"
    bench.queue.add(KEY)
    bench.settle(rounds=3)
    assert bench.cloud.methods() == ["ensure", "update"]
    given: Any = bench.cloud.given[-1]
    assert given.spec.ports[0].port == 80  # as it was built


def test_the_word_alone_updates_nothing_twice(bench: Bench, said: dict[str, str]) -> None:
    said["web"] = "n1"
    bench.queue.add(KEY)
    bench.settle()
    assert bench.cloud.methods() == ["ensure"]
    bench.server.put(raw_node("n2", "10.0.0.2"))
    bench.settle()
    assert bench.cloud.methods() == ["ensure", "update"]


# ---- EndpointSlices


def _slice(name: str = "web-1", service: str = "web", ready: bool = True, annotation: str = "") -> V1EndpointSlice:
    endpoint = {"addresses": ["10.1.0.1"], "nodeName": "n1", "conditions": {"ready": ready}}
    metadata: dict[str, Any] = {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"}
    metadata |= {"labels": {"kubernetes.io/service-name": service}, "annotations": {"changed": annotation}}
    return ENDPOINT_SLICES.parse({"metadata": metadata, "addressType": "IPv4", "endpoints": [endpoint]})


def test_a_change_of_a_slice_has_its_service_looked_at(served: Bench) -> None:
    slices = SliceTriggers(served.queue, served.records)
    before = _slice()
    changes: tuple[Callable[[], None], ...] = (
        lambda: slices.on_add(before, False),
        lambda: slices.on_update(before, _slice(ready=False)),
        lambda: slices.on_update(_slice(service="other"), before),
        lambda: slices.on_update(before, _slice(service="other")),
        lambda: slices.on_delete(before),
    )
    for change in changes:
        change()
        served.clock.advance(1.0)
        assert served.waiting() == [KEY]
        served.clock.advance(1.0)


def test_what_says_nothing_new_of_the_endpoints_and_other_services_means_nothing(served: Bench) -> None:
    slices = SliceTriggers(served.queue, served.records)
    slices.on_update(_slice(annotation="1"), _slice(annotation="2"))
    slices.on_add(_slice(service="another"), False)
    slices.on_add(_slice(service=""), False)
    assert served.waiting() == []


def test_a_word_about_a_service_that_waits_for_another_manager_does_not_poll(bench: Bench) -> None:
    bench.classes = Classes(["acme.example/b"])
    bench.start()
    note = str(Note("uid-web", lb_class="acme.example/a"))
    raw = raw_service(loadBalancerClass="acme.example/b", annotations={APPLIED: note}, finalizers=[FINALIZER])
    bench.server.put(raw)
    bench.settle(rounds=2)
    _ask(bench)
    assert len(bench.settle(rounds=100)) <= 2
    bench.settle(rounds=4, step=LOOKING / 3)
    assert "ensure" in bench.cloud.methods()


def test_a_change_that_waits_is_built_and_the_note_says_no_more_what_was_built_before(served: Bench) -> None:
    """Killed in the call, and the change taken back meanwhile: the next process must not take the
    former note for true."""
    for port in range(81, 88):
        _port(served, port)
        served.settle(rounds=1, step=0.3)
    built = served.cloud.balancers["uid-web"].content["ports"][0]["port"]
    assert built < 87
    served.forget()
    served.cloud.faults.append(Fault(Crash(), after=True))
    _ask(served)
    with pytest.raises(Crash):
        served.settle(rounds=3)
    assert served.cloud.balancers["uid-web"].content["ports"][0]["port"] == 87
    _port(served, built)
    served.start()
    served.settle(rounds=10)
    assert served.cloud.balancers["uid-web"].content["ports"][0]["port"] == built
