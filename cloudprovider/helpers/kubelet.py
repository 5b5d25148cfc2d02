"""What a kubelet accepts and may write about its own Node: its name and its labels. Pure.

For `node-info`, which prints a kubelet's flags, and the conformance suite.

Follows: GetHostname in k8s.io/component-helpers node/util/hostname.go, ValidateNodeName (a DNS
subdomain) in k8s.io/kubernetes, IsKubeletLabel in k8s.io/kubelet pkg/apis/well_known_labels.go, and
the admission plugin NodeRestriction.
"""

from __future__ import annotations

import re
from typing import Final

from cloudprovider.helpers.labels import LABEL_PAIRS, is_kubernetes_label
from cloudprovider.wellknown import LABEL_ARCH, LABEL_HOSTNAME, LABEL_OS

__all__ = ["kubelet_hostname", "kubelet_may_set", "node_name_problems"]

_OWN_LABELS: Final = frozenset(
    {LABEL_HOSTNAME, LABEL_OS, LABEL_ARCH, "beta.kubernetes.io/os", "beta.kubernetes.io/arch"}
    | {key for pair in LABEL_PAIRS for key in pair}
)
_OWN_NAMESPACES: Final = re.compile(r"(^|\.)(kubelet|node)\.kubernetes\.io/")
_FORBIDDEN_NAMESPACE: Final = re.compile(r"(^|\.)node-restriction\.kubernetes\.io/")
_MAX_NAME = 253
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def kubelet_hostname(hostname: str) -> str:
    """A machine's host name as its kubelet takes it for the node's name: in lower case, without
    blanks around it."""
    return hostname.strip().lower()


def node_name_problems(name: str) -> tuple[str, ...]:
    """What is wrong with a node's name; empty when the API server would take it."""
    if len(name) > _MAX_NAME:
        return (f"the node name {name!r} is longer than {_MAX_NAME} characters",)
    if not _NAME.fullmatch(name):
        return (
            f"the node name {name!r} must be a DNS name: letters in lower case, digits, '-' and '.', with a letter or "
            "digit at both ends of each part",
        )
    return ()


def kubelet_may_set(key: str) -> bool:
    """Whether a kubelet starts with this label in `--node-labels`, and the API server takes it from
    a kubelet."""
    if not is_kubernetes_label(key):
        return True
    if _FORBIDDEN_NAMESPACE.search(key):
        return False
    return key in _OWN_LABELS or _OWN_NAMESPACES.search(key) is not None
