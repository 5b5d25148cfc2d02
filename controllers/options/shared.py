"""Options that several classes hold: declared here, so that each has one default and one text.

Stage: before the first one, no I/O.
"""

from __future__ import annotations

from typing import Any, Final

from controllers.options.declare import not_empty, not_negative, option
from controllers.options.kinds import DURATION, NAME

DEFAULT_CLUSTER_NAME: Final = "kubernetes"


def cluster_name_option() -> Any:
    """The cluster's name, for the manager and for each controller that hands it to the provider."""
    return option(
        DEFAULT_CLUSTER_NAME,
        NAME,
        "cluster-name",
        "generic",
        "Name of the cluster, handed to the provider for the names of what it creates. Two clusters in one cloud "
        "account need two names.",
        check=not_empty,
        configz="KubeCloudShared.ClusterName",
    )


def drain_timeout_option() -> Any:
    """Seconds that the work under way may take to end when a controller stops; the manager says how
    many."""
    return option(30.0, DURATION, check=not_negative)
