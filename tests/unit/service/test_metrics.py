"""How long Services wait for their first address."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.runtime.cache import SERVICES
from controllers.runtime.metrics import Metrics
from controllers.service.controller import AddressWatch
from tests.support.clock import FakeClock
from tests.support.controllers import Lister
from tests.unit.service.objects import raw_service

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
