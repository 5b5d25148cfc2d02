"""Machines that were replaced under their node's name, while the new machine's kubelet lives.

Such a kubelet goes on with the Node of its name: Ready, with the provider ID of a machine that is
gone, which cannot be changed. A kubelet registers only when it starts: if the Node were just
deleted, the machine would be lost to the cluster. So the manager registers it again in the
kubelet's place (`writeback.py`), where three things hold together:

- the cloud says as often as for a deletion that the Node's own instance is gone;
- the cloud knows another instance of the node's name;
- the kubelet reports another machine (`status.nodeInfo`) than it did when the cloud last called the
  instance existing, in this process. That is the kubelet's word, so it proves nothing alone.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from attrs import evolve, frozen

from cloudprovider.helpers import pod_cidrs_of, provider_id_of
from cloudprovider.helpers.ips import IPNetwork, parse_network
from cloudprovider.wellknown import TAINT_EXTERNAL_CLOUD_PROVIDER
from controllers.runtime.cache import key_of, uid_of

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

SETTLED: Final = 600.0
"""Seconds for which the cloud must call the instance existing until another machine under it is
taken for the same instance, reinstalled. A cloud may know a terminated instance for a while."""

_OF_KUBERNETES: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
_BY_SERVER: Final = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink")
POD_CIDRS: Final = ("podCIDR", "podCIDRs")
_OF_OLD_MACHINE: Final = ("addresses", "volumesAttached")
_NETWORK: Final = "NetworkUnavailable"


def machine_of(node: V1Node) -> tuple[str, str]:
    """The machine that the kubelet runs on, by its own word: machineID and systemUUID, or ""."""
    info = node.status.node_info if node.status else None
    return ("", "") if info is None else (info.machine_id or "", info.system_uuid or "")


def _speaker(node: V1Node) -> object:
    return uid_of(node), machine_of(node)


def registration(raw: dict[str, Any], *, keep_pod_cidrs: bool) -> dict[str, Any]:
    """The Node to be created in place of this one, both as the API has them. Pure.

    It has the labels, annotations, pod CIDRs and status, so that its pods go on, but the provider
    ID and addresses of neither machine: it waits for its initialisation. The taints of Kubernetes'
    controllers follow from the status; all others stay. `keep_pod_cidrs`: false where the cloud
    chooses them for each machine.
    """
    new = copy.deepcopy(raw)
    metadata, spec, status = new["metadata"], new.setdefault("spec", {}), new.setdefault("status", {})
    for field in _BY_SERVER:
        metadata.pop(field, None)
    spec.pop("providerID", None)
    if not keep_pod_cidrs:
        for field in POD_CIDRS:
            spec.pop(field, None)
    kept = [taint for taint in spec.get("taints") or () if not taint["key"].startswith(_OF_KUBERNETES)]
    spec["taints"] = [*kept, {"key": TAINT_EXTERNAL_CLOUD_PROVIDER, "value": "true", "effect": "NoSchedule"}]
    for field in _OF_OLD_MACHINE:
        status.pop(field, None)
    # Said of the route to the old machine.
    status["conditions"] = [one for one in status.get("conditions") or () if one["type"] != _NETWORK]
    return new


def bearer_of_its_ranges(new: dict[str, Any], others: Iterable[V1Node]) -> str:
    """Which of these nodes has a pod CIDR inside one of the Node to be created; "" for none. Pure.

    A wider one is no allocator's: a kubelet may have registered its Node with it."""
    spec, name = new["spec"], new["metadata"]["name"]
    own = _ranges(spec.get("podCIDRs") or [spec.get("podCIDR") or ""])
    for other in others if own else ():
        theirs = () if key_of(other) == name else _ranges(pod_cidrs_of(other))
        if any(one.prefixlen <= net.prefixlen and net.network_address in one for one in own for net in theirs):
            return key_of(other)
    return ""


def _ranges(texts: Iterable[str]) -> list[IPNetwork]:
    found = []
    for text in texts:
        with suppress(ValueError):
            found.append(parse_network(text))
    return found


@frozen
class _Known:
    uid: str
    provider_id: str
    machine: tuple[str, str]
    other: tuple[str, str] = ("", "")  # reported since, while the cloud calls the instance existing
    other_since: float = 0.0


class Machines:
    """Which machine each node's kubelet reported when the cloud called its instance existing, and
    the successors that the cloud knows by name. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}
        self._successors: dict[str, tuple[object, str]] = {}

    def exists(self, node: V1Node, now: float) -> None:
        """The cloud calls the instance of this version of the node existing."""
        machine, name = machine_of(node), key_of(node)
        if not any(machine):
            return
        with self._lock:
            self._successors.pop(name, None)
            known = self._of(node)
            if known is None or known.machine == machine:
                self._known[name] = _Known(uid_of(node), provider_id_of(node), machine)
            elif known.other != machine:
                self._known[name] = evolve(known, other=machine, other_since=now)
            elif now - known.other_since >= SETTLED:
                self._known[name] = _Known(known.uid, known.provider_id, machine)

    def moved(self, node: V1Node) -> bool:
        """Whether its kubelet runs on another machine than the node's instance, by its own word."""
        return self.has_moved(key_of(node), uid_of(node), provider_id_of(node), machine_of(node))

    def has_moved(self, name: str, uid: str, provider_id: str, machine: tuple[str, str]) -> bool:
        """As `moved`, of a node of which this is known: sweeps ask about all nodes."""
        known = self._known.get(name)
        if known is None or machine == known.machine or not any(machine):
            return False
        return (known.uid, known.provider_id) == (uid, provider_id)

    def succeeded(self, node: V1Node, provider_id: str) -> bool:
        """The cloud knows this instance by the node's name; "": none, or it cannot say. Returns
        whether that is news."""
        said = _speaker(node), provider_id
        with self._lock:
            news = self._successors.get(key_of(node)) != said
            self._successors[key_of(node)] = said
            return news

    def successor(self, node: V1Node) -> str | None:
        """The provider ID of the instance that has the node's name now; "" without one, None where
        the cloud has not answered since the kubelet reports this machine."""
        speaker, found = self._successors.get(key_of(node), (None, ""))
        return found if speaker == _speaker(node) else None

    def keep(self, names: Collection[str]) -> None:
        """Forget all but these nodes."""
        with self._lock:
            for kept in (self._known, self._successors):
                for name in kept.keys() - names:
                    del kept[name]

    def _of(self, node: V1Node) -> _Known | None:
        known = self._known.get(key_of(node))
        same = known is not None and (known.uid, known.provider_id) == (uid_of(node), provider_id_of(node))
        return known if same else None
