"""The methods of the fake cloud by name, and what the gate and the call log know of each.

Names are those of the contract, which never repeats one across capabilities.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import translate
from functools import lru_cache

from attrs import frozen

Patterns = str | tuple[str, ...]
"""One or several shell-style patterns."""


@frozen
class Method:
    """One method: the capability it belongs to, whether it changes the cloud or takes many
    nodes."""

    name: str
    capability: str
    mutating: bool = False
    batch: bool = False


_READING: Mapping[str, tuple[str, ...]] = {
    "interface": ("initialize",),
    "instances_v2": ("instance_exists", "instance_shutdown", "instance_metadata"),
    "instances": (
        "node_addresses", "node_addresses_by_provider_id", "instance_id", "external_id", "instance_type",
        "instance_type_by_provider_id", "current_node_name", "instance_exists_by_provider_id",
        "instance_shutdown_by_provider_id",
    ),
    "zones": ("get_zone", "get_zone_by_provider_id", "get_zone_by_node_name"),
    "load_balancer": (
        "get_load_balancer", "get_load_balancer_name", "load_balancer_revision", "owned_load_balancers",
    ),
    "routes": ("list_routes",),
    "pv_labeler": ("get_labels_for_volume",),
    "local_instance": ("local_metadata", "local_node_name"),
    "clusters": ("list_clusters", "master"),
    "owned_resources": ("list_owned_resources",),
}  # fmt: skip
_BATCH = {"instances_batch": ("instances_metadata", "instances_state"), "pod_cidrs": ("pod_cidrs",)}
_CHANGING = {
    "ssh_keys": ("add_ssh_key_to_all_instances",),
    "load_balancer": ("ensure_load_balancer", "update_load_balancer", "ensure_load_balancer_deleted"),
    "routes": ("create_route", "delete_route"),
    "owned_resources": ("delete_owned_resource",),
}
METHODS: Mapping[str, Method] = {
    **{name: Method(name, capability) for capability, names in _READING.items() for name in names},
    **{name: Method(name, capability, batch=True) for capability, names in _BATCH.items() for name in names},
    **{name: Method(name, capability, mutating=True) for capability, names in _CHANGING.items() for name in names},
}


@lru_cache(maxsize=512)
def _compiled(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{translate(pattern)})" for pattern in patterns))


def matches(patterns: Patterns, names: Iterable[str]) -> bool:
    """Whether any of the names matches any of the shell-style patterns, case and all. Empty names
    never match."""
    pattern = _compiled((patterns,) if isinstance(patterns, str) else tuple(patterns))
    return any(name and pattern.match(name) for name in names)
