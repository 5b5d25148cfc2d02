"""When the service controller runs, and with what."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest

from cloudprovider.testing.fake import FakeCloud, FakeConfig
from controllers.catalog import CATALOG
from controllers.cloudcalls import CloudCalls
from controllers.flags.parse import parse
from controllers.registration.entry import Context
from controllers.runtime.clock import SYSTEM_CLOCK
from controllers.runtime.metrics import Metrics
from controllers.service.options import ServiceOptions
from controllers.service.registration import ENTRY


class _Caught(Exception):
    def __init__(self, options: ServiceOptions) -> None:
        super().__init__()
        self.options = options


def _build(cloud: FakeCloud, *flags: str) -> Any:
    options = parse(["--cloud-provider=fake", "--leader-elect=false", *flags], CATALOG).options
    assert options is not None
    metrics = Metrics()
    calls = CloudCalls(cloud, metrics=metrics)
    try:
        return ENTRY.start(
            Context(
                options=options,
                clients=cast(Any, None),
                informers=cast(Any, None),
                cloud=calls,
                metrics=metrics,
                clock=SYSTEM_CLOCK,
                drain=30.0,
            )
        )
    finally:
        calls.close()


def _options(monkeypatch: pytest.MonkeyPatch, *flags: str) -> ServiceOptions:
    def controller(*_: object, options: ServiceOptions, **__: object) -> None:
        raise _Caught(options)

    monkeypatch.setattr("controllers.service.controller.ServiceController", controller)
    with FakeCloud() as cloud, pytest.raises(_Caught) as caught:
        _build(cloud, *flags)
    return caught.value.options


def test_the_clusters_name_reaches_the_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _options(monkeypatch, "--cluster-name=blue").cluster_name == "blue"


def test_it_is_off_where_the_cloud_has_no_load_balancers(caplog: pytest.LogCaptureFixture) -> None:
    config = FakeConfig.model_validate({"capabilities": ["instances_v2"]})
    with FakeCloud(config) as cloud, caplog.at_level(logging.WARNING):
        assert _build(cloud) is None
    assert "offers no load balancers" in caplog.text


@pytest.mark.parametrize(
    "wrong",
    [
        {"cluster_name": ""},
        {"concurrent_service_syncs": 0},
        {"node_sync_window": -1},
        {"node_sync_longest": -1},
        {"drift_check_period": -1},
        {"orphan_check_period": -1},
        {"drain_timeout": -1},
    ],
)
def test_options_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ServiceOptions(**wrong)
