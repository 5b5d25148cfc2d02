"""An annotation that makes another load balancer of it: the former one goes, and deletion asks for
what was built. Rows S27 and S28."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes.client.models.v1_service import V1Service

from cloudprovider import CloudProviderError, InvalidService, LoadBalancerKept, RetryError
from cloudprovider.helpers import annotations_of, ports_of
from controllers.cloudcalls import CallFailed
from controllers.runtime.cache import SERVICES
from controllers.service.changes import APPLIED, ingress, note_of, status_of
from tests.support.controllers import Crash, Fault, Raw
from tests.support.there import there
from tests.unit.service.bench import Bench
from tests.unit.service.objects import FINALIZER, KIND, SIZE, raw_node

KEY = "default/web"


def _kind(bench: Bench, kind: str | None, **spec: object) -> None:
    def change(raw: Raw) -> None:
        others = {key: value for key, value in raw["metadata"]["annotations"].items() if key != KIND}
        raw["metadata"]["annotations"] = others if kind is None else {**others, KIND: kind}
        raw["spec"].update(spec)

    bench.server.edit(KEY, change)


def _note(bench: Bench) -> str:
    return str(bench.server.services[KEY]["metadata"]["annotations"][APPLIED])


def _ids(bench: Bench) -> set[str]:
    return set(bench.cloud.balancers)


@pytest.mark.row("S27")
@pytest.mark.parametrize("restarts", ["no", "before", "in between"])
@pytest.mark.parametrize(("kind", "then"), [("network", None), (None, "network"), ("network", "classic")])
@pytest.mark.parametrize("way", ["type", "deleted"])
def test_the_deletion_gets_the_service_as_it_was_built(
    bench: Bench, kind: str | None, then: str | None, restarts: str, way: str
) -> None:
    bench.serve(annotations={"example.com/region": "north", **({KIND: kind} if kind else {})})
    if restarts == "before":
        bench.start()
        bench.settle()
    _kind(bench, then, **({"type": "ClusterIP"} if way == "type" else {}))
    if way == "deleted":
        bench.server.delete(KEY)
    if restarts == "in between":
        bench.start()
    bench.forget()
    bench.settle()
    assert bench.cloud.balancers == {}
    assert bench.cloud.methods() == ["delete", "delete"], "as it is, and as it was built"
    assert [annotations_of(given).get(KIND) for given in bench.cloud.given] == [then, kind]
    first = bench.cloud.given[1]
    assert ports_of(first)
    if restarts != "in between":
        assert there(first.spec).type == "LoadBalancer"
    if kind or restarts != "in between":
        assert annotations_of(first)["example.com/region"] == "north"
    assert bench.recorder.reasons() == ["DeletingLoadBalancer", "DeletedLoadBalancer"]
    assert way == "deleted" or FINALIZER not in bench.server.services[KEY]["metadata"]["finalizers"]


@pytest.mark.row("S27")
def test_one_that_is_deleted_as_it_was_built_costs_one_call(bench: Bench) -> None:
    bench.serve(annotations={KIND: "network"})
    bench.server.set_type(KEY, "ClusterIP")
    bench.settle()
    assert bench.cloud.methods() == ["delete"]
    assert ingress(status_of(bench.cloud.given[0])), "with the status of now"


@pytest.mark.row("S27")
@pytest.mark.parametrize("error", [CloudProviderError("in use"), RetryError("deleting", 5.0)])
def test_a_deletion_that_fails_keeps_in_mind_what_was_built(bench: Bench, error: Exception) -> None:
    bench.serve(annotations={KIND: "network"})
    bench.cloud.fail["delete"] = error
    _kind(bench, None, type="ClusterIP")
    bench.settle()
    assert _ids(bench) == {"uid-web/network"}
    bench.cloud.fail.clear()
    bench.settle(rounds=70)
    assert bench.cloud.balancers == {}


@pytest.mark.row("S28")
@pytest.mark.parametrize("tried", [True, False], ids=["a deletion failed", "none was tried"])
def test_wanted_again_under_another_name_the_former_one_goes(bench: Bench, tried: bool) -> None:
    bench.serve(annotations={KIND: "network"})
    bench.server.set_type(KEY, "ClusterIP")
    bench.cloud.fail["delete"] = CloudProviderError("in use")
    bench.start()  # it knows what the Service shows, and nothing of how it was built
    if tried:
        bench.settle()
    _kind(bench, None, type="LoadBalancer")
    bench.settle()
    bench.cloud.fail.clear()
    bench.settle(rounds=70)
    assert _ids(bench) == {"uid-web"}


@pytest.mark.row("S28")
@pytest.mark.parametrize("restarts", ["no", "in between", "after"])
@pytest.mark.parametrize(("kind", "then"), [("network", None), (None, "network"), ("network", "classic")])
def test_the_former_one_goes_after_the_new_one_stands(
    bench: Bench, kind: str | None, then: str | None, restarts: str
) -> None:
    bench.serve(annotations={KIND: kind} if kind else {})
    _kind(bench, then)
    if restarts == "in between":
        bench.start()
    bench.forget()
    bench.settle()
    if restarts == "after":
        bench.start()
        bench.settle()
    assert _ids(bench) == {f"uid-web/{then}" if then else "uid-web"}
    assert [one for one in bench.cloud.methods() if one != "get"] == ["ensure", "delete"]
    note = there(note_of(SERVICES.parse(bench.server.services[KEY])))
    assert note.annotations == (({KIND: then},) if then else ())
    assert note.spec != "none"
    [message] = [text for text in bench.recorder.messages() if "former" in text] or [""]
    if restarts != "after":
        was, now = (f"uid-web/{one}" if one else "uid-web" for one in (kind, then))
        assert message == f"Deleted the former load balancer {was}: the Service has {now} now"


@pytest.mark.row("S28")
@pytest.mark.parametrize("restarts", [False, True])
def test_it_stays_and_gets_the_nodes_until_the_new_one_stands(bench: Bench, restarts: bool) -> None:
    bench.serve(annotations={KIND: "network"})
    bench.cloud.fail["ensure"] = CloudProviderError("quota")
    _kind(bench, "classic")
    if restarts:
        bench.start()
    bench.settle()
    bench.server.put(raw_node("n2", "10.0.0.2"))
    bench.settle()
    assert _ids(bench) == {"uid-web/network"}
    assert bench.cloud.balancers["uid-web/network"].nodes == bench.wanted_nodes()
    bench.cloud.fail.clear()
    bench.settle(rounds=70)
    assert _ids(bench) == {"uid-web/classic"}


@pytest.mark.row("S28")
def test_it_stays_while_the_new_one_has_no_address_yet(bench: Bench) -> None:
    bench.serve(annotations={KIND: "network"})
    bench.cloud.unfinished = True
    _kind(bench, "classic")
    bench.settle()
    assert _ids(bench) == {"uid-web/network", "uid-web/classic"}
    bench.cloud.unfinished = False
    bench.settle(rounds=70)
    assert _ids(bench) == {"uid-web/classic"}


@pytest.mark.row("S28")
@pytest.mark.parametrize("restarts", [False, True])
def test_a_deletion_that_fails_is_told_and_tried_again_also_by_the_next_process(bench: Bench, restarts: bool) -> None:
    bench.serve(annotations={KIND: "network"})
    bench.cloud.fail["delete"] = CloudProviderError("in use")
    _kind(bench, "classic")
    bench.settle()
    assert _ids(bench) == {"uid-web/network", "uid-web/classic"}
    assert [text for text in bench.recorder.messages("Warning") if "uid-web/network: in use" in text]
    assert "spec=none" in _note(bench)
    assert 'annotations=[{"example.com/kind":"network"},{"example.com/kind":"classic"}]' in _note(bench)
    bench.cloud.fail.clear()
    if restarts:
        bench.start()
    bench.settle(rounds=70)
    assert _ids(bench) == {"uid-web/classic"}
    assert "spec=none" not in _note(bench)


@pytest.mark.row("S28")
@pytest.mark.parametrize("restarts", [False, True])
def test_one_that_was_begun_under_a_name_that_is_taken_back_goes_too(bench: Bench, restarts: bool) -> None:
    bench.serve()
    _kind(bench, "network")
    bench.see()
    bench.cloud.faults.append(Fault(Crash() if restarts else CloudProviderError("quota"), after=True))
    if restarts:
        with pytest.raises(Crash):
            bench.work()
        bench.start()
    else:
        bench.work()
    assert _ids(bench) == {"uid-web", "uid-web/network"}
    _kind(bench, None)
    bench.settle(rounds=20)
    assert _ids(bench) == {"uid-web"}


@pytest.mark.row("S28")
def test_a_name_that_is_wanted_again_on_the_server_is_not_deleted(bench: Bench) -> None:
    bench.serve(annotations={KIND: "network"})
    _kind(bench, "classic")
    bench.see()

    def back(method: str, _: object) -> None:
        if method == "ensure":
            bench.cloud.during = lambda *_: None
            _kind(bench, "network")

    bench.cloud.during = back
    bench.work()
    assert "delete" not in bench.cloud.methods()
    bench.settle()
    assert _ids(bench) == {"uid-web/network"}


@pytest.mark.row("S28")
def test_an_annotation_that_does_not_name_it_deletes_nothing(bench: Bench) -> None:
    bench.serve()
    bench.server.edit(KEY, lambda raw: raw["metadata"]["annotations"].update({"example.com/size": "big"}))
    bench.settle()
    assert bench.cloud.methods() == ["ensure"]
    assert "annotations=" not in _note(bench)


@pytest.mark.row("S27", "S28")
@pytest.mark.parametrize(
    ("kind", "size", "noted"), [("network", 10, True), ("network", 8000, False), (None, 10, False)]
)
def test_the_note_repeats_all_annotations_if_the_name_depends_on_them_and_they_fit(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, kind: str | None, size: int, noted: bool
) -> None:
    given = {"example.com/text": "x" * size, **({KIND: kind} if kind else {})}
    name, asked = type(bench.cloud).name, []

    def counted(*args: Any) -> str:
        asked.append(args)
        return name(*args)

    monkeypatch.setattr(type(bench.cloud), "name", counted)
    bench.serve(annotations={**given, "kubectl.kubernetes.io/last-applied-configuration": "{}"})
    assert len(asked) == 2, "with its annotations, and without"
    assert there(note_of(SERVICES.parse(bench.server.services[KEY]))).annotations == ((given,) if noted else ())


@pytest.mark.row("S27")
def test_a_note_of_a_former_version_is_read_as_it_was(bench: Bench) -> None:
    bench.serve(annotations={KIND: "network"})
    assert 'annotations=[{"example.com/kind":"network"}]' in _note(bench)
    older, _, _ = _note(bench).partition(" annotations=")
    bench.server.edit(KEY, lambda raw: raw["metadata"]["annotations"].update({APPLIED: older}))
    bench.start()
    bench.settle()
    assert bench.cloud.methods() == ["get"]
    assert bench.server.patches == []


def test_a_provider_that_fails_to_name_it_builds_and_deletes_all_the_same(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> str:
        raise CloudProviderError("no name")

    monkeypatch.setattr(type(bench.cloud), "name", fail)
    bench.serve(annotations={KIND: "network"})
    assert _ids(bench) == {"uid-web/network"}
    _kind(bench, None, type="ClusterIP")
    bench.settle()
    assert bench.cloud.balancers == {}


@pytest.mark.row("S27", "S31")
def test_one_that_its_owner_keeps_in_the_last_moment_is_not_deleted_as_it_was_built(bench: Bench) -> None:
    bench.serve()

    def keep(method: str, service: V1Service) -> None:
        if method == "delete" and SIZE in annotations_of(service):
            raise LoadBalancerKept("its annotation says so")

    bench.cloud.during = keep
    bench.server.edit(KEY, lambda raw: raw["metadata"]["annotations"].update({SIZE: "kept"}))
    bench.server.delete(KEY)
    bench.settle()
    assert _ids(bench) == {"uid-web"}
    assert bench.recorder.reasons() == ["DeletingLoadBalancer", "LoadBalancerKept"]
    assert KEY not in bench.server.services


@pytest.mark.row("S27", "S31")
@pytest.mark.parametrize("error", [CloudProviderError("HTTP 500"), RetryError("busy", 5.0)])
def test_nor_when_the_cloud_fails_before_it_is_known_that_it_stays(bench: Bench, error: Exception) -> None:
    bench.serve()
    errors = [error] * 2

    def keep(method: str, service: V1Service) -> None:
        if method == "delete" and SIZE in annotations_of(service):
            raise errors.pop() if errors else LoadBalancerKept("its annotation says so")

    bench.cloud.during = keep
    bench.server.edit(KEY, lambda raw: raw["metadata"]["annotations"].update({SIZE: "kept"}))
    bench.server.delete(KEY)
    bench.settle(rounds=40)
    assert errors == []
    assert _ids(bench) == {"uid-web"}
    assert KEY not in bench.server.services


@pytest.mark.row("S27")
def test_one_whose_present_annotations_are_refused_is_deleted_as_it_was_built(bench: Bench) -> None:
    bench.serve()

    def refuse(method: str, service: V1Service) -> None:
        if method == "delete" and SIZE in annotations_of(service):
            raise CallFailed("the provider refused it") from InvalidService("there is no such size")

    bench.cloud.during = refuse
    bench.server.edit(KEY, lambda raw: raw["metadata"]["annotations"].update({SIZE: "huge"}))
    bench.server.delete(KEY)
    bench.settle(rounds=40)
    assert _ids(bench) == set()


@pytest.mark.row("S27")
def test_a_note_whose_brackets_nest_too_deep_keeps_no_load_balancer_in_the_cloud(bench: Bench) -> None:
    bench.serve()
    deep = f"v2 uid=uid-web spec=none nodes=none annotations={'[' * 5000}{']' * 5000}"
    bench.server.edit(KEY, lambda raw: raw["metadata"]["annotations"].update({APPLIED: deep}))
    bench.start()
    bench.server.delete(KEY)
    bench.settle()
    assert bench.cloud.balancers == {}


@pytest.mark.row("S27", "S31")
def test_one_that_is_kept_keeps_no_other_one_in_the_cloud(bench: Bench) -> None:
    bench.serve(annotations={KIND: "a"})
    bench.cloud.fail["delete"] = CloudProviderError("in use")
    _kind(bench, "b")
    bench.settle()
    bench.cloud.fail.clear()

    def keep(method: str, service: V1Service) -> None:
        if method == "delete" and annotations_of(service)[KIND] == "b":
            raise LoadBalancerKept("its annotation says so")

    bench.cloud.during = keep
    bench.server.delete(KEY)
    bench.settle(rounds=70)
    assert _ids(bench) == {"uid-web/b"}


@pytest.mark.row("S28")
def test_of_several_former_ones_each_goes_when_it_can_and_is_told_once(bench: Bench) -> None:
    bench.serve(annotations={KIND: "a"})
    bench.cloud.fail["delete"] = CloudProviderError("in use")
    for kind in ("b", "c", "d"):
        _kind(bench, kind)
        bench.settle()
    bench.cloud.fail.clear()

    def fail(method: str, service: V1Service) -> None:
        if method == "delete" and annotations_of(service)[KIND] == "b":
            raise CloudProviderError("in use")

    bench.cloud.during = fail
    bench.forget()
    bench.settle(rounds=600)
    assert _ids(bench) == {"uid-web/b", "uid-web/d"}
    assert sum("Deleted the former" in text for text in bench.recorder.messages()) == 2
    bench.cloud.during = lambda method, service: None
    bench.settle(rounds=70)
    assert _ids(bench) == {"uid-web/d"}
