"""Whose finalizer is it? Row S14: the well-known name on a Service is no proof that a load balancer
is ours.

Proof is what this process did, our note for this very Service, or the cloud's word.
"""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from cloudprovider import CloudProviderError
from controllers.service.changes import APPLIED
from tests.support.controllers import Crash, Fault, Raw
from tests.unit.service.bench import Bench
from tests.unit.service.objects import FINALIZER, raw_service

KEY = "default/web"
CLASS: dict[str, Any] = {"loadBalancerClass": "example.com/other"}
POINT = {"ip": "203.0.113.9"}


def _web(bench: Bench) -> Raw:
    return bench.server.services[KEY]


def _finalizers(bench: Bench) -> list[str]:
    return list(_web(bench)["metadata"]["finalizers"])


def _set_class(bench: Bench) -> None:
    """By way of another type, as the API server wants it; so the status is gone too."""
    bench.server.set_type(KEY, "ClusterIP")
    bench.server.set_type(KEY, "LoadBalancer")
    bench.server.edit(KEY, lambda raw: raw["spec"].update(CLASS))


def _take_over(bench: Bench) -> None:
    """What the class's controller does with a Service: the well-known finalizer, and its own
    address."""

    def change(raw: Raw) -> None:
        finalizers = raw["metadata"]["finalizers"]
        raw["metadata"]["finalizers"] = finalizers if FINALIZER in finalizers else [*finalizers, FINALIZER]
        raw["status"] = {"loadBalancer": {"ingress": [POINT]}}

    bench.server.edit(KEY, change)


@pytest.mark.row("S14")
@pytest.mark.parametrize("restarts", [False, True])
def test_another_controllers_service_keeps_finalizer_and_status(bench: Bench, restarts: bool) -> None:
    bench.server.put(raw_service(**CLASS))
    bench.settle()
    _take_over(bench)
    before = dict(_web(bench))
    if restarts:
        bench.start()
    bench.settle()
    bench.server.edit(KEY, lambda raw: raw["metadata"].update(annotations={"example.com/a": "b"}))
    bench.settle()
    assert bench.cloud.calls == []
    assert bench.server.patches == []
    assert bench.recorder.events == []
    assert _web(bench)["status"] == before["status"]
    bench.services.objects.pop(KEY)
    bench.triggers.on_delete(bench.services.objects.get(KEY) or _parsed(bench))
    bench.settle()
    assert bench.cloud.calls == [], "its vanishing is none of ours either"


def _parsed(bench: Bench) -> Any:
    from controllers.runtime.cache import SERVICES

    return SERVICES.parse(dict(_web(bench)))


@pytest.mark.row("S14")
def test_a_note_of_another_service_is_no_proof(bench: Bench) -> None:
    """A manifest that was copied, or restored from a backup, brings the annotation along."""
    bench.serve("first")
    copied = bench.server.services["default/first"]["metadata"]["annotations"][APPLIED]
    bench.server.put(
        raw_service(finalizers=[FINALIZER], annotations={APPLIED: copied}, ingress=[POINT], **CLASS),
    )
    bench.settle()
    bench.start()
    bench.settle()
    assert [call for call in bench.cloud.calls if call[1] == KEY] == []
    assert _finalizers(bench) == [FINALIZER]
    assert [path for path, _ in bench.server.patches if path.startswith("web")] == []


@pytest.mark.row("S14")
@pytest.mark.parametrize("restarts", [False, True])
def test_what_was_ours_is_cleaned_up_once_and_then_left_to_the_class(bench: Bench, restarts: bool) -> None:
    bench.serve()
    _set_class(bench)
    if restarts:
        bench.start()
    bench.settle()
    assert bench.cloud.count("delete") == 1
    assert bench.cloud.balancers == {}
    assert _finalizers(bench) == []
    bench.forget()
    for _ in range(5):
        _take_over(bench)
        bench.settle()
    assert bench.cloud.calls == []
    assert bench.server.patches == []
    assert _finalizers(bench) == [FINALIZER]
    assert _web(bench)["status"]["loadBalancer"]["ingress"] == [POINT]


@pytest.mark.row("S14")
def test_cleaning_up_does_not_wipe_the_address_that_the_class_gave(bench: Bench) -> None:
    bench.serve()
    _set_class(bench)
    _take_over(bench)
    bench.start()
    bench.settle()
    assert bench.cloud.methods() == ["delete"]
    assert _web(bench)["status"]["loadBalancer"]["ingress"] == [POINT]
    assert APPLIED not in _web(bench)["metadata"]["annotations"]


@pytest.mark.row("S8")
@pytest.mark.parametrize("error", [Crash(), CloudProviderError("quota")])
def test_a_half_built_one_that_was_given_a_class_is_cleaned_up_by_the_next_process(
    bench: Bench, error: BaseException
) -> None:
    bench.server.put(raw_service())
    bench.see()
    bench.cloud.faults.append(Fault(error, after=True))
    with contextlib.suppress(Crash):
        bench.work()
    assert bench.cloud.balancers
    _set_class(bench)
    bench.start()
    bench.settle()
    assert bench.cloud.balancers == {}
    assert _finalizers(bench) == []


@pytest.mark.row("S14")
@pytest.mark.parametrize("built", [False, True])
@pytest.mark.parametrize("seen", [False, True])
def test_of_another_type_and_never_ours_only_the_cloud_can_tell(bench: Bench, built: bool, seen: bool) -> None:
    if built:  # by the Go program, which leaves no note
        bench.serve()
        bench.server.edit(KEY, lambda raw: raw["metadata"].update(annotations={}))
        bench.server.edit(KEY, lambda raw: raw["spec"].update(CLASS))
    else:
        bench.server.put(raw_service(finalizers=[FINALIZER], **CLASS))
    if not seen:
        bench.server.set_type(KEY, "ClusterIP")
    bench.start()
    bench.settle()
    if seen:
        assert bench.cloud.calls == []
        bench.server.set_type(KEY, "ClusterIP")
        bench.settle()
    assert bench.cloud.methods() == (["get", "delete"] if built else ["get"])
    assert bench.cloud.balancers == {}
    assert _finalizers(bench) == ([] if built else [FINALIZER])
    if not built:
        assert bench.server.patches == []


@pytest.mark.row("S14", "S24")
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("was_ours", [False, True])
def test_one_with_a_class_that_is_being_deleted_keeps_its_controllers_finalizer(
    bench: Bench, was_ours: bool, restarts: bool
) -> None:
    """That controller still deletes its load balancer, and the finalizer is what the Service waits
    for."""
    if was_ours:
        bench.serve()
        _set_class(bench)
        bench.settle()
    else:
        bench.server.put(raw_service(**CLASS))
    _take_over(bench)
    bench.settle()
    bench.forget()
    bench.server.delete(KEY)
    bench.settle()
    if restarts:
        bench.start()
        bench.settle()
    assert bench.cloud.calls == []
    assert bench.server.patches == []
    assert bench.recorder.events == []
    assert _finalizers(bench) == [FINALIZER]


@pytest.mark.row("S8", "S24")
def test_our_note_has_one_with_a_class_cleaned_up_when_it_is_deleted(bench: Bench) -> None:
    bench.serve()
    bench.server.edit(KEY, lambda raw: raw["spec"].update(CLASS))
    bench.server.delete(KEY)
    bench.start()
    bench.settle()
    assert bench.cloud.methods() == ["delete"]
    assert bench.cloud.balancers == {}
    assert KEY not in bench.server.services


@pytest.mark.row("S24")
def test_one_that_got_a_class_before_we_came_to_it_keeps_its_controllers_finalizer(bench: Bench) -> None:
    """We remember that it once asked for one of ours, which is no proof that there is one."""
    bench.server.put(raw_service())
    bench.see()
    _set_class(bench)
    _take_over(bench)
    bench.settle()
    bench.server.delete(KEY)
    bench.settle()
    assert bench.cloud.calls == []
    assert bench.server.patches == []
    assert _finalizers(bench) == [FINALIZER]


@pytest.mark.row("S14")
def test_while_the_cloud_cannot_tell_nothing_is_done_and_it_is_asked_again(bench: Bench) -> None:
    bench.server.put(raw_service(type="ClusterIP", finalizers=[FINALIZER]))
    bench.cloud.fail["get"] = CloudProviderError("down")
    bench.settle()
    assert set(bench.cloud.methods()) == {"get"}
    assert bench.server.patches == []
    asked = bench.cloud.count("get")
    bench.cloud.fail.clear()
    bench.settle(rounds=20)
    assert bench.cloud.count("get") == asked + 1
    assert _finalizers(bench) == [FINALIZER]
