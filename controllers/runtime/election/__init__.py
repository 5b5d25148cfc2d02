"""Leader election on a Lease: who of several replicas works, and proof of it at every write.

Comes in: the settings (`settings.py`) and the Lease as the API server has it (`leases.py`,
`watching.py`). Goes out: whether this process leads (`elector.py`), the fence that every write asks
(`fence.py`), and what is written into the Lease (`record.py`, pure).

Read first: `elector.py`, `fence.py`. Imports the wing `api` only."""

from typing import TYPE_CHECKING

from cloudprovider.internal.lazy import lazy

if TYPE_CHECKING:
    from controllers.runtime.election.elector import Elector
    from controllers.runtime.election.fence import Fence, LeaseLost
    from controllers.runtime.election.settings import Callbacks, LeaseSettings, wrong_durations, wrong_names
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "controllers.runtime.election.elector": "Elector",
            "controllers.runtime.election.fence": "Fence LeaseLost",
            "controllers.runtime.election.settings": ("Callbacks LeaseSettings wrong_durations wrong_names"),
        },
    )

__all__ = [
    "Callbacks",
    "Elector",
    "Fence",
    "LeaseLost",
    "LeaseSettings",
    "wrong_durations",
    "wrong_names",
]
