"""What we change in the cluster (stage 6): minimal patches, and Events for people.

Comes in: patches that the controllers' pure `changes.py` made, and what happened to an object. Goes
out: PATCH requests, computed again after a conflict (`patches.py`); Events, counted and combined,
written beside the work (`events.py`).

Read first: `patches.py`, `events.py`. Imports the wing `api` only.
"""

from controllers.runtime.write.correlation import Reference, timestamp
from controllers.runtime.write.events import EventRecorder
from controllers.runtime.write.patches import (
    ObjectReplaced,
    Patch,
    addresses_replaced,
    apply,
    changed,
    combined,
    condition_set,
    finalizer_added,
    finalizer_removed,
    patch,
    taints_changed,
    to_json,
)

__all__ = [
    "EventRecorder",
    "ObjectReplaced",
    "Patch",
    "Reference",
    "addresses_replaced",
    "apply",
    "changed",
    "combined",
    "condition_set",
    "finalizer_added",
    "finalizer_removed",
    "patch",
    "taints_changed",
    "timestamp",
    "to_json",
]
