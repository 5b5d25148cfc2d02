"""What is known about a method's usual duration."""

import pytest

from controllers.cloudcalls.metrics import CallMetrics
from controllers.runtime.metrics import Metrics
from tests.support.there import there


def test_the_usual_duration_follows_slowly_and_never_lies_below_the_last() -> None:
    call_metrics = CallMetrics("test", Metrics())
    assert call_metrics.usual("m") is None
    for now in range(1, 6):
        call_metrics.answered("m", 0.1, float(now))
    steady = there(call_metrics.usual("m"))
    assert steady[0] == pytest.approx(0.1)
    assert steady[1] == 5.0
    call_metrics.answered("m", 20.0, 6.0)  # a stall has just ended; others will end within the same second
    assert call_metrics.usual("m") == (20.0, 6.0)
    call_metrics.answered("m", 0.1, 7.0)
    usual = there(call_metrics.usual("m"))
    assert 1.0 < usual[0] < 5.0
    assert call_metrics.usual("other") is None


@pytest.mark.row("M6")
def test_two_gateways_may_share_the_families() -> None:
    metrics = Metrics()
    for provider in ("a", "b"):
        CallMetrics(provider, metrics).ended("list_routes", "success", 0.2)
    for provider in ("a", "b"):
        labels = {"provider": provider, "method": "list_routes", "outcome": "success"}
        assert metrics.value("cloudprovider_api_requests_total", **labels) == 1
