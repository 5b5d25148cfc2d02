"""Options and flags: the defaults agree, Go's flag keeps its default, every flag reaches the controller's options."""

from __future__ import annotations

from typing import Any, cast

import attrs
import pytest

from controllers import nodelifecycle
from controllers.app.catalog import Context
from controllers.app.lifecycle import NodeLifecycleFlags, node_lifecycle_controller
from controllers.app.options import ManagerOptions, Options
from controllers.nodelifecycle import NodeLifecycleController, NodeLifecycleOptions


class _Caught(Exception):
    def __init__(self, options: NodeLifecycleOptions) -> None:
        super().__init__()
        self.options = options


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the controller is built with, for these flags."""

    def controller(*_: object, options: NodeLifecycleOptions, **__: object) -> None:
        raise _Caught(options)

    monkeypatch.setattr(nodelifecycle, "NodeLifecycleController", controller)

    def build(flags: NodeLifecycleFlags) -> NodeLifecycleOptions:
        nothing = cast(Any, None)
        context = Context(
            options=Options(ManagerOptions(cloud_provider="fake"), {NodeLifecycleFlags: flags}),
            clients=nothing,
            informers=nothing,
            cloud=nothing,
            metrics=nothing,
            clock=nothing,
            drain=30.0,
        )
        with pytest.raises(_Caught) as caught:
            node_lifecycle_controller(context)
        return caught.value.options

    return build


def test_the_flags_defaults_are_the_options_defaults(built: Any) -> None:
    assert built(NodeLifecycleFlags()) == NodeLifecycleOptions()
    assert NodeLifecycleFlags().node_monitor_period == 5.0, "as in Go"


@pytest.mark.parametrize("field", attrs.fields(NodeLifecycleFlags), ids=lambda field: str(field.name))
def test_every_flag_changes_the_options(built: Any, field: Any) -> None:
    value: Any = not field.default if isinstance(field.default, bool) else field.default * 0.5 or 7
    if isinstance(field.default, int) and not isinstance(field.default, bool):
        value = field.default + 1
    assert built(attrs.evolve(NodeLifecycleFlags(), **{field.name: value})) != NodeLifecycleOptions()


@pytest.mark.parametrize(
    "wrong",
    [{"node_monitor_period": 0}, {"confirmations": 0}, {"confirmation_period": -1}, {"unknown_event_after": 0}],
)
def test_options_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        NodeLifecycleOptions(**wrong)


def test_a_provider_without_instances_is_refused() -> None:
    cloud = type("Cloud", (), {"has_instances": False, "provider_name": "bare"})()
    with pytest.raises(ValueError, match="bare"):
        NodeLifecycleController(cast(Any, None), cast(Any, None), cast(Any, cloud))
