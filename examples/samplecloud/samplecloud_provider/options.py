"""The flags of this vendor's program, beside those that every cloud-controller-manager has.

`main.py` hands the classes to `main(flags=...)` and to its controller's entry; parsing, checks and
--help follow.
"""

from __future__ import annotations

from attrs import frozen

from controllers.options import DURATION, PATH, STRING, drain_timeout_option, not_empty, option, positive


@frozen(kw_only=True)
class SampleCloudOptions:
    """For the provider: its factory gets them as `config.of(SampleCloudOptions)`."""

    state_file: str = option(
        "", PATH, "samplecloud-state-file", "samplecloud", "Where the cloud lives. Empty: as the configuration says."
    )


@frozen(kw_only=True)
class PoolOptions:
    """For the controller of pools."""

    label: str = option(
        "pool", STRING, "samplecloud-pool-label", "samplecloud-pool-controller", "The label of a node's pool.",
        check=not_empty,
    )  # fmt: skip
    period: float = option(
        60.0, DURATION, "samplecloud-pool-period", "samplecloud-pool-controller", "How often the nodes are counted.",
        check=positive,
    )  # fmt: skip
    drain_timeout: float = drain_timeout_option()
