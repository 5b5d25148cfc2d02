"""What this program is called, where it names itself to people and to the cluster."""

from __future__ import annotations

from typing import Final

PROGRAM: Final = "cloud-controller-manager"
"""As the Go program: in logs, Events, metrics, files and service accounts. Never changes."""
DISTRIBUTION: Final = "kubernetes-cloud-provider"


def version() -> str:
    """Of the installed distribution; "unknown" in a source tree that is not installed."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"
