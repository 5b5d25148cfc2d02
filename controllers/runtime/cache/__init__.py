"""What the API server holds, kept here (stages 1 and 2): list, watch, decode, store, tell.

Comes in: the bytes of lists and watches, from the wing `api`. Goes out: a `Lister` of each kind,
read without a copy, and calls of handlers: add, update(old, new), delete.

Read first: `watch.py`, `store.py`, `informer.py`, `handlers.py`. Imports the wing `api` only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudprovider.helpers.objects import key_of, uid_of
from controllers.runtime.cache import resources
from controllers.runtime.cache.factory import InformerFactory
from controllers.runtime.cache.informer import Registration
from controllers.runtime.cache.listing import quorum_list
from controllers.runtime.cache.resources import (
    NODES,
    MalformedObject,
    Resource,
    T,
    is_newer,
    split_key,
    version_of,
)
from controllers.runtime.cache.store import Derived, Lister

if TYPE_CHECKING:
    from controllers.runtime.cache.resources import EVENTS, PERSISTENT_VOLUMES, SERVICES

__all__ = [
    "EVENTS",
    "NODES",
    "PERSISTENT_VOLUMES",
    "SERVICES",
    "Derived",
    "InformerFactory",
    "Lister",
    "MalformedObject",
    "Registration",
    "Resource",
    "T",
    "is_newer",
    "key_of",
    "quorum_list",
    "split_key",
    "uid_of",
    "version_of",
]


def __getattr__(name: str) -> Resource[Any]:
    """The kinds that not every program reads: made when they are first asked for."""
    found: Resource[Any] = getattr(resources, name)
    return found
