"""The methods of the fake cloud by name, and what the gate, the faults and the call log need to know of each.

Names are those of the contract, which never repeats one across capabilities. Patterns in a configuration ("instance*")
are matched against them.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import translate
from functools import lru_cache

from attrs import frozen

__all__ = ["METHODS", "Returns", "Method", "matches", "matching_methods"]


class Returns(enum.Enum):
    """What a method returns, as far as wrong answers go."""

    NOTHING = enum.auto()
    METADATA = enum.auto()
    EXISTS = enum.auto()
    SHUTDOWN = enum.auto()
    STATE = enum.auto()
    ADDRESSES = enum.auto()
    TEXT = enum.auto()
    ZONE = enum.auto()
    BALANCER = enum.auto()
    NEW_BALANCER = enum.auto()
    ROUTES = enum.auto()
    NAMES = enum.auto()
    ADDRESS = enum.auto()
    LABELS = enum.auto()
    CIDRS = enum.auto()


@frozen
class Method:
    """One method: the capability it belongs to, what it returns, whether it changes the cloud or takes many keys."""

    name: str
    capability: str
    returns: Returns
    mutating: bool = False
    batch: bool = False


_METHODS = (
    Method("initialize", "interface", Returns.NOTHING),
    Method("instance_exists", "instances_v2", Returns.EXISTS),
    Method("instance_shutdown", "instances_v2", Returns.SHUTDOWN),
    Method("instance_metadata", "instances_v2", Returns.METADATA),
    Method("instances_metadata", "instances_batch", Returns.METADATA, batch=True),
    Method("instances_state", "instances_batch", Returns.STATE, batch=True),
    Method("node_addresses", "instances", Returns.ADDRESSES),
    Method("node_addresses_by_provider_id", "instances", Returns.ADDRESSES),
    Method("instance_id", "instances", Returns.TEXT),
    Method("external_id", "instances", Returns.TEXT),
    Method("instance_type", "instances", Returns.TEXT),
    Method("instance_type_by_provider_id", "instances", Returns.TEXT),
    Method("add_ssh_key_to_all_instances", "ssh_keys", Returns.NOTHING, mutating=True),
    Method("current_node_name", "instances", Returns.TEXT),
    Method("instance_exists_by_provider_id", "instances", Returns.EXISTS),
    Method("instance_shutdown_by_provider_id", "instances", Returns.SHUTDOWN),
    Method("get_zone", "zones", Returns.ZONE),
    Method("get_zone_by_provider_id", "zones", Returns.ZONE),
    Method("get_zone_by_node_name", "zones", Returns.ZONE),
    Method("get_load_balancer", "load_balancer", Returns.BALANCER),
    Method("get_load_balancer_name", "load_balancer", Returns.TEXT),
    Method("load_balancer_revision", "load_balancer", Returns.TEXT),
    Method("ensure_load_balancer", "load_balancer", Returns.NEW_BALANCER, mutating=True),
    Method("update_load_balancer", "load_balancer", Returns.NOTHING, mutating=True),
    Method("ensure_load_balancer_deleted", "load_balancer", Returns.NOTHING, mutating=True),
    Method("owned_load_balancers", "load_balancer", Returns.NAMES),
    Method("list_routes", "routes", Returns.ROUTES),
    Method("create_route", "routes", Returns.NOTHING, mutating=True),
    Method("delete_route", "routes", Returns.NOTHING, mutating=True),
    Method("pod_cidrs", "pod_cidrs", Returns.CIDRS, batch=True),
    Method("get_labels_for_volume", "pv_labeler", Returns.LABELS),
    Method("local_metadata", "local_instance", Returns.METADATA),
    Method("local_node_name", "local_instance", Returns.TEXT),
    Method("list_clusters", "clusters", Returns.NAMES),
    Method("master", "clusters", Returns.ADDRESS),
)
METHODS: Mapping[str, Method] = {method.name: method for method in _METHODS}


@lru_cache(maxsize=512)
def _compiled(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{translate(pattern)})" for pattern in patterns))


def matches(patterns: Sequence[str], names: Iterable[str]) -> bool:
    """Whether any of the names matches any of the shell-style patterns, case and all. Empty names never match."""
    pattern = _compiled(tuple(patterns))
    return any(name and pattern.match(name) for name in names)


def matching_methods(patterns: Sequence[str]) -> list[Method]:
    """The methods whose names match any of the patterns."""
    return [method for method in _METHODS if matches(patterns, (method.name,))]
