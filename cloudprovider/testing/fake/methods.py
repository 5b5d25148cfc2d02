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

__all__ = ["METHODS", "Answer", "Method", "matches", "matching_methods"]


class Answer(enum.Enum):
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


@frozen
class Method:
    """One method: the capability it belongs to, what it returns, whether it changes the cloud or takes many keys."""

    name: str
    capability: str
    answer: Answer
    mutating: bool = False
    batch: bool = False


_METHODS = (
    Method("initialize", "interface", Answer.NOTHING),
    Method("instance_exists", "instances_v2", Answer.EXISTS),
    Method("instance_shutdown", "instances_v2", Answer.SHUTDOWN),
    Method("instance_metadata", "instances_v2", Answer.METADATA),
    Method("instances_metadata", "instances_batch", Answer.METADATA, batch=True),
    Method("instances_state", "instances_batch", Answer.STATE, batch=True),
    Method("node_addresses", "instances", Answer.ADDRESSES),
    Method("node_addresses_by_provider_id", "instances", Answer.ADDRESSES),
    Method("instance_id", "instances", Answer.TEXT),
    Method("external_id", "instances", Answer.TEXT),
    Method("instance_type", "instances", Answer.TEXT),
    Method("instance_type_by_provider_id", "instances", Answer.TEXT),
    Method("add_ssh_key_to_all_instances", "instances", Answer.NOTHING, mutating=True),
    Method("current_node_name", "instances", Answer.TEXT),
    Method("instance_exists_by_provider_id", "instances", Answer.EXISTS),
    Method("instance_shutdown_by_provider_id", "instances", Answer.SHUTDOWN),
    Method("get_zone", "zones", Answer.ZONE),
    Method("get_zone_by_provider_id", "zones", Answer.ZONE),
    Method("get_zone_by_node_name", "zones", Answer.ZONE),
    Method("get_load_balancer", "load_balancer", Answer.BALANCER),
    Method("get_load_balancer_name", "load_balancer", Answer.TEXT),
    Method("load_balancer_revision", "load_balancer", Answer.TEXT),
    Method("ensure_load_balancer", "load_balancer", Answer.NEW_BALANCER, mutating=True),
    Method("update_load_balancer", "load_balancer", Answer.NOTHING, mutating=True),
    Method("ensure_load_balancer_deleted", "load_balancer", Answer.NOTHING, mutating=True),
    Method("owned_load_balancers", "load_balancer", Answer.NAMES),
    Method("list_routes", "routes", Answer.ROUTES),
    Method("create_route", "routes", Answer.NOTHING, mutating=True),
    Method("delete_route", "routes", Answer.NOTHING, mutating=True),
    Method("get_labels_for_volume", "pv_labeler", Answer.LABELS),
    Method("list_clusters", "clusters", Answer.NAMES),
    Method("master", "clusters", Answer.ADDRESS),
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
