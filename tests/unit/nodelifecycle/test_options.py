"""Options that make no sense, and a provider that offers nothing, are refused."""

from __future__ import annotations

from typing import Any, cast

import pytest

from controllers.nodelifecycle.controller import NodeLifecycleController
from controllers.nodelifecycle.options import BreakerOptions, NodeLifecycleOptions


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        *(
            (NodeLifecycleOptions, wrong)
            for wrong in (
                {"node_monitor_period": 0},
                {"confirmations": 0},
                {"confirmation_period": -1},
                {"unknown_event_after": 0},
            )
        ),
        *(
            (BreakerOptions, wrong)
            for wrong in (
                {"at_least": -1},
                {"share": 1.1},
                {"share": -0.1},
                {"window": 0},
                {"trickle": -1},
                {"release_after": -1},
            )
        ),
    ],
)
def test_options_that_make_no_sense_are_refused(kind: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        kind(**wrong)


def test_a_provider_without_instances_is_refused() -> None:
    cloud = type("Cloud", (), {"has_instances": False, "provider_name": "bare"})()
    with pytest.raises(ValueError, match="bare"):
        NodeLifecycleController(cast(Any, None), cast(Any, None), cast(Any, cloud))
