"""Bench: what all scenarios of a class share.

It makes the provider and keeps machines that several scenarios use, because machines cost time and
money. What cannot be removed is named in the report.
"""

from __future__ import annotations

import itertools
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from secrets import token_hex
from typing import Any, NoReturn

import pytest
from kubernetes.client.api_client import ApiClient
from kubernetes.client.configuration import Configuration
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_persistent_volume import V1PersistentVolume
from kubernetes.client.models.v1_service import V1Service

from cloudprovider.interface import Interface
from cloudprovider.testing.conformance.calls import attempt, shown
from cloudprovider.testing.conformance.features import Feature
from cloudprovider.testing.conformance.lab import Lab, can, new_node
from cloudprovider.testing.conformance.patience import Patience


def name_of(one: V1Node | V1Service | V1PersistentVolume) -> str:
    """The object's name."""
    return (one.metadata.name if one.metadata is not None else None) or ""


class NoCluster:
    """A `cloudprovider.ClientBuilder` without a cluster behind it."""

    def __init__(self, identity: str = "c0f0a1ce-0000-4000-8000-000000000001") -> None:
        self._identity = identity

    def config(self, name: str) -> Configuration:
        """A configuration whose server does not exist."""
        return Configuration(host="https://no-cluster.invalid")

    def client(self, name: str) -> ApiClient:
        """A client whose every request fails."""
        made = ApiClient(self.config(name))
        made.user_agent = name
        return made

    def cluster_name(self) -> str:
        """Nobody said it."""
        return ""

    def cluster_identity(self) -> str:
        """The UID of kube-system, the same every time."""
        return self._identity


def outliving(before: set[threading.Thread], grace: float) -> list[threading.Thread]:
    """The threads that began since, are no daemons, and have not ended after the grace."""
    began = [thread for thread in threading.enumerate() if thread not in before and not thread.daemon]
    end = time.monotonic() + grace
    for thread in began:
        thread.join(max(0.0, end - time.monotonic()))
    return [thread for thread in began if thread.is_alive()]


def process_state() -> dict[str, object]:
    """What belongs to the process, and is none of a provider's affair, by how it is changed."""
    signals = {f"signal.signal({one.name})": signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)}
    return {"socket.setdefaulttimeout": socket.getdefaulttimeout(), "os.chdir": str(Path.cwd()), **signals}


class Bench:
    """The provider of one test class, over one lab, and what its scenarios share. Used from one
    thread."""

    def __init__(
        self, lab: Lab, features: Feature, make_provider: Callable[[], Interface], provider_name: str = ""
    ) -> None:
        self.lab = lab
        self.features = features
        self.provider_name = provider_name
        self.left_behind: list[str] = []
        """What could not be removed, for the report."""
        self.patience = Patience(lab)
        self.outlived: list[threading.Thread] = []
        """The provider's threads that keep the process from ending, once the bench is closed."""
        self._threads = set(threading.enumerate())
        self.process = process_state()
        """As it was before the provider was made."""
        # Restored in the end: what one vendor's client changes must not spoil the tests of the
        # next.
        self._socket_timeout = socket.getdefaulttimeout()
        self._make_provider = make_provider
        self._stop, self._others = threading.Event(), threading.Event()
        self._made: list[V1Node] = []
        self._running: list[V1Node] = []
        self._states: dict[str, V1Node] = {}
        self._token = token_hex(3)
        self._numbers = itertools.count(1)
        self._destinations: Iterator[Any] | None = None
        self.provider = self.another_provider(self._stop)
        self._refused, self.metadata_checked = "", False  # whether it is known to be of the right type
        self._standing: tuple[V1Service, list[V1Node]] | None = None
        self._ends: list[Callable[[], None]] = []

    def another_provider(self, stop: threading.Event | None = None, identity: str = "") -> Interface:
        """A new provider over the same cloud, initialised: as after a restart of the program, or in
        the cluster with that identity. Without a stop signal it ends with the scenario."""
        provider = self.started_provider()
        provider.initialize(NoCluster(identity) if identity else NoCluster(), stop or self._others)
        return provider

    def end_others(self) -> None:
        """A scenario is over: end the providers that it made, so that their threads do not gather
        until the bench is closed."""
        self._others.set()
        self._others = threading.Event()

    def started_provider(self) -> Interface:
        """The same from its factory alone: as on a machine that boots."""
        return self._make_provider()

    def pause(self, seconds: float) -> None:
        """Let the cloud settle or build."""
        self._stop.wait(seconds)

    def name(self, what: str) -> str:
        """A name that nothing in the cloud has yet."""
        return f"{self.lab.cluster_name}-{self._token}-{what}-{next(self._numbers)}"

    def destination(self) -> str:
        """A CIDR for a route, another one each time."""
        self._destinations = self._destinations or ip_network(self.lab.pod_network).subnets(new_prefix=24)
        return str(next(self._destinations))

    def new_machine(self, name: str = "") -> V1Node:
        """A machine of its own for a scenario that stops or deletes it: its Node, as registered."""
        name = name or self.name("node")
        if can(self.lab, "create_machine"):
            node = self.lab.create_machine(name)
            self._made.append(node)
            return node
        # A cloud that makes no machines may still have routes and load balancers for nodes.
        prefix = [*self.provider.provider_id_prefixes(), ""][0]
        return new_node(name, provider_id=f"{prefix}{name}")

    def running(self, count: int) -> list[V1Node]:
        """So many machines that run and stay, as registered."""
        # Machines cost minutes and money: what runs is used by every scenario that leaves it
        # running.
        while len(self._running) < count:
            self._running.append(self.new_machine())
        return self._running[:count]

    def kept(self, state: str, make: Callable[[], V1Node]) -> V1Node:
        """The one machine that is kept in a state ("stopped", "deleted"), made at first."""
        if state not in self._states:
            self._states[state] = make()
        return self._states[state]

    def standing(self, make: Callable[[], tuple[V1Service, list[V1Node]]]) -> tuple[V1Service, list[V1Node]]:
        """The Service and the nodes of the load balancer that scenarios share, made at first."""
        if self._standing is None:
            self._standing = make()
        return self._standing

    def at_end(self, remove: Callable[[], None]) -> None:
        """Call this first when the bench is closed."""
        self._ends.append(remove)

    def refuse(self, why: str) -> NoReturn:
        """Fail this scenario for what would fail many more in odd ways: those are not run."""
        self._refused = why
        raise AssertionError(why)

    def go_on(self) -> None:
        """Skip this scenario where `refuse` was called before."""
        if self._refused:
            pytest.skip(f"not run: {self._refused}")

    def forget(self, node: V1Node) -> None:
        """The machine was deleted: nothing is left to be removed."""
        self._made = [one for one in self._made if name_of(one) != name_of(node)]

    def remove(self, what: str, call: Callable[[], object]) -> None:
        """Remove something in the end. What cannot be removed is named in the report."""
        removed = attempt(call)
        if removed.error is not None:
            self.left_behind.append(f"{what}: {shown(removed.error)}")

    def close(self) -> None:
        """Remove what scenarios shared and every machine, and end the provider."""
        # Before the machines: a load balancer's targets must not vanish under it.
        for remove in self._ends:
            remove()
        for node in self._made if can(self.lab, "delete_machine") else ():
            self.remove(f"machine {name_of(node)}", partial(self.lab.delete_machine, node))
        # Their threads are looked for below, too.
        self.end_others()
        self._stop.set()
        self.outlived = outliving(self._threads, self.lab.grace)
        socket.setdefaulttimeout(self._socket_timeout)  # for whatever is tested next
