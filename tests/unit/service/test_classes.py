"""--load-balancer-classes: several managers in one cluster, each with its classes. All of them use
one finalizer and one annotation, and none touches what another built."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudprovider import CloudProviderError, OwnedLoadBalancer
from cloudprovider.wellknown import SERVICE_TYPE_LOAD_BALANCER
from controllers.options.declare import fill, flags_of
from controllers.runtime.cache import SERVICES
from controllers.service.changes import APPLIED, WITHOUT_CLASS, Classes, Note, Ownership, note_of
from controllers.service.orphans import orphans
from controllers.service.records import LOOKING
from controllers.service.registration import ServiceOptions
from tests.support.controllers import Fault, Raw
from tests.unit.service.bench import Bench
from tests.unit.service.objects import FINALIZER, raw_service, service

KEY = "default/web"
ACME, OTHER = "acme.example/lb", "other.example/lb"
POINT = {"ip": "203.0.113.9"}
CLASSED: dict[str, Any] = {"loadBalancerClass": ACME}


def _noted(lb_class: str, uid: str = "uid-web") -> dict[str, str]:
    return {APPLIED: str(Note(uid, lb_class=lb_class))}


def _bench(*classes: str) -> Bench:
    return Bench("n1", classes=classes)


def _web(bench: Bench) -> Raw:
    return bench.server.services[KEY]


def _note(bench: Bench) -> Note | None:
    return note_of(SERVICES.parse(dict(_web(bench))))


def _taken_over_by(bench: Bench, *classes: str) -> Bench:
    """Another manager begins, with these classes and the same cloud; the former one ends."""
    bench.classes = Classes(classes)
    bench.start()
    bench.forget()
    bench.settle()
    return bench


# ---- what a Service asks of a manager


HELD: dict[str, Any] = {"finalizers": [FINALIZER]}
PLAIN: dict[str, Any] = {"type": "ClusterIP", **HELD}


@pytest.mark.row("S14")
@pytest.mark.parametrize(
    ("fields", "acme", "default", "both"),
    [
        # with a class
        (CLASSED, "KEEP", "NONE", "KEEP"),
        ({**CLASSED, **HELD, "deleted": True}, "REMOVE", "NONE", "REMOVE"),
        ({**CLASSED, **HELD, "annotations": _noted("")}, "KEEP", "REMOVE", "KEEP"),
        ({**CLASSED, **HELD, "annotations": _noted(ACME)}, "KEEP", "NONE", "KEEP"),
        ({**CLASSED, **HELD, "annotations": _noted(ACME), "deleted": True}, "REMOVE", "NONE", "REMOVE"),
        ({"loadBalancerClass": OTHER, **HELD, "deleted": True}, "NONE", "NONE", "NONE"),
        ({"loadBalancerClass": OTHER, **HELD, "annotations": _noted(OTHER)}, "NONE", "NONE", "NONE"),
        ({"loadBalancerClass": OTHER, **HELD, "annotations": _noted(ACME)}, "REMOVE", "NONE", "REMOVE"),
        # without
        ({}, "NONE", "KEEP", "KEEP"),
        ({**HELD, "deleted": True}, "NONE", "REMOVE", "REMOVE"),
        ({**HELD, "annotations": _noted(ACME)}, "REMOVE", "KEEP", "KEEP"),
        ({**HELD, "annotations": _noted(ACME), "deleted": True}, "REMOVE", "REMOVE", "REMOVE"),
        # of another type now, so the class is gone
        (PLAIN, "NONE", "ASK", "ASK"),
        ({**PLAIN, "deleted": True}, "NONE", "ASK", "ASK"),
        ({**PLAIN, "annotations": _noted("")}, "NONE", "REMOVE", "REMOVE"),
        ({**PLAIN, "annotations": _noted(ACME)}, "REMOVE", "NONE", "REMOVE"),
        ({**PLAIN, "annotations": _noted(ACME), "deleted": True}, "REMOVE", "NONE", "REMOVE"),
        ({**PLAIN, "annotations": _noted(ACME, "uid-other")}, "NONE", "ASK", "ASK"),
        ({**PLAIN, "annotations": _noted(OTHER)}, "NONE", "NONE", "NONE"),
    ],
)
def test_whose_a_service_is(fields: dict[str, Any], acme: str, default: str, both: str) -> None:
    found = service(**fields)
    managers = Classes([ACME]), WITHOUT_CLASS, Classes(["", ACME])
    assert tuple(one.ownership(found).name for one in managers) == (acme, default, both)


_classes = st.sampled_from(["", ACME, OTHER])


@pytest.mark.row("S14")
@given(
    st.sampled_from([SERVICE_TYPE_LOAD_BALANCER, "ClusterIP"]),
    _classes,
    st.one_of(st.none(), _classes),
    st.booleans(),
    st.booleans(),
)
def test_two_managers_never_keep_one_service_nor_remove_for_the_same_reason(
    kind: str, lb_class: str, noted: str | None, deleted: bool, held: bool
) -> None:
    spec = {"loadBalancerClass": lb_class} if lb_class and kind == SERVICE_TYPE_LOAD_BALANCER else {}
    notes = {} if noted is None else _noted(noted)
    found = service(type=kind, annotations=notes, deleted=deleted, finalizers=[FINALIZER] * held, **spec)
    asked = [Classes([one]).ownership(found) for one in ("", ACME, OTHER)]
    assert asked.count(Ownership.KEEP) <= 1
    assert asked.count(Ownership.ASK) <= 1
    # Two remove where a type change left a note of the one on a Service of the other alone.
    moved = noted is not None and kind == SERVICE_TYPE_LOAD_BALANCER and noted != lb_class
    assert asked.count(Ownership.REMOVE) <= (2 if moved else 1)


@pytest.mark.parametrize("lb_class", ["", ACME])
def test_a_note_with_a_class_is_read_as_it_was_written(lb_class: str) -> None:
    note = Note("uid-web", "0123456789abcdef", "none", ({"a/b": "c d class=x"},), lb_class)
    assert note_of(service(annotations={APPLIED: str(note)})) == note


# ---- a manager with a class


def test_it_serves_its_class_and_no_other() -> None:
    bench = _bench(ACME)
    for name, spec in (("web", CLASSED), ("other", {"loadBalancerClass": OTHER}), ("plain", {})):
        bench.server.put(raw_service(name, **spec))
    bench.settle()
    assert {call[1] for call in bench.cloud.calls} == {KEY}
    assert _web(bench)["status"]["loadBalancer"]["ingress"]
    assert (note := _note(bench)) is not None
    assert note.lb_class == ACME
    assert {path for path, _ in bench.server.patches} == {"web", "web/status"}


def test_a_restart_asks_the_cloud_once_and_writes_nothing() -> None:
    bench = _bench(ACME)
    bench.serve(**CLASSED)
    _taken_over_by(bench, ACME)
    assert (bench.cloud.methods(), bench.server.patches) == (["get"], [])


@pytest.mark.row("S24")
def test_a_class_that_is_taken_off_the_flag_tears_nothing_down() -> None:
    """Neither while the Service stands, nor when it is deleted or gets another type: another
    manager may serve the class."""
    bench = _bench("", ACME)
    bench.serve(**CLASSED)
    _taken_over_by(bench, "")
    bench.server.set_type(KEY, "ClusterIP")
    bench.settle()
    bench.server.edit(KEY, lambda raw: raw["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"))
    bench.settle()
    assert (bench.cloud.calls, bench.server.patches, bench.recorder.events) == ([], [], [])
    assert _web(bench)["metadata"]["finalizers"] == [FINALIZER]
    _taken_over_by(bench, ACME)
    assert "delete" in bench.cloud.methods()
    assert KEY not in bench.server.services or _web(bench)["metadata"]["finalizers"] == []


def test_a_class_that_moves_to_another_manager_is_adopted() -> None:
    bench = _bench("", ACME)
    bench.serve(**CLASSED)
    _taken_over_by(bench, ACME)
    assert (bench.cloud.methods(), bench.server.patches) == (["get"], [])


# ---- a Service that goes from one class to another, by way of another type


def _moved(bench: Bench) -> None:
    bench.server.set_type(KEY, "ClusterIP")
    bench.server.set_type(KEY, SERVICE_TYPE_LOAD_BALANCER)
    bench.server.edit(KEY, lambda raw: raw["spec"].update(CLASSED))


@pytest.mark.row("S14")
def test_the_new_manager_waits_until_the_former_one_has_cleaned_up() -> None:
    """Its note in place of the other's would take away the proof that there is something to
    delete."""
    bench = _bench("")
    bench.serve()
    _moved(bench)
    _taken_over_by(bench, ACME)
    assert (bench.cloud.calls, bench.server.patches) == ([], [])
    bench.server.edit(KEY, lambda raw: raw["metadata"].update(annotations={}, finalizers=[]))
    bench.settle()
    assert bench.cloud.methods() == ["ensure"]
    assert (note := _note(bench)) is not None
    assert note.lb_class == ACME


def test_but_not_for_ever() -> None:
    bench = _bench("")
    bench.serve()
    _moved(bench)
    _taken_over_by(bench, ACME)
    bench.settle(rounds=4, step=LOOKING / 3)
    assert "ensure" in bench.cloud.methods()


@pytest.mark.row("S14")
def test_the_former_manager_leaves_what_the_new_one_wrote() -> None:
    """It was slow: the cloud failed to delete, until the Service had the other's note. In one cloud
    account the other's load balancer has the same name."""
    bench = _bench("")
    bench.serve()
    bench.cloud.faults += [Fault(CloudProviderError("busy"))] * 2
    bench.server.set_type(KEY, "ClusterIP")
    bench.see()
    bench.work()
    bench.server.set_type(KEY, SERVICE_TYPE_LOAD_BALANCER)

    def taken(raw: Raw) -> None:
        raw["spec"].update(CLASSED)
        raw["metadata"].update(annotations=_noted(ACME), finalizers=[FINALIZER])
        raw["status"] = {"loadBalancer": {"ingress": [POINT]}}

    bench.server.edit(KEY, taken)
    bench.forget()
    bench.settle(rounds=10, step=60.0)
    assert bench.cloud.methods() == []
    assert set(bench.cloud.balancers) == {"uid-web"}
    [told] = bench.recorder.messages()
    assert told.startswith(f"The manager of class {ACME} took this Service over")
    assert KEY not in bench.records
    assert bench.server.patches == []
    assert _web(bench)["metadata"]["finalizers"] == [FINALIZER]


def test_nor_does_it_delete_while_its_cache_does_not_show_that_yet() -> None:
    bench = _bench("")
    bench.serve()
    bench.server.set_type(KEY, "ClusterIP")
    bench.see()

    def taken(raw: Raw) -> None:
        raw["spec"].update(CLASSED | {"type": SERVICE_TYPE_LOAD_BALANCER})
        raw["metadata"].update(annotations=_noted(ACME), finalizers=[FINALIZER])

    bench.server.edit(KEY, taken)
    bench.work()
    assert bench.cloud.methods() == []
    bench.settle(rounds=10)
    assert set(bench.cloud.balancers) == {"uid-web"}
    assert bench.recorder.reasons()[-1] == "LoadBalancerLeft"


# ---- orphans


def _listed(name: str) -> OwnedLoadBalancer:
    return OwnedLoadBalancer(f"lb-{name}", f"default/{name}", f"uid-{name}")


@pytest.mark.parametrize("classes", [[""], [ACME], ["", ACME]])
@pytest.mark.parametrize(
    ("fields", "orphaned"),
    [
        ({}, False),
        ({**CLASSED, **HELD, "annotations": _noted(ACME)}, False),
        ({**PLAIN, "annotations": _noted(ACME)}, False),
        ({"type": "ClusterIP"}, True),
        ({"loadBalancerClass": "metallb.example/lb", **HELD}, True),
        ({"loadBalancerClass": "metallb.example/lb", **HELD, "annotations": _noted(ACME, "uid-x")}, True),
    ],
)
def test_what_another_manager_of_the_cluster_serves_is_no_orphan(
    classes: Iterable[str], fields: dict[str, Any], orphaned: bool
) -> None:
    """The managers may share the account and the cluster's name, so each lists those of all."""
    found = orphans([_listed("web")], [service(**fields)], lambda _: None, Classes(classes))
    assert bool(found) is orphaned


# ---- the flag


def _parsed(text: str) -> ServiceOptions:
    values: dict[str, Any] = {row.name: row.default for row in flags_of(ServiceOptions)}
    row = next(row for row in flags_of(ServiceOptions) if row.name == "load-balancer-classes")
    return fill(ServiceOptions, values | {row.name: row.kind.parse(text)})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ("",)),
        ('""', ("",)),
        (ACME, (ACME,)),
        (f'{ACME},""', (ACME, "")),
        (f"{ACME},", (ACME, "")),
        ("internal, external", ("internal", "external")),
    ],
)
def test_the_flag(text: str, expected: tuple[str, ...]) -> None:
    assert _parsed(text).classes == expected


def test_the_flag_shows_services_without_class_as_they_are_written() -> None:
    row = next(row for row in flags_of(ServiceOptions) if row.name == "load-balancer-classes")
    assert (row.kind.show((ACME, "")), row.kind.show(row.default)) == (f'{ACME},""', '""')


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ValueError, match="--load-balancer-classes") as raised:
        _parsed('Acme.Example/lb,"",/lb,-x')
    assert all(one in str(raised.value) for one in ("'Acme.Example/lb'", "'/lb'", "'-x'"))
    with pytest.raises(ValueError, match="must have a class"):
        ServiceOptions(classes=())
