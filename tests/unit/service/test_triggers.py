"""Which events ask for work, and how urgently: rows S1, S5, S6, S8, S9, S11. What they count."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes.client.models.v1_service import V1Service

from controllers.runtime.cache import SERVICES
from controllers.runtime.metrics import Metrics
from controllers.service.changes import APPLIED
from controllers.service.controller import CHANGED, DELETED, NEW, AddressWatch
from controllers.service.reconcile import DRIFT, REFRESH
from controllers.service.records import Record
from tests.support.clock import FakeClock
from tests.support.controllers import Lister
from tests.unit.service.bench import Bench
from tests.unit.service.objects import FINALIZER, node, raw_service, service

POINT = {"ip": "192.0.2.1"}
KEY = "default/web"
PLAIN: dict[str, Any] = {"type": "ClusterIP"}
OURS: dict[str, Any] = {"finalizers": [FINALIZER]}
NOTED: dict[str, Any] = {"annotations": {APPLIED: "v2 uid=uid-web spec=none nodes=none"}}
CLASSED: dict[str, Any] = {"loadBalancerClass": "example.com/other"}


@pytest.fixture
def bench() -> Bench:
    return Bench()


def _known(bench: Bench) -> None:
    bench.records.put(KEY, Record(service=service(), uid="uid-web"))


@pytest.mark.row("S8")
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, [KEY]),
        (PLAIN, []),
        (CLASSED, []),
        ({**CLASSED, **OURS}, []),
        ({**CLASSED, **OURS, **NOTED}, [KEY]),
        ({**PLAIN, **OURS, **NOTED}, [KEY]),
        ({**OURS, **NOTED, "deleted": True}, [KEY]),
    ],
)
def test_services_that_want_a_load_balancer_or_may_have_one(
    bench: Bench, fields: dict[str, Any], expected: list[str]
) -> None:
    bench.triggers.on_add(service(**fields), True)
    assert bench.waiting() == expected
    bench.clock.advance(1)
    bench.triggers.on_delete(service(**fields))
    assert bench.waiting() == expected
    bench.clock.advance(1)
    bench.triggers.on_update(service(**fields), service(**fields | {"uid": "other"}))
    assert bench.waiting() == expected


@pytest.mark.row("S14")
@pytest.mark.parametrize("fields", [{**PLAIN, **OURS}, {**PLAIN, **OURS, "deleted": True}])
def test_one_that_shows_no_proof_is_asked_about_while_it_is_there(bench: Bench, fields: dict[str, Any]) -> None:
    bench.triggers.on_add(service(**fields), True)
    assert bench.waiting() == [KEY]
    bench.clock.advance(1)
    bench.triggers.on_delete(service(**fields))
    assert bench.waiting() == []


@pytest.mark.row("S11")
def test_one_that_we_remember_is_looked_at_whatever_it_is_now(bench: Bench) -> None:
    _known(bench)
    bench.triggers.on_add(service(**PLAIN), False)
    assert bench.waiting() == [KEY]
    bench.clock.advance(1)
    bench.triggers.on_delete(service(**PLAIN))
    assert bench.waiting() == [KEY]
    bench.clock.advance(1)
    bench.triggers.on_update(service(**PLAIN), service(**PLAIN, uid="other"))
    assert bench.waiting() == [KEY]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (service(), service(version="2", selector={"app": "x"}), []),
        (service(), service(port=81), [KEY]),
        (service(), service(annotations={"a": "b"}), [KEY]),
        (service(annotations={"a": "b"}), service(), [KEY]),
        (service(**OURS), service(**OURS, **NOTED), [KEY]),
        (service(), service(ingress=[POINT]), [KEY]),
        (service(ingress=[POINT]), service(ingress=[{"ip": "192.0.2.2"}]), []),
        (service(**OURS), service(), [KEY]),
        (service(), service(**PLAIN), [KEY]),
        (service(**PLAIN), service(), [KEY]),
        (service(**OURS), service(**OURS, deleted=True), [KEY]),
        (service(**OURS), service(**OURS, **CLASSED), [KEY]),
        (service(**OURS, **CLASSED), service(**OURS, **PLAIN), [KEY]),
        (service(**CLASSED), service(**OURS, **CLASSED), []),
        (service(**PLAIN), service(**PLAIN, port=81), []),
        (service(**PLAIN, **OURS), service(**PLAIN, **OURS, port=81, annotations={"a": "b"}), []),
        (service(**PLAIN, **OURS), service(**PLAIN, **OURS, deleted=True), [KEY]),
        (service(**OURS), service(finalizers=["example.com/x", FINALIZER]), []),
        (service(**PLAIN, finalizers=["x"]), service(**PLAIN, finalizers=["x"], deleted=True), []),
    ],
)
def test_updates_do_when_something_relevant_changed(
    bench: Bench, old: V1Service, new: V1Service, expected: list[str]
) -> None:
    bench.triggers.on_update(old, new)
    assert bench.waiting() == expected


@pytest.mark.row("S5")
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, NEW),
        ({"ingress": [POINT]}, CHANGED),
        ({**OURS, "ingress": [POINT], "deleted": True}, DELETED),
        ({**OURS, **PLAIN}, DELETED),
        ({**OURS, **CLASSED}, DELETED),
        (PLAIN, DELETED),
    ],
)
def test_how_urgent_an_event_is(bench: Bench, fields: dict[str, Any], expected: int) -> None:
    bench.records.put(KEY, Record.blank(service()))
    added: list[int] = []
    bench.queue.add = lambda key, priority=0: added.append(priority)  # type: ignore[method-assign]
    bench.triggers.on_add(service(**fields), False)
    assert added == [expected]


@pytest.mark.row("S5")
def test_deleted_and_new_services_come_before_changes_and_refreshes(bench: Bench) -> None:
    assert DELETED > NEW > CHANGED > REFRESH > DRIFT
    bench.queue.add("default/refresh", REFRESH)
    bench.triggers.on_update(service("changed", ingress=[POINT], port=81), service("changed", ingress=[POINT], port=82))
    bench.triggers.on_add(service("new"), False)
    bench.triggers.on_delete(service("gone", ingress=[POINT]))
    assert bench.waiting() == ["default/gone", "default/new", "default/changed", "default/refresh"]


# ---- nodes


def _gathering(bench: Bench) -> bool:
    bench.clock.advance(1)
    return bench.node_queue.get(timeout=0) is not None


@pytest.mark.row("S6")
def test_a_change_of_the_targets_begins_a_gathering_and_touches_no_load_balancer(bench: Bench) -> None:
    _known(bench)
    bench.sync.on_add(node(), False)
    assert bench.waiting() == []
    assert len(bench.node_queue) == 0
    assert _gathering(bench)


def test_but_no_other_change(bench: Bench) -> None:
    bench.sync.on_update(node(), node(ready="False", version="2"))
    bench.sync.on_add(node(deleted=True), False)
    assert not _gathering(bench)


def test_the_first_listing_is_no_change_but_is_seen(bench: Bench) -> None:
    assert bench.targets.current().nodes == ()
    bench.nodes.objects["n1"] = node()
    bench.sync.on_add(node(), True)
    assert not _gathering(bench)
    assert bench.targets.current().nodes == (node(),)


# ---- how long Services wait for their first address

SUM, COUNT = (f"service_controller_load_balancer_address_delay_seconds_{part}" for part in ("sum", "count"))


def seen(*, type: str = "LoadBalancer", address: str = "", created: str = "") -> Any:
    raw = raw_service(type=type)
    raw["metadata"] |= {"resourceVersion": "1"} | ({"creationTimestamp": created} if created else {})
    raw["status"] = {"loadBalancer": {"ingress": [{"ip": address}]} if address else {}}
    return SERVICES.parse(raw)


@pytest.mark.row("O23")
def test_a_service_counts_from_when_it_became_a_load_balancer(clock: FakeClock) -> None:
    metrics = Metrics()
    watch = AddressWatch(metrics, Lister[Any](), clock)  # type: ignore[arg-type]  # a double
    year_old = "2020-01-01T00:00:00Z"
    plain = seen(type="ClusterIP", created=year_old)
    waits, served = seen(created=year_old), seen(created=year_old, address="192.0.2.1")
    watch.on_update(plain, waits)
    clock.advance(20)
    watch.on_update(waits, served)
    assert (metrics.value(SUM), metrics.value(COUNT)) == (20, 1)
    watch.on_update(served, plain)
    watch.on_update(plain, waits)
    watch.on_delete(waits)
    assert watch._began == {}
