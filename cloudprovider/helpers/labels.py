"""Labels of a node: what may be a label, the pairs of stable and deprecated keys, zone and region.
Pure (stage 4).

Data comes from `InstanceMetadata` and from nodes; the dicts returned are what a patch sets. Nothing
is changed in place.

Follows: k8s.io/apimachinery pkg/api/validate/content/kube.go (syntax), k8s.io/component-helpers
node/topology/helpers.go and the label part of k8s.io/cloud-provider
controllers/node/node_controller.go, except that the stable key is the source of truth here, where
Go still takes the beta key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from cloudprovider.wellknown import (
    LABEL_INSTANCE_TYPE,
    LABEL_INSTANCE_TYPE_BETA,
    LABEL_REGION_BETA,
    LABEL_TOPOLOGY_REGION,
    LABEL_TOPOLOGY_ZONE,
    LABEL_ZONE_BETA,
)

__all__ = [
    "LABEL_PAIRS",
    "instance_labels",
    "is_kubernetes_label",
    "label_key_problems",
    "label_value",
    "label_value_problems",
    "missing_twins",
]

LABEL_PAIRS: Final[tuple[tuple[str, str], ...]] = (
    (LABEL_INSTANCE_TYPE, LABEL_INSTANCE_TYPE_BETA),
    (LABEL_TOPOLOGY_ZONE, LABEL_ZONE_BETA),
    (LABEL_TOPOLOGY_REGION, LABEL_REGION_BETA),
)
"""(stable key, deprecated key) of every label that the node controller writes in two forms."""

_MAX_PART = 63
_MAX_PREFIX = 253
_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_KUBERNETES = re.compile(r"(^|\.)(kubernetes|k8s)\.io/")
_NOT_IN_VALUE = re.compile(r"[^A-Za-z0-9_.-]+")
_NAME_RULE = "must be letters, digits, '-', '_' or '.', with a letter or digit at both ends"


def label_key_problems(key: str) -> tuple[str, ...]:
    """What is wrong with a label key, "name" or "prefix/name"; empty when the API server would take
    it."""
    prefix, slash, name = key.rpartition("/")
    problems = []
    if slash and "/" in prefix:
        return (f"{key!r} has more than one '/'",)
    if slash and not prefix:
        problems.append(f"{key!r} has an empty prefix")
    elif slash and len(prefix) > _MAX_PREFIX:
        problems.append(f"the prefix of {key!r} is longer than {_MAX_PREFIX} characters")
    elif slash and not _SUBDOMAIN.fullmatch(prefix):
        problems.append(f"the prefix of {key!r} must be a DNS name in lower case, such as example.com")
    if not name:
        problems.append(f"{key!r} has an empty name")
    elif len(name) > _MAX_PART:
        problems.append(f"the name of {key!r} is longer than {_MAX_PART} characters")
    elif not _NAME.fullmatch(name):
        problems.append(f"the name of {key!r} {_NAME_RULE}")
    return tuple(problems)


def label_value_problems(value: str) -> tuple[str, ...]:
    """What is wrong with a label value (which may be empty); empty when the API server would take
    it."""
    if len(value) > _MAX_PART:
        return (f"the value {value!r} is longer than {_MAX_PART} characters",)
    if value and not _NAME.fullmatch(value):
        return (f"the value {value!r} {_NAME_RULE}",)
    return ()


def label_value(text: str) -> str:
    """Any text of a cloud as a label value: "Dell PowerEdge(TM) R660" becomes
    "Dell-PowerEdge-TM-R660".

    Each run of characters that no label value may have becomes one "-"; what is no letter or digit
    goes from both ends; the first 63 characters count. The same text always gives the same value,
    and a valid value stays as it is. Two texts may give one value, and one without letters or
    digits gives "".
    """
    return _NOT_IN_VALUE.sub("-", text).lstrip("-_.")[:_MAX_PART].rstrip("-_.")


def is_kubernetes_label(key: str) -> bool:
    """Whether the key lies in a namespace of Kubernetes itself (kubernetes.io, k8s.io and what ends
    in them)."""
    return _KUBERNETES.search(key) is not None


def instance_labels(instance_type: str = "", zone: str = "", region: str = "") -> dict[str, str]:
    """The labels that an instance's type, zone and region become, each under both of its keys;
    empty values none."""
    values = (instance_type, zone, region)
    return {key: value for pair, value in zip(LABEL_PAIRS, values, strict=True) if value for key in pair}


def missing_twins(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels to set so that both keys of each pair agree; empty when they do.

    The stable key wins; where only the deprecated one is there, the stable key gets its value.
    """
    changes: dict[str, str] = {}
    for stable, beta in LABEL_PAIRS:
        if stable in labels:
            if labels.get(beta) != labels[stable]:
                changes[beta] = labels[stable]
        elif beta in labels:
            changes[stable] = labels[beta]
    return changes
