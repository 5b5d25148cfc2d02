"""The kit for tests with the manager: what the pytest plugin's fixtures `cluster` and `manager` are
made of. Nothing that runs in production imports it. Read first: `plugin.py`, `cluster.py`,
`managerrun.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudprovider.internal.lazy import lazy

if TYPE_CHECKING:
    from controllers.testing.cluster import Cluster
    from controllers.testing.handles import Event, NodeHandle, ServiceHandle
    from controllers.testing.managerrun import ManagerRun, Program
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "controllers.testing.cluster": "Cluster",
            "controllers.testing.handles": "Event NodeHandle ServiceHandle",
            "controllers.testing.managerrun": "ManagerRun Program",
        },
    )

__all__ = ["Cluster", "NodeHandle", "ServiceHandle", "Event", "ManagerRun", "Program"]
