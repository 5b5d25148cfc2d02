"""What is known about a method's usual duration."""

import pytest

from controllers.cloudcalls.measures import CallMeasures
from controllers.runtime.metrics import Metrics


def test_the_usual_duration_follows_slowly_and_never_lies_below_the_last() -> None:
    measures = CallMeasures("test", Metrics())
    assert measures.usual("m") is None
    for now in range(1, 6):
        measures.answered("m", 0.1, float(now))
    steady = measures.usual("m")
    assert steady is not None
    assert steady[0] == pytest.approx(0.1)
    assert steady[1] == 5.0
    measures.answered("m", 20.0, 6.0)  # a stall has just ended; others will end within the same second
    assert measures.usual("m") == (20.0, 6.0)
    measures.answered("m", 0.1, 7.0)
    usual = measures.usual("m")
    assert usual is not None
    assert 1.0 < usual[0] < 5.0
    assert measures.usual("other") is None


@pytest.mark.row("M6")
def test_two_gateways_may_share_the_families() -> None:
    metrics = Metrics()
    for provider in ("a", "b"):
        CallMeasures(provider, metrics).ended("list_routes", "success", 0.2)
    for provider in ("a", "b"):
        labels = {"provider": provider, "method": "list_routes", "outcome": "success"}
        assert metrics.value("cloudprovider_api_requests_total", **labels) == 1
