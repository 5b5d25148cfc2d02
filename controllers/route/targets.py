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
    from cloudprovider.ips import IPNetwork


class Targets:
    """Names of nodes by provider ID. A node that is gone is known until `forget`, so that its route
    can be told from a stranger's. `claims(name, net)`: whether the node has this pod CIDR.
    Thread-safe."""

    def __init__(self, claims: Callable[[str, IPNetwork], bool]) -> None:
        self._claims = claims
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

    def name_of(self, route: Route, net: IPNetwork, nameless: str) -> str:
        """The name of the node that a route to `net` leads to, "" if none; the provider ID itself
        where no node is known to have it. Of several nodes with one provider ID, the one with this
        pod CIDR.

        `nameless`: the node with this pod CIDR that has no provider ID, "" if none. Nothing says
        that the route leads to another machine, so it counts as that node's.
        """
        machine = route.target_provider_id
        if not machine:
            return route.target_node
        with self._lock:
            names = self._names.get(index_of(machine), ())
            found = sorted(name for name in names if same_provider_id(self._ids[name], machine))
        if found:
            return found[0] if len(found) == 1 else next((name for name in found if self._claims(name, net)), found[0])
        return nameless if nameless and route.target_node in ("", nameless) else machine

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
