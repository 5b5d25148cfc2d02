"""Stage 4: DECIDE. From a node and its ranges to one patch. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from cloudprovider.helpers.objects import pod_cidrs_of
from cloudprovider.ips import IPNetwork, parse_network
from controllers.runtime.cache import key_of, uid_of, version_of

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

SEAL: Final = "kubernetes-cloud-provider/pod-cidr-pending"
"""Annotation of a node that waits for its first range since before this leader: see
`guards.py`. Removed with the write of the range."""


@frozen
class NodeFacts:
    """What IPAM needs to know of one version of a Node."""

    name: str
    uid: str
    version: str
    ranges: tuple[IPNetwork, ...]
    leaving: bool
    """It is being deleted."""
    sealed: bool = False
    problem: str = ""
    """What is wrong with its ranges, which then are those that can be read."""

    @property
    def waits(self) -> bool:
        """Whether it lacks ranges."""
        return not self.ranges and not self.problem and not self.leaving


def facts_of(node: V1Node) -> NodeFacts:
    """Of a node of the cache."""
    meta = node.metadata
    annotations = (meta.annotations if meta is not None else None) or {}
    leaving = meta is not None and meta.deletion_timestamp is not None
    return _facts(key_of(node), uid_of(node), version_of(node), pod_cidrs_of(node), leaving, annotations)


def facts_of_raw(raw: Mapping[str, Any]) -> NodeFacts:
    """Of a node as the API server sends it, whatever else in it may be malformed."""
    meta, spec = raw.get("metadata") or {}, raw.get("spec") or {}
    texts = spec.get("podCIDRs") or ([spec["podCIDR"]] if spec.get("podCIDR") else [])
    return _facts(
        str(meta.get("name", "")),
        str(meta.get("uid", "")),
        str(meta.get("resourceVersion", "")),
        [str(text) for text in texts],
        bool(meta.get("deletionTimestamp")),
        meta.get("annotations") or {},
    )


def assignment(ranges: Sequence[IPNetwork], *, sealed: bool) -> dict[str, Any]:
    """The JSON merge patch that gives a node its ranges, and takes the seal away."""
    # The two are one field in the API server, and cannot change once they are set.
    texts = [str(net) for net in ranges]
    body: dict[str, Any] = {"spec": {"podCIDR": texts[0], "podCIDRs": texts}}
    return body | unsealed() if sealed else body


def seal(token: str) -> dict[str, Any]:
    """The JSON merge patch that changes a node, so that writes onto the version before fail."""
    return {"metadata": {"annotations": {SEAL: token}}}


def unsealed() -> dict[str, Any]:
    """The JSON merge patch that takes the seal away."""
    return {"metadata": {"annotations": {SEAL: None}}}


def writers_of(raw: Mapping[str, Any]) -> frozenset[str]:
    """The programs that wrote a node's pod CIDRs, by managedFields."""
    entries = (raw.get("metadata") or {}).get("managedFields") or ()
    found = set()
    for entry in entries:
        spec = (entry.get("fieldsV1") or {}).get("f:spec") or {}
        if "f:podCIDR" in spec or "f:podCIDRs" in spec:
            found.add(str(entry.get("manager", "")))
    return frozenset(found)


def _facts(
    name: str, uid: str, version: str, texts: Sequence[str], leaving: bool, annotations: Mapping[str, str]
) -> NodeFacts:
    ranges: dict[IPNetwork, None] = {}
    problems = []
    for text in texts:
        try:
            ranges[parse_network(text)] = None
        except ValueError as error:
            problems.append(str(error))
    return NodeFacts(name, uid, version, tuple(ranges), leaving, SEAL in annotations, "; ".join(problems))
