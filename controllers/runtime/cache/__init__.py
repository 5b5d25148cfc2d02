"""What the API server holds, kept here (stages 1 and 2): list, watch, decode, store, tell.

Comes in: the bytes of lists and watches, from the wing `api`. Goes out: a `Lister` of each kind,
read without a copy, and calls of handlers: add, update(old, new), delete.

Read first: `watch.py`, `store.py`, `informer.py`, `handlers.py`. Imports the wing `api` only.
"""

from cloudprovider.helpers.objects import key_of, uid_of
from controllers.runtime.cache.factory import InformerFactory
from controllers.runtime.cache.informer import Registration
from controllers.runtime.cache.listing import quorum_list
from controllers.runtime.cache.resources import (
    DECISIONS,
    ENDPOINT_SLICES,
    EVENTS,
    KUBELET_SERVING,
    KUBELET_SERVING_REQUESTS,
    LONGEST_REQUEST,
    NODES,
    PERSISTENT_VOLUMES,
    SERVICES,
    DecodeError,
    MalformedObject,
    Resource,
    T,
    is_newer,
    list_meta,
    service_of,
    split_key,
    version_of,
)
from controllers.runtime.cache.store import Derived, Lister

__all__ = [
    "ENDPOINT_SLICES",
    "DECISIONS",
    "EVENTS",
    "KUBELET_SERVING",
    "KUBELET_SERVING_REQUESTS",
    "LONGEST_REQUEST",
    "NODES",
    "PERSISTENT_VOLUMES",
    "SERVICES",
    "Derived",
    "DecodeError",
    "InformerFactory",
    "Lister",
    "MalformedObject",
    "Registration",
    "Resource",
    "T",
    "is_newer",
    "key_of",
    "list_meta",
    "quorum_list",
    "service_of",
    "split_key",
    "uid_of",
    "version_of",
]
