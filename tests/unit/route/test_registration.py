"""When the route controller runs, and with what."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from cloudprovider import Interface
from cloudprovider.testing.fake import FakeCloud, FakeConfig
from controllers.catalog import CATALOG
from controllers.cloudcalls import CloudCalls
from controllers.flags.parse import parse
from controllers.registration.entry import Context
from controllers.registration.options import Options
from controllers.route.controller import RouteController
from controllers.route.registration import ENTRY, RouteOptions
from controllers.runtime.clock import SYSTEM_CLOCK
from controllers.runtime.metrics import Metrics
from tests.support.there import there


class _Anything:
    def rest(self, name: str) -> Any:
        return self

    def informer(self, resource: object) -> Any:
        return self

    lister = None


def _options(*flags: str) -> Options:
    return there(parse(["--cloud-provider=fake", "--leader-elect=false", *flags], CATALOG).options)


def context(provider: Interface, *flags: str) -> Context:
    """What the controller is built from; to close: its `cloud`."""
    metrics = Metrics()
    return Context(
        options=_options(*flags),
        clients=_Anything(),  # type: ignore[arg-type]  # not used before run
        informers=_Anything(),  # type: ignore[arg-type]
        cloud=CloudCalls(provider, metrics=metrics),
        metrics=metrics,
        clock=SYSTEM_CLOCK,
        drain=1.0,
    )


def _build(provider: Interface, *flags: str) -> Any:
    given = context(provider, *flags)
    try:
        return ENTRY.construct(given)
    finally:
        given.cloud.close()


ON = ("--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16")


def test_it_runs_where_both_flags_hold_and_the_cloud_has_routes() -> None:
    with FakeCloud() as cloud:
        assert isinstance(_build(cloud, *ON), RouteController)


@pytest.mark.parametrize("flags", [(), (*ON, "--allocate-node-cidrs=false"), (*ON, "--configure-cloud-routes=false")])
def test_it_is_off_where_one_does_not(flags: tuple[str, ...], caplog: pytest.LogCaptureFixture) -> None:
    with FakeCloud() as cloud, caplog.at_level(logging.INFO):
        assert _build(cloud, *flags) is None
    assert "--allocate-node-cidrs" in caplog.text


@pytest.mark.parametrize(
    ("flags", "warned"),
    [
        (("--cluster-cidr=10.244.0.0/16",), True),
        (("--cluster-cidr=10.244.0.0/16", "--configure-cloud-routes=false"), False),
        ((), False),
    ],
)
def test_flags_with_which_gos_manager_makes_routes_are_warned_of(
    flags: tuple[str, ...], warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with FakeCloud() as cloud:
        assert _build(cloud, *flags) is None
    assert ["give --allocate-node-cidrs" in one.getMessage() for one in caplog.records] == [True] * warned


def test_without_routes_in_the_cloud_no_flag_is_missing(caplog: pytest.LogCaptureFixture) -> None:
    with FakeCloud(FakeConfig(capabilities=("instances_v2",))) as cloud:
        assert _build(cloud, "--cluster-cidr=10.244.0.0/16") is None
    assert not caplog.records


def test_it_is_off_with_a_warning_where_the_cloud_has_no_routes(caplog: pytest.LogCaptureFixture) -> None:
    with FakeCloud(FakeConfig(capabilities=("instances_v2",))) as cloud:
        assert _build(cloud, *ON) is None
    assert "offers no routes" in caplog.text


def test_the_cluster_cidr_must_be_given() -> None:
    with FakeCloud() as cloud, pytest.raises(ValueError, match="--cluster-cidr"):
        _build(cloud, "--allocate-node-cidrs")
    with pytest.raises(ValueError, match="--cluster-cidr"):
        RouteOptions(cluster_cidrs=()).mask_sizes()


@pytest.mark.row("R6")
@pytest.mark.parametrize(
    ("cidr", "flags", "sizes"),
    [
        ("10.244.0.0/16", (), {}),
        ("10.244.0.0/16", ("--node-cidr-mask-size=26",), {4: 26}),
        ("fd00::/56", ("--node-cidr-mask-size=72",), {6: 72}),
        ("10.244.0.0/16,fd00::/56", ("--node-cidr-mask-size-ipv4=26", "--node-cidr-mask-size-ipv6=72"), {4: 26, 6: 72}),
    ],
)
def test_the_mask_sizes_are_those_of_the_flags(cidr: str, flags: tuple[str, ...], sizes: dict[int, int]) -> None:
    assert _options(f"--cluster-cidr={cidr}", *flags).of(RouteOptions).mask_sizes() == sizes
