"""What can be set about cloud calls (stage 5) by flags. Stage: before the first one, no I/O."""

from __future__ import annotations

from typing import Final

from attrs import frozen

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

_SECTION: Final = "cloud calls"


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
    build_timeout: float = option(
        300.0,
        DURATION,
        "cloud-api-build-timeout",
        _SECTION,
        "Deadline of a provider call that builds, changes or deletes a load balancer, starts the provider or installs "
        "an SSH key, where it is longer than --cloud-api-timeout. A call that needs more than --cloud-api-timeout is "
        "reported then.",
        check=positive,
    )
    """Many clouds return from building a load balancer only when it serves, and an SSH key may go
    to thousands of machines."""

    concurrency: int = option(
        64,
        INT,
        "cloud-api-concurrency",
        _SECTION,
        "Maximum number of provider calls at the same time, for all controllers together. An eighth is reserved "
        "for calls about nodes, and an eighth of the rest for namespaces that have no call at the moment.",
        check=between(1, 1000),
    )
    """See `CallQueue`. Overdue calls no longer count: see max_abandoned."""
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
    """Overdue calls that still hold a thread. One more, and health turns fatal: the manager ends
    the process with 1, because threads cannot be taken back from code that never returns."""
