"""Stage 4: DECIDE. Which node a route leads to: by the provider ID of its machine, where the
provider lists it, or else by the name that it lists.

Filled by `planning.py` from the cached nodes; asked by it for each route. No I/O.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from cloudprovider.helpers.providerid import provider_id_of, same_provider_id
from controllers.runtime.cache import key_of

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from cloudprovider import Route


class Targets:
    """Names of nodes by provider ID. A node that is gone is known until `forget`, so that its route
    can be told from a stranger's. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: dict[str, str] = {}
        self._names: dict[str, set[str]] = {}  # by `index_of` the ID

    def note(self, node: V1Node) -> None:
        """Remember the node's provider ID, which for one Node never changes."""
        name, machine = key_of(node), provider_id_of(node)
        with self._lock:
            if not machine or self._ids.get(name) == machine:
                return
            self._drop(name)
            self._ids[name] = machine
            self._names.setdefault(index_of(machine), set()).add(name)

    def forget(self, names: Iterable[str]) -> None:
        """These nodes are gone, and so are the routes to them."""
        with self._lock:
            for name in names:
                self._drop(name)

    def machine_of(self, name: str) -> str:
        """The provider ID of a node that is there, or was; "" where none is known."""
        return self._ids.get(name, "")

    def sharing(self, name: str) -> list[str]:
        """The nodes with the provider ID of this one, itself among them."""
        machine = self._ids.get(name, "")
        with self._lock:
            return [one for one in self._names.get(index_of(machine), ()) if same_provider_id(self._ids[one], machine)]

    def name_of(self, route: Route, claimant: str, claims: Callable[[str], bool]) -> str:
        """The name of the node that a route leads to, "" if none; the provider ID itself where no
        node is known to have it.

        `claimant`: the node that is looked at and has the destination as pod CIDR, "" if none.
        `claims(name)`: whether a node has. Of several nodes with one provider ID, which a kubelet
        writes itself, it is one that has.
        """
        machine = route.target_provider_id
        if not machine:
            return route.target_node
        with self._lock:
            names = self._names.get(index_of(machine), ())
            found = sorted(name for name in names if same_provider_id(self._ids[name], machine))
            nameless = claimant not in self._ids
        if found:
            return claimant if claimant in found else next(filter(claims, found), found[0])
        # Nothing says that it leads to another machine than that of a node without a provider ID.
        return claimant if claimant and nameless and route.target_node in ("", claimant) else machine

    def _drop(self, name: str) -> None:
        machine = self._ids.pop(name, "")
        if machine:
            index = index_of(machine)
            self._names[index].discard(name)
            if not self._names[index]:
                del self._names[index]


def index_of(machine: str) -> str:
    """What all spellings of a provider ID have in common, as `same_provider_id` has it. No node has
    such a name."""
    return f"://{machine.rpartition('/')[2].casefold()}"


def is_machine(target: str) -> bool:
    """Whether a route's target is a provider ID, as no node is known to have it."""
    return "://" in target
