"""What can be set about cloud calls (stage 5). The manager fills it from the --cloud-api-* flags; see each field."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

from attrs import Attribute, field, frozen

__all__ = ["CloudCallOptions"]

Validator = Callable[[object, "Attribute[Any]", Any], None]

_PATIENT = {
    "initialize": 300.0,
    "ensure_load_balancer": 300.0,
    "update_load_balancer": 300.0,
    "ensure_load_balancer_deleted": 300.0,
}


def _number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _at_least(lowest: float) -> Validator:
    def check(_: object, attribute: Attribute[Any], value: object) -> None:
        if not _number(value) or value < lowest:
            raise ValueError(f"{attribute.name} must be a number >= {lowest:g}, not {value!r}")

    return check


def _whole(lowest: int) -> Validator:
    def check(_: object, attribute: Attribute[Any], value: object) -> None:
        if not _number(value) or not isinstance(value, int) or value < lowest:
            raise ValueError(f"{attribute.name} must be a whole number >= {lowest}, not {value!r}")

    return check


def _positive(_: object, attribute: Attribute[Any], value: object) -> None:
    if not _number(value) or value <= 0:
        raise ValueError(f"{attribute.name} must be a number > 0, not {value!r}")


def _timeouts(_: object, attribute: Attribute[Any], value: Mapping[str, object]) -> None:
    for method, seconds in value.items():
        if not _number(seconds) or seconds <= 0:
            raise ValueError(f"{attribute.name}[{method!r}] must be a number > 0, not {seconds!r}")


@frozen(kw_only=True)
class CloudCallOptions:
    """Limits of the gateway. Raises ValueError, naming the field, when a value makes no sense."""

    timeout: float = field(default=60.0, validator=_positive)
    """Seconds that one vendor call may take (--cloud-api-timeout). Then its caller goes on, its key is parked until the
    call ends, and health shows it. Time spent waiting for a turn does not count."""

    timeouts: Mapping[str, float] = field(default=_PATIENT, converter=dict, validator=_timeouts)
    """Seconds for single methods where more than `timeout` is usual: many clouds return from building a load balancer
    only when it serves. The longer of the two counts."""

    concurrency: int = field(default=40, validator=_whole(1))
    """Vendor calls under way at once (--cloud-api-concurrency). An eighth is kept for calls about nodes (see
    `turns.py`). Overdue ones no longer count: see max_abandoned."""

    qps: float = field(default=0.0, validator=_at_least(0))
    """Vendor calls started per second (--cloud-api-qps); 0 for no limit but the cloud's own Throttled answers."""

    burst: int = field(default=0, validator=_whole(0))
    """Calls that may start at once after a quiet time (--cloud-api-burst); 0 for one second's worth. Needs qps."""

    max_abandoned: int = field(default=128, validator=_whole(0))
    """Overdue calls that still hold a thread. One more, and health turns fatal: the manager ends the process with 1,
    because threads cannot be taken back from code that never returns."""

    patience: float = field(default=2.0, validator=_positive)
    """Seconds after which a batch is split without waiting for its timeout, provided that the same method has answered
    others meanwhile, and that this batch already took four times as long as they do."""

    lone_patience: float = field(default=5.0, validator=_positive)
    """Seconds after which one batch is split although no other call of its method was answered meanwhile: an instance
    that hangs must not keep the others of a lone batch waiting for the timeout."""

    cache_ttl: float = field(default=0.0, validator=_at_least(0))
    """Seconds for which an instance's metadata may be answered from memory; 0 turns it off. Meant to be the period of
    one poll. Never used for fresh questions, and no state is ever remembered."""

    snapshots: int = field(default=512, validator=_whole(1))
    """Objects of which a copy for the provider is kept at most, about 12 KB for a node. The longest list (a load
    balancer's nodes, a batch) is kept besides."""

    def timeout_of(self, method: str) -> float:
        """The seconds that a call of this method may take."""
        return max(self.timeout, self.timeouts.get(method, 0.0))
