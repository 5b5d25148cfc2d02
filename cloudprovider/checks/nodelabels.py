"""The labels that an instance gives to its Node: one rule for the manager, which writes them, and
for `check`, which shows them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudprovider.helpers.labels import instance_labels, is_kubernetes_label

if TYPE_CHECKING:
    from cloudprovider.instances import InstanceMetadata

__all__ = ["wanted_labels"]


def wanted_labels(metadata: InstanceMetadata) -> tuple[dict[str, str], tuple[str, ...]]:
    """The labels that this answer asks for, and the keys that are refused for lying in a reserved
    namespace."""
    wanted = instance_labels(metadata.instance_type, metadata.zone, metadata.region)
    refused = tuple(sorted(key for key in metadata.additional_labels if is_kubernetes_label(key)))
    wanted.update({key: value for key, value in metadata.additional_labels.items() if key not in refused})
    return wanted, refused
