"""Labels and names: what the API server takes, what a kubelet may set of its own Node, the pairs of
stable and deprecated keys, a volume's zones. Pure (stage 4).

Follows: k8s.io/apimachinery pkg/api/validate/content/kube.go (syntax), IsKubeletLabel in
k8s.io/kubelet and the admission plugin NodeRestriction, GetHostname in k8s.io/component-helpers,
volume/helpers/zones.go and controllers/node/node_controller.go in k8s.io/cloud-provider. The stable
key is the source of truth here, where Go still takes the beta key.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Final

from cloudprovider.wellknown import (
    LABEL_ARCH,
    LABEL_HOSTNAME,
    LABEL_INSTANCE_TYPE,
    LABEL_INSTANCE_TYPE_BETA,
    LABEL_MULTI_ZONE_DELIMITER,
    LABEL_OS,
    LABEL_REGION_BETA,
    LABEL_TOPOLOGY_REGION,
    LABEL_TOPOLOGY_ZONE,
    LABEL_ZONE_BETA,
)

__all__ = [
    "LABEL_PAIRS",
    "instance_labels",
    "is_kubernetes_label",
    "kubelet_hostname",
    "kubelet_may_set",
    "label_key_problems",
    "label_value",
    "label_value_problems",
    "label_value_to_zone_list",
    "missing_twins",
    "node_name_problems",
    "zones_to_label_value",
]

LABEL_PAIRS: Final[tuple[tuple[str, str], ...]] = (
    (LABEL_INSTANCE_TYPE, LABEL_INSTANCE_TYPE_BETA),
    (LABEL_TOPOLOGY_ZONE, LABEL_ZONE_BETA),
    (LABEL_TOPOLOGY_REGION, LABEL_REGION_BETA),
)
"""(stable key, deprecated key) of every label that the node controller writes in two forms."""

_MAX_PART = 63
_MAX_SUBDOMAIN = 253
_DIGEST = 8  # hexadecimal digits: of 1,000 texts two are alike once in 8,000 clouds
_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_OWN_LABELS: Final = frozenset(
    {LABEL_HOSTNAME, LABEL_OS, LABEL_ARCH, "beta.kubernetes.io/os", "beta.kubernetes.io/arch"}
    | {key for pair in LABEL_PAIRS for key in pair}
)
_OWN_NAMESPACES: Final = re.compile(r"(^|\.)(kubelet|node)\.kubernetes\.io/")
_FORBIDDEN_NAMESPACE: Final = re.compile(r"(^|\.)node-restriction\.kubernetes\.io/")
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
    elif slash and len(prefix) > _MAX_SUBDOMAIN:
        problems.append(f"the prefix of {key!r} is longer than {_MAX_SUBDOMAIN} characters")
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


def label_value(text: str, *, unique: bool = False) -> str:
    """Any text of a cloud as a label value: "Dell PowerEdge(TM) R660" becomes
    "Dell-PowerEdge-TM-R660".

    Each run of characters that no label value may have becomes one "-"; what is no letter or digit
    goes from both ends. What is longer than 63 characters is cut, and ends with a digest of the
    text, as two long texts often begin alike. The same text always gives the same value, in every
    version, and a valid value stays as it is.

    Two texts may still give one value ("Rack 1" and "Rack/1"), and one without letters or digits
    gives "". With `unique` every text that had to be changed ends with its digest: other texts,
    other values. Choose once: labels change when it changes.
    """
    # Both ends must be letters or digits, or the API server refuses the whole patch of the Node.
    value = _NOT_IN_VALUE.sub("-", text).strip("-_.")
    if len(value) <= _MAX_PART and not (unique and value != text):
        return value
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    # Room for the digest and its dash; the cut may have left a dash at the end.
    kept = value[: _MAX_PART - _DIGEST - 1].rstrip("-_.")
    return f"{kept}-{digest}" if kept else digest


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
        # Not as in Go, where the beta key wins: it is deprecated, and users set the stable one.
        if stable in labels:
            if labels.get(beta) != labels[stable]:
                changes[beta] = labels[stable]
        elif beta in labels:
            changes[stable] = labels[beta]
    return changes


def kubelet_hostname(hostname: str) -> str:
    """A machine's host name as its kubelet takes it for the node's name: in lower case, without
    blanks around it."""
    return hostname.strip().lower()


def node_name_problems(name: str) -> tuple[str, ...]:
    """What is wrong with a node's name; empty when the API server would take it."""
    if len(name) > _MAX_SUBDOMAIN:
        return (f"the node name {name!r} is longer than {_MAX_SUBDOMAIN} characters",)
    if not _SUBDOMAIN.fullmatch(name):
        return (
            f"the node name {name!r} must be a DNS name: letters in lower case, digits, '-' and '.', with a letter or "
            "digit at both ends of each part",
        )
    return ()


def kubelet_may_set(key: str) -> bool:
    """Whether a kubelet starts with this label in `--node-labels`, and the API server takes it from
    a kubelet."""
    # NodeRestriction limits kubelets in the namespaces of Kubernetes alone.
    if not is_kubernetes_label(key):
        return True
    # Reserved for admins, who keep machines apart by it: a kubelet may set none of these.
    if _FORBIDDEN_NAMESPACE.search(key):
        return False
    return key in _OWN_LABELS or _OWN_NAMESPACES.search(key) is not None


def label_value_to_zone_list(value: str) -> tuple[str, ...]:
    """The zones in a volume's zone label, in the order given: "a__b" is a and b. Raises ValueError
    when one is empty."""
    zones = tuple(zone.strip() for zone in value.split(LABEL_MULTI_ZONE_DELIMITER))
    if not all(zones):
        raise ValueError(
            f"the list of zones {value!r}, delimited by {LABEL_MULTI_ZONE_DELIMITER!r}, has an empty element"
        )
    return zones


def zones_to_label_value(zones: Iterable[str]) -> str:
    """The zone label of a volume that lies in these zones, sorted so that the same set always gives
    the same label.

    Raises ValueError when there is no zone, or one would not be read back as it is: it is empty,
    has blanks around it, or holds or touches the delimiter "__".
    """
    ordered = sorted(set(zones))
    # "a_" and "_b" would be read back as others: pods would wait for zones that do not exist.
    value = LABEL_MULTI_ZONE_DELIMITER.join(ordered)
    if label_value_to_zone_list(value) != tuple(ordered):
        raise ValueError(
            f"the zones {ordered} cannot be joined with {LABEL_MULTI_ZONE_DELIMITER!r} and told apart again"
        )
    return value
