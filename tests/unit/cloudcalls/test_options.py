"""Options that make no sense are refused, by name."""

from typing import Any

import pytest

from controllers.cloudcalls import CloudCallOptions


def test_defaults_are_valid() -> None:
    options = CloudCallOptions()
    assert options.concurrency == 40
    assert options.cache_ttl == 5
    assert CloudCallOptions(build_timeout=1.0).timeout_of("ensure_load_balancer") == options.timeout


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("timeout", 0),
        ("timeout", -1),
        ("timeout", float("nan")),
        ("timeout", float("inf")),
        ("timeout", "60"),
        ("concurrency", 0),
        ("concurrency", 1.5),
        ("concurrency", True),
        ("qps", -1),
        ("burst", -1),
        ("burst", 0.5),
        ("max_abandoned", -1),
        ("patience", 0),
        ("cache_ttl", -0.1),
        ("snapshots", 0),
        ("build_timeout", 0),
    ],
)
def test_nonsense_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        CloudCallOptions(**{name: value})
