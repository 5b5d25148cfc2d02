"""Stage 4: DECIDE. From a kubelet's request, its Node, and the cloud's word about the machine, to
what speaks against the certificate. Pure.

A kubelet writes its own Node: its addresses, and its provider ID when it registers. So the Node is
a hint that leads to the machine, and the cloud says what the machine has. What the cloud does not
say is not certified, whatever stands on the Node.

So the cloud is asked by the node's name alone, the one thing that is not its kubelet's choice, and
must give the Node's provider ID. An answer about a provider ID would not say whose machine it is:
by the contract of `InstanceMetadata` its Hostname is the name of the Node that is asked about."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_node_spec import V1NodeSpec
from kubernetes.client.models.v1_node_status import V1NodeStatus
from kubernetes.client.models.v1_object_meta import V1ObjectMeta

from cloudprovider.helpers.addresses import describe_addresses
from cloudprovider.helpers.objects import addresses_of, key_of, needs_initialization, uid_of
from cloudprovider.helpers.providerid import provider_id_of
from cloudprovider.ips import IPAddress, parse_ip
from cloudprovider.wellknown import (
    NODE_ADDRESS_EXTERNAL_DNS,
    NODE_ADDRESS_EXTERNAL_IP,
    NODE_ADDRESS_HOSTNAME,
    NODE_ADDRESS_INTERNAL_DNS,
    NODE_ADDRESS_INTERNAL_IP,
)

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node_address import V1NodeAddress

    from cloudprovider import InstanceMetadata
    from controllers.kubeletcsr.request import Request

_IPS: Final = frozenset({NODE_ADDRESS_INTERNAL_IP, NODE_ADDRESS_EXTERNAL_IP})
_NAMES: Final = frozenset({NODE_ADDRESS_HOSTNAME, NODE_ADDRESS_INTERNAL_DNS, NODE_ADDRESS_EXTERNAL_DNS})


class NotYet(Exception):
    """Something speaks against the certificate that may change: the request stays pending."""


def not_ready(node: V1Node | None, name: str, *, has_ids: bool) -> str:
    """Why the cloud is not asked about this Node now; "" when it is. `has_ids`: this cloud has
    provider IDs."""
    if node is None:
        return f"there is no Node {name}"
    if needs_initialization(node):
        return f"node {name} is not initialised yet"
    return "" if provider_id_of(node) or not has_ids else f"node {name} has no spec.providerID"


def by_name_alone(node: V1Node) -> V1Node:
    """The Node to ask about the machine of its name: nothing on it is its kubelet's choice."""
    meta = V1ObjectMeta(name=key_of(node), uid=uid_of(node), labels={}, annotations={})
    return V1Node(metadata=meta, spec=V1NodeSpec(), status=V1NodeStatus())


def not_on_node(request: Request, node: V1Node) -> list[str]:
    """The IPs asked for that the Node does not have: known without the cloud."""
    missing = request.ips - ips_of(addresses_of(node))
    return [f"{ip} is not in the Node's status.addresses" for ip in sorted(missing, key=str)]


def mismatches(request: Request, node: V1Node, metadata: InstanceMetadata) -> list[str]:
    """Everything in the request that the cloud does not confirm of the node's machine."""
    known = metadata.node_addresses
    problems = []
    name, named = key_of(node).lower(), names_of(known)
    # By the first label too: clouds often name a machine in full, and kubelets in short.
    own = not named or name in named or name in {one.partition(".")[0] for one in named}
    if not own:
        problems.append(f"the cloud calls the machine of this name {' or '.join(sorted(named))}")
    problems += [f"{ip} is not the machine's" for ip in sorted(request.ips - ips_of(known), key=str)]
    allowed = named | {name} if named else {name}
    for asked in sorted(request.names):
        if asked not in allowed:
            problems.append(f"{asked} is not the machine's name")
        elif not named and "." in asked:
            # The kubelet chose it; with a dot it may be anybody's, the API server's too.
            problems.append(f"{asked} has a dot, and the cloud says no name of the machine")
    if problems:
        problems.append(f"the cloud says: {describe_addresses(known) or 'no addresses'}")
    return problems


def ips_of(addresses: Iterable[V1NodeAddress]) -> frozenset[IPAddress]:
    """The IPs among them. Not a Hostname that looks like one: it is whatever the kubelet chose."""
    found = (parse_ip(address.address) for address in addresses if address.type in _IPS)
    return frozenset(ip for ip in found if ip is not None)


def names_of(addresses: Iterable[V1NodeAddress]) -> frozenset[str]:
    """The DNS names among them, in lower case."""
    found = (address.address.lower() for address in addresses if address.type in _NAMES)
    return frozenset(name for name in found if parse_ip(name) is None)
