"""The lab: what a vendor's tests can do to the test cloud behind the provider's back.

A vendor subclasses `Lab` and overrides what its cloud, simulator or emulator can do; each scenario
names the hooks that it needs and is skipped, with that name, where the lab has not overridden them.
Objects of the cluster that scenarios hand to the provider are made here too: `new_node`,
`new_service`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from copy import deepcopy
from typing import Final

from attrs import field, frozen
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_node_spec import V1NodeSpec
from kubernetes.client.models.v1_object_meta import V1ObjectMeta
from kubernetes.client.models.v1_persistent_volume import V1PersistentVolume
from kubernetes.client.models.v1_service import V1Service
from kubernetes.client.models.v1_service_port import V1ServicePort
from kubernetes.client.models.v1_service_spec import V1ServiceSpec

from cloudprovider.cloudconfig import CloudConfig


def _ports(value: Iterable[tuple[int, str, int]]) -> frozenset[tuple[int, str, int]]:
    return frozenset(value)


def _texts(value: Iterable[str]) -> frozenset[str]:
    return frozenset(value)


@frozen
class BalancerFacts:
    """A load balancer as the cloud itself shows it, not as the provider reports it."""

    ports: frozenset[tuple[int, str, int]] = field(default=(), converter=_ports)
    """(port, protocol, node port), for example (80, "TCP", 30080)."""
    targets: frozenset[str] = field(default=(), converter=_texts)
    """The provider IDs of the nodes that get the traffic."""
    source_ranges: frozenset[str] = field(default=(), converter=_texts)
    """CIDRs that may connect. Everyone is "0.0.0.0/0", also where the cloud shows that as
    nothing."""
    health_check: tuple[str, int] | None = None
    """(HTTP path, port) by which the cloud tells which nodes get traffic. None: it asks for no
    path."""


@frozen
class BadAnswer:
    """An answer that says nothing about what was asked."""

    what: str
    """In words, for a message."""
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(factory=dict)


THROTTLED: Final = (
    BadAnswer("429 (too many requests)", 429, b"{}"),
    BadAnswer("429 with Retry-After", 429, b"{}", {"Retry-After": "7"}),
)


class Lab:
    """Override what the test cloud can do; nothing is required. Hooks are called from one thread at
    a time."""

    cluster_name: str = "conformance"
    """The cluster that the scenarios work for. A second one is named the same with "-2" at its
    end."""
    pod_network: str = "10.251.0.0/16"
    """Where the destinations of routes come from."""
    service_annotations: Mapping[str, str] = {}
    """On every Service that is made, where a load balancer needs them in the test cloud."""
    secrets: tuple[str, ...] = ()
    """Texts of the configuration that must never be shown: in a repr, a log or an error."""

    settle: float = 0.0
    """Seconds after a change until the cloud's answers show it. 0: at once, and nothing is ever
    asked twice."""
    states: tuple[str, ...] = ()
    """The states, besides running and stopped, in which a machine of this cloud still exists: what
    `set_state` takes. For example ("building", "error", "deleting")."""
    throttled: tuple[BadAnswer, ...] = THROTTLED
    """How the cloud says that it is asked too often."""
    page: int = 0
    """How many items the cloud puts on a page of a listing at most; where set, scenarios make one
    more."""
    batch: int = 5000
    """The most nodes that a scenario asks about at once: fewer where each answer takes its time."""
    empty_listing: bytes = b""
    """The body of the cloud's empty listing, where it answers the question for one machine
    otherwise."""
    poll: float = 1.0
    """Seconds between two looks at a cloud that settles or builds."""
    patience: float = 300.0
    """Seconds that building or deleting a load balancer may take. After `RetryError` the suite asks
    again for so long: when the error says so, and at least once in `poll`. After the first wait
    that ran out it is 10 s at most."""
    deadline: float = 2.0
    """Seconds that the host waits for a call while the cloud hangs. Longer than the margin and the
    least that `cloudprovider.helpers.time_limit` leaves, or no request would be sent and nothing
    would be proved."""
    grace: float = 1.0
    """Seconds after a call's deadline at which it must have ended. A call that is late is made once
    more, with three times the deadline and the grace."""

    def config(self) -> CloudConfig | None:
        """What the provider's factory gets. Called again for a second provider over the same
        cloud."""
        return None

    def create_machine(self, name: str) -> V1Node:
        """Start a machine and return its Node as the kubelet registers it: see `new_node`.

        The cloud may give the machine another name; the Node's counts. The Node may carry a
        provider ID already, and must where the provider has no instances.
        """
        raise NotImplementedError

    def rename_machine(self, node: V1Node, name: str) -> None:
        """Give the node's machine another name in the cloud; the node's name stays. Called only
        where machines have provider IDs, and once more with the former name."""
        raise NotImplementedError

    def stop_machine(self, node: V1Node) -> None:
        """Switch the node's machine off; it goes on existing. Return when the cloud has done it."""
        raise NotImplementedError

    def start_machine(self, node: V1Node) -> None:
        """Switch the node's machine on again. Return when the cloud has done it."""
        raise NotImplementedError

    def delete_machine(self, node: V1Node) -> None:
        """Delete the node's machine for good. Also called in the end for every machine that was
        made."""
        raise NotImplementedError

    def set_state(self, node: V1Node, state: str) -> None:
        """Bring the node's machine into one of `states`."""
        raise NotImplementedError

    def create_twin(self, node: V1Node) -> V1Node:
        """Start another machine that the cloud knows by the name, or the tag, of the node's. Return
        its Node, with its provider ID."""
        raise NotImplementedError

    def placement(self, node: V1Node) -> tuple[str, str]:
        """The zone and the region of the node's machine, as the cloud has them."""
        raise NotImplementedError

    def ssh_keys(self, node: V1Node, user: str) -> Collection[bytes]:
        """The public keys with which a user may log in on the node's machine: lines as in
        authorized_keys."""
        raise NotImplementedError

    def outage(self, after: int = 0) -> AbstractContextManager[object]:
        """Break the cloud for the body of a with statement: it answers `after` more requests, then
        fails each one."""
        raise NotImplementedError

    def unlisted(self, node: V1Node) -> AbstractContextManager[object]:
        """Let the cloud's listings lack the node's machine, which runs, for the body of a with
        statement. Where the provider lists machines to set targets."""
        raise NotImplementedError

    def hang(self) -> AbstractContextManager[object]:
        """Let the cloud answer nothing for the body of a with statement; its end lets go of what
        hangs."""
        raise NotImplementedError

    def bad_answers(self, answer: BadAnswer) -> AbstractContextManager[object]:
        """Let the cloud answer every request so for the body of a with statement, and carry none
        out."""
        raise NotImplementedError

    def end_tokens(self) -> None:
        """Let the cloud accept no token any more that it has given out until now."""
        raise NotImplementedError

    def quota(self) -> AbstractContextManager[object]:
        """Let the cloud make no route, load balancer or listener more for the body of a with
        statement."""
        raise NotImplementedError

    def builds_slowly(self) -> AbstractContextManager[object]:
        """Load balancers that are built, changed or deleted in the body of a with statement are not
        ready, or not gone, before its end."""
        raise NotImplementedError

    def resources(self) -> Collection[str]:
        """Names of everything in the test cloud that a provider could have built for a load
        balancer, parts included.

        What stood there before a scenario does not matter; what is left after it does.
        """
        raise NotImplementedError

    def load_balancer(self, name: str) -> BalancerFacts | None:
        """What the cloud knows of the load balancer of this name; None when it has none."""
        raise NotImplementedError

    def kept_annotations(self) -> Mapping[str, str]:
        """The annotations of a Service whose load balancer the provider keeps when the Service is
        deleted (`LoadBalancerKept`)."""
        raise NotImplementedError

    def create_owned_resource(self, cluster_name: str) -> str:
        """Make in the test cloud what `list_owned_resources` lists for this cluster; returns its
        ID."""
        raise NotImplementedError

    def adopting_annotations(self, name: str) -> Mapping[str, str]:
        """The annotations of a Service that takes over the load balancer of this name in the cloud,
        which was kept."""
        raise NotImplementedError

    def refused_annotations(self) -> Mapping[str, str]:
        """Annotations for which the provider refuses a Service (`InvalidService`)."""
        raise NotImplementedError

    def local_machine(self) -> V1Node:
        """The Node, as its kubelet registers it, of the machine for which the test cloud's metadata
        service answers.

        `outage` and `hang` break that service too.
        """
        raise NotImplementedError

    def create_volume(self) -> V1PersistentVolume:
        """Create a disk that lies in a zone, and return the PersistentVolume of it, without
        labels."""
        raise NotImplementedError

    def delete_volume(self, volume: V1PersistentVolume) -> None:
        """Delete the disk. Also called in the end for every disk that was made."""
        raise NotImplementedError


def can(lab: Lab, hook: str) -> bool:
    """Whether this lab overrides a hook or an attribute."""
    return getattr(type(lab), hook) is not getattr(Lab, hook) or hook in vars(lab)


def new_node(name: str, provider_id: str = "", *, labels: Mapping[str, str] | None = None) -> V1Node:
    """A Node as a kubelet registers it; with a provider ID, as it is once it was initialised."""
    return V1Node(
        metadata=V1ObjectMeta(name=name, labels={"kubernetes.io/hostname": name, **(labels or {})}),
        spec=V1NodeSpec(provider_id=provider_id or None),
    )


def annotated(service: V1Service, annotations: Mapping[str, str]) -> V1Service:
    """A copy of the Service with these annotations besides its own."""
    copy = deepcopy(service)
    assert copy.metadata is not None
    copy.metadata.annotations = {**(copy.metadata.annotations or {}), **annotations}
    return copy


def service_port(port: int, node_port: int, protocol: str = "TCP") -> V1ServicePort:
    """A port of a Service."""
    name = f"{protocol.lower()}-{port}"
    return V1ServicePort(name=name, port=port, node_port=node_port, protocol=protocol, target_port=8080)


def new_service(
    name: str,
    uid: str,
    *,
    namespace: str = "default",
    ports: Collection[tuple[int, int] | tuple[int, int, str]] = ((80, 30080),),
    annotations: Mapping[str, str] | None = None,
    source_ranges: Collection[str] = (),
) -> V1Service:
    """A Service of type LoadBalancer; `ports` are (port, node port), over TCP, or (port, node port,
    protocol)."""
    return V1Service(
        metadata=V1ObjectMeta(name=name, namespace=namespace, uid=uid, annotations=dict(annotations or {})),
        spec=V1ServiceSpec(
            type="LoadBalancer",
            ports=[service_port(*port) for port in ports],
            selector={"app": name},
            cluster_ip="10.96.0.10",
            cluster_ips=["10.96.0.10"],
            ip_families=["IPv4"],
            ip_family_policy="SingleStack",
            external_traffic_policy="Cluster",
            session_affinity="None",
            load_balancer_source_ranges=list(source_ranges) or None,
        ),
    )
