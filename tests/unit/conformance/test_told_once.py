"""What would fail every scenario is told once; a wait ends at the Event that says that waiting
cannot help."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from cloudprovider import Interface
from cloudprovider.testing.conformance import Feature, Lab
from cloudprovider.testing.conformance.base import ConformanceBase
from cloudprovider.testing.conformance.endtoend import Stage
from cloudprovider.testing.conformance.patience import Patience
from controllers.testing.handles import Event


class Unmade(ConformanceBase):
    def make_provider(self, lab: Lab) -> Interface:
        raise RuntimeError("no region, password=hunter22")


def test_a_provider_that_cannot_be_made_is_one_error() -> None:
    node = SimpleNamespace(stash=pytest.Stash(), addfinalizer=lambda _: None)
    request = cast(pytest.FixtureRequest, SimpleNamespace(node=SimpleNamespace(getparent=lambda _: node)))
    with pytest.raises(pytest.fail.Exception) as first:
        Unmade()._bench(request, Lab())
    assert "the provider cannot be made: RuntimeError: no region, password=<redacted> (" in str(first.value)
    assert f"{__file__}:" in str(first.value)
    assert first.value.pytrace is False, "no traceback of ours"
    for _ in range(2):
        with pytest.raises(pytest.skip.Exception, match="not run: the provider cannot be made"):
            Unmade()._bench(request, Lab())


@pytest.mark.parametrize("features", [["ROUTES"], "ROUTES", (Feature.ROUTES, Feature.UDP), None])
def test_features_that_are_no_features_are_told_where_they_are_declared(features: object) -> None:
    with pytest.raises(TypeError, match=r"Wrong\.features must be features joined with \|, as in "):
        type("Wrong", (ConformanceBase,), {"features": features})


class OneLook:
    """A cluster with one Event, whose wait looks once."""

    identity = ""

    def __init__(self, *events: Event) -> None:
        self._events = events

    def events(self, about: object) -> tuple[Event, ...]:
        return self._events

    def wait_until(self, condition: Any, timeout: float = 0.0, what: str = "") -> Any:
        found = condition()
        if not found:
            raise AssertionError(f"waits for {timeout:g} s")
        return found


@pytest.mark.parametrize(
    ("event", "ends"),
    [
        (Event("Warning", "InvalidInstanceMetadata", "zone: ...", 1, "node-controller"), True),
        (Event("Warning", "SyncLoadBalancerFailed", "the provider's x gave an unusable answer: y", 1, "s"), True),
        (Event("Warning", "SyncLoadBalancerFailed", "connection refused", 1, "s"), False),
        (Event("Normal", "EnsuringLoadBalancer", "", 1, "s"), False),
    ],
)
def test_a_wait_ends_at_the_event_that_says_so(event: Event, ends: bool) -> None:
    bench = SimpleNamespace(patience=Patience(Lab()))
    trial = cast(Any, SimpleNamespace(lab=Lab(), bench=bench, in_cluster=lambda _: None))
    stage, about = Stage(trial, cast(Any, OneLook(event)), cast(Any, None), 30.0), cast(Any, object())
    with pytest.raises(pytest.fail.Exception if ends else AssertionError) as caught:
        stage.wait(lambda: False, "the node is initialised", about=about)
    told = f"the node is initialised: no longer waited for, as {event.reason} says: {event.message}"
    assert str(caught.value) == (told if ends else "waits for 30 s")
    assert stage.wait(lambda: True, "it", about=about) is True, "an old Event does not count"
