"""Options that make no sense are refused, by name."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.service.options import ServiceOptions


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
