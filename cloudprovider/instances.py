"""Instances: what a vendor says about the machines behind the nodes (stage 5, cloud call).

Asked by the node controllers through the gateway; the answers become a node's addresses, provider
ID, labels, or its deletion. A provider offers `InstancesV2`, and `InstancesBatch` beside it where
its cloud can list; the older `Instances` (together with `Zones`) serves where neither exists.

Holds for every method here. It may be called from many threads at once, and again at any time:
nothing is remembered between calls by the host, and no method changes anything in the cloud (except
`add_ssh_key_to_all_instances`). Node arguments are read-only. `InstanceNotFound` means
that the cloud answered and the instance is gone; any other exception means unknown and is retried.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from attrs import field, frozen
from typing_extensions import deprecated

from cloudprovider.errors import CloudProviderError
from cloudprovider.internal import fields

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node
    from kubernetes.client.models.v1_node_address import V1NodeAddress

__all__ = ["InstanceMetadata", "InstanceState", "Instances", "InstancesBatch", "InstancesV2", "Taint"]


@fields.documented
@frozen
class Taint:
    """A taint that a node gets from its cloud, as `example.com/gpu=a100:NoSchedule`.

    Raises TypeError for a value that is no text. The host checks the syntax.
    """

    key: str = field(validator=fields.text)
    """As a label's key. Under kubernetes.io and k8s.io it is refused: the controllers of Kubernetes
    set and remove those."""

    effect: str = field(validator=fields.text)
    """NoSchedule, PreferNoSchedule or NoExecute."""

    value: str = field(default="", validator=fields.text)
    """As a label's value; may be empty."""

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


def _taints(value: Iterable[Taint]) -> tuple[Taint, ...]:
    # As `fields.as_tuple`, of its own: attrs takes the parameter's type from the converter.
    given: Any = value
    found: Any = fields.as_tuple(given)
    return cast(tuple[Taint, ...], found)


@fields.documented
@frozen
class InstanceMetadata:
    """One instance as the cloud knows it. Empty fields mean "nothing to say": they erase nothing on
    the node.

    Raises TypeError for a value of another type than its field's, None among them. The host checks
    every field before it writes (label syntax, address types and values). A bad value costs a new
    node its initialisation, with an Event, until it is mended; an initialised node keeps what it
    has of that field. `helpers.label_value` makes a label value of any text.

    Follows: InstanceMetadata in k8s.io/cloud-provider cloud.go.
    """

    provider_id: str = field(default="", validator=fields.text)
    """Becomes `spec.providerID`, by convention "<provider>://<instance-id>". Its form must never
    change: the field is immutable once set."""

    instance_type: str = field(default="", validator=fields.text)
    """Becomes the label node.kubernetes.io/instance-type and its deprecated beta label. A valid
    label value."""

    node_addresses: tuple[V1NodeAddress, ...] = field(
        default=(), converter=fields.as_tuple, validator=fields.node_addresses
    )
    """Becomes `status.addresses`, most preferred first. Types: InternalIP, ExternalIP, Hostname,
    InternalDNS, ExternalDNS. Hostname is the node's name, not what the machine is called in the
    cloud today: kube-apiserver asks the kubelet by it. A Hostname that is the node's name is not
    changed again."""

    zone: str = field(default="", validator=fields.text)
    """Becomes the label topology.kubernetes.io/zone and its deprecated beta label. A valid label
    value."""

    region: str = field(default="", validator=fields.text)
    """Becomes the label topology.kubernetes.io/region and its deprecated beta label. A valid label
    value."""

    additional_labels: Mapping[str, str] = field(factory=dict, converter=fields.own_copy, validator=fields.labels)
    """Further labels. Keys under kubernetes.io and k8s.io are refused, and a label that the node
    already carries from someone else is left alone."""

    taints: tuple[Taint, ...] = field(
        default=(),
        converter=_taints,
        validator=fields.items_of(Taint, '[Taint("example.com/gpu", "NoSchedule")]'),
    )
    """Set once, in the write that makes the node schedulable, and never again: who removes one
    later keeps it away, and one that is added here later does not reach nodes that are there. A
    taint of the same key and effect that the node brings along is left alone. No two of one key
    and effect."""

    annotations: Mapping[str, str] = field(factory=dict, converter=fields.own_copy, validator=fields.labels)
    """Kept like `additional_labels`, by the same rules for keys. Values are any text; all together
    at most 32 KiB as JSON, as each is in the memory of whatever watches nodes."""


class InstanceState(enum.Enum):
    """What the cloud says about an instance's life."""

    RUNNING = "running"
    """It exists; also while it starts, stops or restarts."""

    SHUTDOWN = "shutdown"
    """It exists and is switched off: the node gets the shutdown taint and stays."""

    GONE = "gone"
    """The cloud answered and it does not exist. The node is deleted after a second such answer."""


class InstancesV2(ABC):
    """Existence, power state and metadata of one node's instance.

    Find the instance by `node.spec.provider_id` first; only when that is empty by other properties
    such as the name, labels or annotations.

    Follows: InstancesV2 in k8s.io/cloud-provider cloud.go.
    """

    @abstractmethod
    def instance_exists(self, node: V1Node) -> bool:
        """Does the node's instance exist in the cloud?

        True also for one that is stopped or asleep. False, or raising `InstanceNotFound`, only when
        the cloud answered that there is none: after two such answers the node is deleted.
        """

    @abstractmethod
    def instance_shutdown(self, node: V1Node) -> bool:
        """Is the node's instance switched off? Raises `InstanceNotFound` when it does not exist."""

    @abstractmethod
    def instance_metadata(self, node: V1Node) -> InstanceMetadata:
        """What should be written on the node. Raises `InstanceNotFound` when the instance does not
        exist.

        `provider_id` must be filled unless the node already carries one. Called when the node joins
        and at every refresh: answer from one listing where the cloud allows it, or offer
        `InstancesBatch`.
        """


class InstancesBatch(ABC):
    """The same questions for many nodes in one call. Optional; ours, without a Go counterpart.

    Both methods get up to `max_batch` nodes with distinct names, and return a mapping by node name
    (`node.metadata.name`). A value that is an error concerns only its node: `InstanceNotFound`
    means gone, and other errors mean what they mean when raised. **A missing name means unknown,
    never gone.** Names that were not asked for are ignored. A raised exception concerns the whole
    batch; the host then cuts it in four until the node to blame stands alone. Read-only arguments,
    many threads, repeatable: as in the module's docstring.
    """

    max_batch: Any = 100
    """The largest number of nodes that one call may carry, an int of at least 1: the cloud's page
    size is a good value. Set it in the class (`max_batch = 250`), in `__init__`, or write a
    property; the host reads it once. Typed as Any, because type checkers allow no other type to be
    overridden in all of these ways."""

    @abstractmethod
    def instances_metadata(self, nodes: Sequence[V1Node]) -> Mapping[str, InstanceMetadata | CloudProviderError]:
        """`InstancesV2.instance_metadata` of each node."""

    @abstractmethod
    def instances_state(self, nodes: Sequence[V1Node]) -> Mapping[str, InstanceState | CloudProviderError]:
        """The state of each node's instance. `InstanceState.GONE` and an `InstanceNotFound` value
        are the same."""


@deprecated("use InstancesV2, or InstancesBatch where the cloud can list instances", category=None)
class Instances(ABC):
    """The older form: one question a method, asked by provider ID, or by name while a node has
    none.

    Write `InstancesV2` for a new provider. A method that the cloud cannot serve raises
    `NotImplementedByProvider`. `name` and `node_name` are node names, `provider_id` is a node's
    `spec.providerID`.

    Follows: Instances in k8s.io/cloud-provider cloud.go, and `external_id` of its releases before
    1.11.
    """

    @abstractmethod
    def node_addresses(self, name: str) -> Sequence[V1NodeAddress]:
        """The instance's addresses, most preferred first. Raises `InstanceNotFound`."""

    @abstractmethod
    def node_addresses_by_provider_id(self, provider_id: str) -> Sequence[V1NodeAddress]:
        """The instance's addresses, most preferred first. Raises `InstanceNotFound`.

        Never called on the machine that is asked about, so a metadata service of the machine cannot
        answer.
        """

    @abstractmethod
    def instance_id(self, node_name: str) -> str:
        """The cloud's ID of the instance: the provider ID's part after "<provider>://".

        Raises `InstanceNotFound`, though not for an instance that is stopped or asleep; and
        `NotImplementedByProvider` where the cloud has no provider IDs.
        """

    def external_id(self, node_name: str) -> str:
        """Legacy: the ID that nodes once carried in `spec.externalID`. The host never asks;
        default: `instance_id`."""
        return self.instance_id(node_name)

    @abstractmethod
    def instance_type(self, name: str) -> str:
        """The instance's type, a valid label value. Raises `InstanceNotFound`."""

    @abstractmethod
    def instance_type_by_provider_id(self, provider_id: str) -> str:
        """The instance's type, a valid label value. Raises `InstanceNotFound`."""

    @abstractmethod
    def add_ssh_key_to_all_instances(self, user: str, key_data: bytes) -> None:
        """As `cloudprovider.SSHKeys.add_ssh_key_to_all_instances`. Raise `NotImplementedByProvider`
        where it makes no sense."""

    @abstractmethod
    def current_node_name(self, hostname: str) -> str:
        """The node name of the machine that the program runs on; on most clouds, `hostname` itself.

        Asked by `node-info`, where the provider has no `LocalInstance`."""

    @abstractmethod
    def instance_exists_by_provider_id(self, provider_id: str) -> bool:
        """As `InstancesV2.instance_exists`: False, or raising `InstanceNotFound`, only with the
        cloud's word for it."""

    @abstractmethod
    def instance_shutdown_by_provider_id(self, provider_id: str) -> bool:
        """As `InstancesV2.instance_shutdown`."""
