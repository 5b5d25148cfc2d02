"""The flags of `teardown` besides the manager's own. No I/O."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from controllers.options import BOOL, DURATION, STRING, option, positive

SECTION: Final = "teardown"


@frozen(kw_only=True)
class TeardownOptions:
    """What is deleted, and for how long it is tried."""

    yes: bool = option(False, BOOL, "yes", SECTION, "Delete what is shown. Without this flag nothing is changed.")
    wait: float = option(
        900.0,
        DURATION,
        "wait",
        SECTION,
        "With --yes, how long the cloud is asked until nothing is left. Then what is left is shown.",
        check=positive,
    )
    also_kept: bool = option(
        False,
        BOOL,
        "also-kept",
        SECTION,
        "Delete load balancers, too, that were kept on purpose when their Services were deleted.",
    )
    cluster_identity: str = option(
        "",
        STRING,
        "cluster-identity",
        SECTION,
        "UID of the cluster's namespace kube-system. With --yes it is needed for a cluster with the default name, "
        "which others may have: giving it says that you have looked at the list. Compared with the API server's where "
        "--kubeconfig or --master is given.",
    )
