"""What the manager would make of a Node, from the answers about it: the last part of `check`.
Pure.

Data comes from `check`, which has asked the provider and checked each answer; it goes back to it in
lines for people and as JSON.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from attrs import frozen

from cloudprovider.checks.nodelabels import wanted_annotations, wanted_labels, wanted_taints
from cloudprovider.helpers.addresses import preferred_addresses, provided_node_ip
from cloudprovider.helpers.objects import addresses_of, find_taint, needs_initialization, node_taints
from cloudprovider.helpers.providerid import provider_id_of
from cloudprovider.wellknown import TAINT_EXTERNAL_CLOUD_PROVIDER, TAINT_NODE_SHUTDOWN

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from cloudprovider.instances import InstanceMetadata


@frozen
class Forecast:
    """A Node after the manager has initialised it."""

    provider_id: str
    labels: dict[str, str]
    """Those that it would get from its cloud."""
    annotations: dict[str, str]
    """The same."""
    addresses: tuple[tuple[str, str], ...]
    """(type, address) of all that it would have."""
    taints: tuple[str, ...]
    """Those that it would have: those that it has now, without the one that a manager removes, and
    where it joins those of its cloud. The one of a machine that is switched off is set while the
    node is not ready."""

    def lines(self) -> list[str]:
        """For people."""
        labels = [f"{key}={value}" for key, value in sorted(self.labels.items())]
        annotations = [f"{key}={value}" for key, value in sorted(self.annotations.items())]
        addresses = [f"{kind} {address}" for kind, address in self.addresses]
        return [
            f"would have the provider ID {self.provider_id or '(none)'}",
            "\n  ".join(["would get the labels", *(labels or ["(none)"])]),
            *(["\n  ".join(["would get the annotations", *annotations])] if annotations else []),
            f"would have the addresses {', '.join(addresses) or '(none)'}",
            f"would have the taints {', '.join(self.taints) or '(none)'}",
        ]

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "providerID": self.provider_id,
            "labels": self.labels,
            "annotations": self.annotations,
            "addresses": [{"type": kind, "address": address} for kind, address in self.addresses],
            "taints": list(self.taints),
        }


def forecast(node: V1Node, metadata: InstanceMetadata, *, shut_down: bool) -> Forecast:
    """The Node as it would be. `shut_down`: its instance is switched off, so that it gets the taint
    for that as soon as it is not ready.

    Raises `NodeIPError` where the kubelet asks for an address that the instance does not have: the
    node would stay tainted.
    """
    addresses = preferred_addresses(
        metadata.node_addresses, provided_node_ip=provided_node_ip(node), current=addresses_of(node), keep_order=False
    )
    taints = [one.key for one in node_taints(node) if one.key != TAINT_EXTERNAL_CLOUD_PROVIDER]
    # They are set once: an initialised node does not get them.
    if needs_initialization(node) or node.metadata is None or not node.metadata.resource_version:
        taints += [one.key for one in wanted_taints(metadata) if find_taint(node_taints(node), one.key) is None]
    if shut_down and TAINT_NODE_SHUTDOWN not in taints:
        taints.append(TAINT_NODE_SHUTDOWN)
    return Forecast(
        provider_id_of(node) or metadata.provider_id,
        wanted_labels(metadata),
        wanted_annotations(metadata),
        tuple((one.type, one.address) for one in addresses),
        tuple(taints),
    )


def new_node(name: str, provider_id: str = "") -> V1Node:
    """A Node as a kubelet registers it, of which no more is known than this."""
    from kubernetes.client.models.v1_node import V1Node
    from kubernetes.client.models.v1_node_spec import V1NodeSpec
    from kubernetes.client.models.v1_object_meta import V1ObjectMeta

    meta = V1ObjectMeta(name=name, uid=str(uuid.uuid4()), labels={}, annotations={})
    return V1Node(metadata=meta, spec=V1NodeSpec(provider_id=provider_id or None))
