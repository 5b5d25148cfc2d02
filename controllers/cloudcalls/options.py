"""What can be set about cloud calls (stage 5), with its flags. Stage: before the first one, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from attrs import Attribute, field, frozen

from controllers.options import (
    DURATION,
    FLOAT,
    INT,
    between,
    no_limit_at_zero,
    not_negative,
    option,
    positive,
)

__all__ = ["CloudCallOptions"]

_SECTION: Final = "cloud calls"
_PATIENT = {
    "initialize": 300.0,
    "ensure_load_balancer": 300.0,
    "update_load_balancer": 300.0,
    "ensure_load_balancer_deleted": 300.0,
    "add_ssh_key_to_all_instances": 300.0,
}


def _timeouts(_: object, attribute: Attribute[Any], value: Mapping[str, object]) -> None:
    for method, seconds in value.items():
        wrong = DURATION.mistyped(seconds) or positive(cast(float, seconds))
        if wrong:
            raise ValueError(f"{attribute.name}[{method!r}]={seconds!r}: {wrong}")


@frozen(kw_only=True)
class CloudCallOptions:
    """Limits of the gateway. Raises ValueError, naming the field, when a value makes no sense."""

    timeout: float = option(
        60.0,
        DURATION,
        "cloud-api-timeout",
        _SECTION,
        "Deadline of one call to the provider. After it, other objects continue, and the object is retried when "
        "the call has ended.",
        check=positive,
    )
    """Time spent waiting for a turn does not count."""
    timeouts: Mapping[str, float] = field(default=_PATIENT, converter=dict, validator=_timeouts)
    """Seconds for single methods where more than `timeout` is usual: many clouds return from building a load balancer
    only when it serves, and an SSH key may go to thousands of machines. The longer of the two counts."""

    concurrency: int = option(
        40,
        INT,
        "cloud-api-concurrency",
        _SECTION,
        "Maximum number of provider calls at the same time, for all controllers together. An eighth is reserved "
        "for calls about nodes, and an eighth of the rest for namespaces that have no call at the moment.",
        check=between(1, 1000),
    )
    """See `turns.py`. Overdue calls no longer count: see max_abandoned."""
    qps: float = option(
        0.0,
        FLOAT,
        "cloud-api-qps",
        _SECTION,
        "Limit of calls to the provider per second. 0: no limit; calls still slow down when the cloud throttles.",
        check=no_limit_at_zero,
    )
    burst: int = option(
        0,
        INT,
        "cloud-api-burst",
        _SECTION,
        "Burst of calls above --cloud-api-qps. 0: as many as one second allows.",
        check=no_limit_at_zero,
    )
    max_abandoned: int = option(128, INT, check=not_negative)
    """Overdue calls that still hold a thread. One more, and health turns fatal: the manager ends the process with 1,
    because threads cannot be taken back from code that never returns."""

    patience: float = option(2.0, DURATION, check=positive)
    """Seconds after which a batch is split without waiting for its timeout, provided that the same method has answered
    others meanwhile, and that this batch already took four times as long as they do."""

    lone_patience: float = option(5.0, DURATION, check=positive)
    """Seconds after which one batch is split although no other call of its method was answered meanwhile: an instance
    that hangs must not keep the others of a lone batch waiting for the timeout."""

    cache_ttl: float = option(5.0, DURATION, check=not_negative)
    """Seconds for which an instance's metadata may be answered from memory; 0 turns it off. One poll's answers serve
    the next question. Never used for fresh questions, and no state is ever remembered."""

    snapshots: int = option(512, INT, check=positive)
    """Objects of which a copy for the provider is kept at most, about 12 KB for a node. The longest list (a load
    balancer's nodes, a batch) is kept besides."""

    def timeout_of(self, method: str) -> float:
        """The seconds that a call of this method may take."""
        return max(self.timeout, self.timeouts.get(method, 0.0))
