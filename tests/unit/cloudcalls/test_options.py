"""Options that make no sense are refused, by name."""

from typing import Any

import pytest

from controllers.cloudcalls import CloudCallOptions


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("timeout", 0),
        ("concurrency", 0),
        ("qps", -1),
        ("burst", -1),
        ("max_abandoned", -1),
        ("patience", 0),
        ("lone_patience", 0),
        ("cache_ttl", -0.1),
        ("snapshots", 0),
        ("build_timeout", 0),
    ],
)
def test_nonsense_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        CloudCallOptions(**{name: value})
