"""The older `Instances` and `Zones` as an `InstancesV2` (stage 5, cloud call): the one adapter, for
the host, the commands and the conformance suite. Blocking, like a provider's own code.

Follows getInstanceMetadata, getNodeAddressesByProviderIDOrName, getProviderID,
ensureNodeExistsByProviderID and shutdownInCloudProvider in k8s.io/cloud-provider controllers/node
and nodelifecycle. Different from there: a question by name does not follow one by provider ID that
was throttled, and "not found" by name does not outweigh a failure by provider ID."""

from __future__ import annotations

import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from cloudprovider.call import current_call
from cloudprovider.checks import answers
from cloudprovider.errors import (
    CallInterrupted,
    CloudProviderError,
    InstanceNotFound,
    NotImplementedByProvider,
    RetryError,
    Throttled,
)
from cloudprovider.helpers.objects import node_name, uid_of
from cloudprovider.helpers.providerid import provider_id_of
from cloudprovider.instances import InstanceMetadata, Instances, InstancesV2
from cloudprovider.internal.errorchain import means
from cloudprovider.zones import Zone, Zones

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

A = TypeVar("A")

_FINAL: Final = (Throttled, RetryError, CallInterrupted)
"""After these the same instance is not asked about in another way: the cloud wants less, or no
answer is wanted."""

PACE: Final = 10
"""Of so many questions about a node, one asks for type and zone too, which take a call each."""

_MOST: Final = 20_000  # nodes whose type and zone are kept


class OlderInstances(InstancesV2):
    """Asks by provider ID, and by name where that fails. A node without a provider ID has the one
    that `instance_id` says, unless the provider has none. Type and zone of a node (UID and provider
    ID) are asked for at its first question, and then seldom. Thread-safe where its parts are."""

    def __init__(self, provider: str, instances: Instances, zones: Zones | None) -> None:
        self._provider = provider
        self._instances = instances
        self._zones = zones
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, ...], tuple[str, Zone]] = OrderedDict()
        self._left: dict[tuple[str, ...], int] = {}  # questions until they are asked for again

    def instance_exists(self, node: V1Node) -> bool:
        return self._instances.instance_exists_by_provider_id(self._provider_id(node))

    def instance_shutdown(self, node: V1Node) -> bool:
        return self._instances.instance_shutdown_by_provider_id(self._provider_id(node))

    def instance_metadata(self, node: V1Node) -> InstanceMetadata:
        try:
            provider_id = self._provider_id(node)
        except Exception as error:
            if not means(error, NotImplementedByProvider):
                raise
            provider_id = ""  # a provider without provider IDs
        about = provider_id, node_name(node)
        addresses = self._ask(self._instances, "node_addresses", "node_addresses", answers.addresses, *about)
        kind, zone = self._kind_and_zone((*about, uid_of(node)), *about)
        return InstanceMetadata(provider_id, kind, addresses, zone.failure_domain, zone.region)

    def _kind_and_zone(self, key: tuple[str, ...], provider_id: str, name: str) -> tuple[str, Zone]:
        with self._lock:
            left = self._left.get(key)
            if left:
                self._left[key] = left - 1
                self._kept.move_to_end(key)
                return self._kept[key]
        kind = self._ask(self._instances, "instance_type", "instance_type", answers.revision, provider_id, name)
        found = kind, self._zone(provider_id, name)
        with self._lock:
            self._kept[key] = found
            # The first answer serves a shorter time, by the name, so that nodes which joined
            # together are not asked about together.
            self._left[key] = zlib.crc32(name.encode()) % PACE if left is None else PACE - 1
            while len(self._kept) > _MOST:
                del self._left[self._kept.popitem(last=False)[0]]
        return found

    def _provider_id(self, node: V1Node) -> str:
        known = provider_id_of(node)
        return known or f"{self._provider}://{_right(self._instances, 'instance_id', answers.text, node_name(node))}"

    def _zone(self, provider_id: str, name: str) -> Zone:
        if self._zones is None:
            return Zone()
        try:
            return self._ask(self._zones, "get_zone", "get_zone_by_node_name", answers.any_zone, provider_id, name)
        except Exception as error:
            if means(error, NotImplementedByProvider):  # no zone is known: that is an answer
                return Zone()
            raise

    def _ask(
        self, of: object, by_id: str, by_name: str, check: Callable[[object], A], provider_id: str, name: str
    ) -> A:
        """The answer by provider ID, or else by name."""
        first: Exception | None = None
        if provider_id:
            try:
                return _right(of, f"{by_id}_by_provider_id", check, provider_id)
            except Exception as error:
                if means(error, *_FINAL):
                    raise
                first = error
        try:
            return _right(of, by_name, check, name)
        except Exception as error:
            if first is None or means(error, *_FINAL) or means(first, NotImplementedByProvider):
                raise
            if means(error, NotImplementedByProvider):
                raise first  # noqa: B904 - with its own causes
            if means(first, InstanceNotFound) and means(error, InstanceNotFound):
                raise
            # Without a cause: one of the two alone must not decide what it means.
            raise CloudProviderError(f"neither by provider ID ({first}) nor by name ({error})") from None


def _right(of: Any, method: str, check: Callable[[object], A], about: str) -> A:
    """The answer of one method, checked. It is not asked once the call is cancelled or late."""
    current_call().check()
    try:
        return check(getattr(of, method)(about))
    except answers.WrongAnswer as wrong:
        raise CloudProviderError(f"{method} gave an unusable answer: {wrong}") from None
